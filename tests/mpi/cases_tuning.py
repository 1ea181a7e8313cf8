"""``auto``: the same decision on all ranks, kept, recalled, bounded by what the caller expects."""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from cases import parameters, ranks
from mpi4py import MPI

from onesided.collectives import (
    Alltoallv_init,
    Bcast_init,
    PatternError,
    empty,
    free,
    methods,
)
from onesided.collectives.program import SAMPLED
from onesided.collectives.tuning import auto, race
from onesided.collectives.tuning.decisions import (
    VARIABLE,
    Cost,
    Record,
    machine,
    open_tuning,
    read_records,
)


@contextmanager
def tuning_file(comm):
    """A file of rank 0; the other ranks name one that must not be looked at."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tuning.json"
        before = os.environ.get(VARIABLE)
        os.environ[VARIABLE] = str(path)
        if comm.rank:
            path.write_text("rank 0 alone reads")
        try:
            yield path
        finally:
            comm.Barrier()
            os.environ.pop(VARIABLE)
            if before is not None:
                os.environ[VARIABLE] = before


def exchange(comm, count=32, info=None, recvbuf=None):
    sent = np.arange(count * comm.size) + 1000.0 * comm.rank
    request = Alltoallv_init(comm, sent, recvbuf, method="auto", info=info)
    for _ in range(2):
        request.Start()
        got = request.Wait()
        for peer in range(comm.size):
            part = slice(peer * count, (peer + 1) * count)
            mine = slice(comm.rank * count, (comm.rank + 1) * count)
            assert np.array_equal(got[part], (np.arange(count * comm.size) + 1000.0 * peer)[mine])
    method = request.method
    request.Free()
    assert len(set(comm.allgather(method))) == 1
    return method


def candidates(comm, strict=False):
    """What is tried; the one method that is another's equal on a node only where there are two."""
    return [m.name for m in methods().values() if m.candidate and (m.any_order or strict)
            and not (m.name == auto.FAR_ONLY and alone(comm))]


def alone(comm):
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    size = node.size
    node.Free()
    return size == comm.size


def case_what_was_measured_is_kept(comm):
    names = candidates(comm)
    with tuning_file(comm) as path:
        first = exchange(comm)
        if comm.rank == 0:
            (record,) = read_records(path)[machine()].values()
            assert set(record.costs) | set(record.refused) == set(names)
            assert record.ranking(names)[0] == first
            assert record.times == 1
            for cost in record.costs.values():
                assert cost.setup > 0
                assert 0 < cost.least
        else:
            assert path.read_text() == "rank 0 alone reads"


def case_what_is_known_is_not_measured_again(comm):
    """A made-up record decides, although no measurement would."""
    with tuning_file(comm) as path:
        exchange(comm)
        for chosen in ("p2p", "rma-notify", "mpi-persistent"):
            rewrite(comm, path, chosen)
            assert exchange(comm) == chosen
        assert exchange(comm, info={"expected_iterations": "1000000"}) == chosen
        assert exchange(comm, info={"expected_iterations": "10"}) == "p2p"  # no set-up, see below


def rewrite(comm, path, chosen, least=0.0, times=1):
    """Rank 0 makes up a record by which one method is the fastest."""
    names = candidates(comm)
    if comm.rank == 0:
        (situation,) = read_records(path)[machine()]
        setups = dict.fromkeys(names, 1.0) | {"p2p": 1e-9}
        costs = {name: Cost(setups[name], 1e-3, least) for name in names}
        costs[chosen] = Cost(setups[chosen], 1e-6, least)
        open_tuning().learn(machine(), situation, Record(costs, {}, times))


def record_of(comm, path):
    """What the file of rank 0 says, on all ranks."""
    record = None
    if comm.rank == 0:
        (record,) = read_records(path)[machine()].values()
    return comm.bcast(record)


LATE = 0.1  # seconds


def produce(comm, rounds=3 * SAMPLED, late=0.0):
    """Run a program; where the last rank is late, a timed round takes the others so long."""
    sent = np.arange(32.0 * comm.size)
    with Alltoallv_init(comm, sent, None, method="auto") as request:
        for turn in range(rounds):
            if turn % SAMPLED == SAMPLED // 2 and comm.rank == comm.size - 1:
                time.sleep(late)
            request.Start()
            request.Wait()
        return request.method


@parameters(chosen=["p2p", "rma-notify", "mpi-persistent"])
def case_a_record_of_a_busy_machine_is_measured_again(comm, chosen):
    """Production is much faster than what was measured: the next initialization measures."""
    with tuning_file(comm) as path:
        exchange(comm)
        rewrite(comm, path, chosen, least=LATE)
        assert produce(comm) == chosen
        assert not record_of(comm, path).costs
        exchange(comm)
        record = record_of(comm, path)
        assert record.times == 2
        assert record.covers(candidates(comm))
        assert all(cost.least < LATE for cost in record.costs.values())


@ranks(at_least=2)
def case_a_record_of_an_idle_machine_is_measured_again(comm):
    """Production is much slower than what was measured."""
    with tuning_file(comm) as path:
        exchange(comm)
        rewrite(comm, path, "p2p", least=LATE / 10)
        produce(comm, late=LATE)
        assert not record_of(comm, path).costs


@ranks(at_least=2)
def case_a_right_record_stays(comm):
    with tuning_file(comm) as path:
        exchange(comm)
        rewrite(comm, path, "p2p", least=LATE)
        before = record_of(comm, path)
        for _ in range(2):
            assert produce(comm, late=LATE) == "p2p"
            assert record_of(comm, path) == before


def case_too_few_rounds_contradict_nothing(comm):
    """None of them is timed."""
    with tuning_file(comm) as path:
        exchange(comm)
        rewrite(comm, path, "p2p", least=LATE)
        before = record_of(comm, path)
        produce(comm, SAMPLED // 2)
        assert record_of(comm, path) == before


def case_a_record_is_doubted_so_many_times_and_no_more(comm):
    with tuning_file(comm) as path:
        exchange(comm)
        for times in range(1, auto.DOUBTS + 2):
            rewrite(comm, path, "p2p", least=LATE, times=times)
            produce(comm)
            assert bool(record_of(comm, path).costs) == (times > auto.DOUBTS), times


@parameters(info=[{"expected_iterations": "1"}, {"expected_iterations": "99"}])
def case_few_rounds_are_not_worth_measuring(comm, info):
    """What usually wins is taken: by the memory, how much is received, and whether there are nodes.
    """
    assert race.SHARE * 99 < race.FIRST_LOOK
    near = "rma-notify" if alone(comm) else auto.FAR_ONLY
    much = auto.PLAIN // 8 // comm.size + 1
    with tuning_file(comm) as path:
        assert exchange(comm, info=info) == near
        assert exchange(comm, much, info=info) == near
        assert exchange(comm, info=info, recvbuf=np.empty(32 * comm.size)) == near
        plain = np.empty(much * comm.size)
        wanted = "p2p" if alone(comm) else auto.FAR_ONLY
        assert exchange(comm, much, info=info, recvbuf=plain) == wanted
        window = empty(comm, much * comm.size)
        assert exchange(comm, much, info=info, recvbuf=window) == near
        free(window)
        if comm.size > 1:
            several = {**info, "ranks_per_node": "1"}
            assert exchange(comm, info=several) == auto.FAR_ONLY
        assert comm.rank or not path.exists()


def case_some_rounds_are_worth_some_measuring(comm):
    """What was not tried to the end is not kept."""
    names = candidates(comm)
    assert race.SHARE * 200 > race.FIRST_LOOK
    with tuning_file(comm) as path:
        assert exchange(comm, info={"expected_iterations": "200"}) in names
        if comm.rank == 0 and path.exists():
            (record,) = read_records(path)[machine()].values()
            assert record.covers(names)


def case_situations_are_told_apart(comm):
    with tuning_file(comm) as path:
        exchange(comm, 32)
        exchange(comm, 33)  # of the same class
        exchange(comm, 4096)
        memory = empty(comm, 32 * comm.size)
        exchange(comm, 32, recvbuf=memory)
        free(memory)
        exchange(comm, 32, info={"slots": "1"})
        with Bcast_init(comm, np.ones(100), method="auto"):
            pass
        if comm.rank == 0:
            known = sorted(read_records(path)[machine()])
            assert len(known) == 5, known
            assert sum("broadcast" in name for name in known) == 1


def case_a_broken_file_is_a_warning_on_one_rank(comm):
    with tuning_file(comm) as path:
        if comm.rank == 0:
            path.write_text("{")
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            exchange(comm)
        words = [str(each.message) for each in seen if each.category is RuntimeWarning]
        assert bool(words) == (comm.rank == 0), words
        if comm.rank == 0:
            assert read_records(path)


def case_a_warning_that_is_an_error_is_one_on_all_ranks(comm):
    """Where the program makes errors of warnings, no rank waits for rank 0."""
    with tuning_file(comm) as path, warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        if comm.rank == 0:
            path.write_text("{")
        with pytest.raises(RuntimeWarning, match="no tuning file"):
            exchange(comm)
        path.unlink(missing_ok=True)


@ranks(at_least=2)
def case_an_estimate_for_memory_of_different_kinds(comm):
    """Rank 0 lets the request own its memory, the others receive into their own."""
    with tuning_file(comm):
        sent = np.arange(64.0 * comm.size) + comm.rank
        received = None if comm.rank == 0 else np.zeros(64 * comm.size)
        request = Alltoallv_init(comm, sent, received, method="auto", info={"effort": "estimate"})
        request.Start()
        got = request.Wait()
        mine = np.arange(64.0) + 64 * comm.rank
        assert np.array_equal(got, np.concatenate([mine + peer for peer in range(comm.size)]))
        assert len(set(comm.allgather(request.method))) == 1
        request.Free()


def case_strict_order_has_more_candidates(comm):
    info = {"mpi_assert_strict_persistent_collective_ordering": "true"}
    strict = candidates(comm, strict=True)
    assert set(candidates(comm)) < set(strict)
    with tuning_file(comm) as path:
        exchange(comm)
        exchange(comm, info=info)  # known in part only: measured again, with all of them
        if comm.rank == 0:
            (record,) = read_records(path)[machine()].values()
            assert set(record.costs) | set(record.refused) == set(strict)


@ranks(at_least=2)
def case_uneven_patterns_are_one_situation_on_all_ranks(comm):
    """Only rank 0 sends much; every rank must come to the same decision."""
    with tuning_file(comm):
        counts = np.full(comm.size, 4096 if comm.rank == 0 else 1)
        received = np.array([4096] + [1] * (comm.size - 1))
        request = Alltoallv_init(
            comm, [np.ones(counts.sum()), counts], [np.zeros(received.sum()), received],
            method="auto",
        )
        request.Start()
        request.Wait()
        assert len(set(comm.allgather(request.method))) == 1
        request.Free()
        assert comm.allreduce(1, MPI.SUM) == comm.size


@parameters(count=[8, 1 << 16])
def case_an_estimate_measures_nothing(comm, count):
    """What usually wins is taken, the same on all ranks, and nothing is kept."""
    with tuning_file(comm) as path:
        assert exchange(comm, count, info={"effort": "estimate"}) in candidates(comm)
        info = {"effort": "estimate"}
        with Bcast_init(comm, np.ones(count), method="auto", info=info) as request:
            assert request.method in methods("broadcast")
        assert comm.rank or not path.exists()


@ranks(at_least=2)
def case_a_request_says_by_what_it_was_chosen(comm):
    with tuning_file(comm):
        assert chosen_by(comm, {}, "p2p") == ""
        assert chosen_by(comm, {}) == auto.MEASURED
        assert chosen_by(comm, {}) == auto.RECALLED
        assert chosen_by(comm, {"expected_iterations": "1", "slots": "1"}) == auto.USUAL
        assert chosen_by(comm, {"effort": "estimate"}) == auto.USUAL


def chosen_by(comm, info, method="auto"):
    with Alltoallv_init(comm, np.zeros(32 * comm.size), None, method=method, info=info) as request:
        said = request.chosen_by
        assert f", by {said}: " in repr(request) if said else ", by " not in repr(request)
    assert len(set(comm.allgather(said))) == 1
    return said


def case_efforts_are_known_words(comm):
    with pytest.raises(PatternError, match="'effort' is 'much', not one of measure, estimate"):
        exchange(comm, info={"effort": "much"})
