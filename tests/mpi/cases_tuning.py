"""``auto``: the same decision on all ranks, kept, recalled, bounded by what the caller expects."""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from contextlib import contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from cases import parameters, ranks
from errors import agreed, raises
from mpi4py import MPI

from onesided.collectives import (
    Allreduce_init,
    Alltoall_init,
    Alltoallv_init,
    Alltoallw_init,
    Bcast_init,
    Method,
    MismatchError,
    MPIError,
    Neighbor_allgather_init,
    Neighbor_alltoall_init,
    PatternError,
    ResourceError,
    UnsupportedError,
    empty,
    free,
    methods,
    registry,
)
from onesided.collectives.context import Context
from onesided.collectives.exchange import neighbors
from onesided.collectives.transports import mpi
from onesided.collectives.tuning import auto, defects, race, situations
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
        Context.of(comm).decided.clear()
        try:
            with pytest.MonkeyPatch.context() as patch:  # on a busy machine, too, all are tried
                patch.setattr(race, "SECONDS", 60.0)
                patch.setattr(race, "SECONDS_FAR", 60.0)
                yield path
        finally:
            comm.Barrier()
            Context.of(comm).decided.clear()
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
    """What is tried; the one method that is another's equal on a node only where there are two,
    and the one for nodes of many ranks nowhere here."""
    return [m.name for m in methods().values() if m.candidate and (m.any_order or strict)
            and not (m.name == situations.FAR_ONLY and alone(comm))
            and m.name != situations.BY_NODE]


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
            for cost in record.costs.values():
                assert cost.setup > 0
                assert cost.round > 0
        else:
            assert path.read_text() == "rank 0 alone reads"
        # strict order has more candidates: known in part only, all of them are measured
        strict = candidates(comm, strict=True)
        assert set(names) < set(strict)
        exchange(comm, info={"mpi_assert_strict_persistent_collective_ordering": "true"})
        if comm.rank == 0:
            (record,) = read_records(path)[machine()].values()
            assert set(record.costs) | set(record.refused) == set(strict)


@ranks(at_least=2)
@parameters(crowd=[1, 2], info=[{}, {"progress": "manual"}])
def case_messages_of_nodes_are_tried_where_nodes_have_many_ranks(comm, crowd, info):
    known, situations.CROWD = situations.CROWD, crowd
    try:
        with tuning_file(comm) as path:
            exchange(comm, info={**info, "ranks_per_node": "1"})
            if comm.rank == 0:
                (record,) = read_records(path)[machine()].values()
                assert (situations.BY_NODE in record.costs) == (crowd == 1 and not info)
                assert situations.BY_NODE not in record.refused
    finally:
        situations.CROWD = known


def case_what_is_known_is_not_measured_again(comm):
    """A made-up record decides, although no measurement would."""
    with tuning_file(comm) as path:
        exchange(comm)
        for chosen in ("p2p", "rma-notify", "mpi-persistent"):
            rewrite(comm, path, chosen)
            assert exchange(comm) == chosen
        assert exchange(comm, info={"expected_iterations": "1000000"}) == chosen
        assert exchange(comm, info={"expected_iterations": "10"}) == "p2p"  # no set-up, see below


def rewrite(comm, path, chosen):
    """Rank 0 makes up a record by which one method is the fastest."""
    names = candidates(comm)
    if comm.rank == 0:
        (situation,) = read_records(path)[machine()]
        setups = dict.fromkeys(names, 1.0) | {"p2p": 1e-9}
        costs = {name: Cost(setups[name], 1e-3) for name in names}
        costs[chosen] = Cost(setups[chosen], 1e-6)
        open_tuning().learn(machine(), situation, Record(costs, {}))
    Context.of(comm).decided.clear()


PERSISTENT = {
    "exchange": lambda comm, info: Alltoall_init(comm, np.zeros(comm.size), None, info=info),
    "broadcast": lambda comm, info: Bcast_init(comm, np.zeros(4), info=info),
    "reduction": lambda comm, info: Allreduce_init(comm, np.zeros(4), np.empty(4), info=info),
}


@parameters(
    operation=list(PERSISTENT),
    said=[{}, {"effort": "estimate"}, {"expected_iterations": "1"}],
    wrong=[("MPICH", (4, 0, 0)), ("MPICH", (4, 1, 2))],
)
def case_what_this_mpi_is_known_to_corrupt_is_no_candidate(comm, operation, said, wrong):
    """Also where it is recalled as the fastest from a run on another version."""
    with tuning_file(comm), pytest.MonkeyPatch.context() as patch:
        fastest = Record({"mpi-persistent": Cost(0.0, 1e-9)}, {})
        patch.setattr(auto, "recall", lambda comm, key: fastest)
        patch.setattr(Record, "covers", lambda record, names: True)
        with PERSISTENT[operation](comm, said) as request:
            recalled = "effort" not in said
            assert (request.method == "mpi-persistent") == recalled
        patch.setattr(defects, "library", lambda: wrong)
        with PERSISTENT[operation](comm, said) as request:
            assert request.method != "mpi-persistent"
        patch.setattr(defects, "library", lambda: ("MPICH", (4, 1, 3)))
        with PERSISTENT[operation](comm, said) as request:
            assert (request.method == "mpi-persistent") == recalled


@parameters(info=[{"expected_iterations": "1"}, {"expected_iterations": "99"}])
def case_few_rounds_are_not_worth_measuring(comm, info):
    """What usually wins is taken: by the memory, the length of a block, and whether there are
    nodes."""
    assert race.SHARE * 99 < race.FIRST_LOOK
    near = "rma-notify" if alone(comm) else situations.FAR_ONLY
    much = situations.PLAIN // 8 + 1
    with tuning_file(comm) as path:
        assert exchange(comm, info=info) == near
        assert exchange(comm, much, info=info) == near
        assert exchange(comm, info=info, recvbuf=np.empty(32 * comm.size)) == near
        plain = np.empty(much * comm.size)
        wanted = near if comm.size == 1 else "p2p" if alone(comm) else situations.FAR_ONLY
        assert exchange(comm, much, info=info, recvbuf=plain) == wanted
        window = empty(comm, much * comm.size)
        assert exchange(comm, much, info=info, recvbuf=window) == near
        free(window)
        if comm.size > 1:
            several = {**info, "ranks_per_node": "1"}
            assert exchange(comm, info=several) == situations.FAR_ONLY
        assert comm.rank or not path.exists()


@ranks(at_least=2)
@parameters(manual=[False, True], count=[1, 1024, 1025], rounds=["19", "20"])
def case_few_rounds_of_short_blocks_go_by_node(comm, manual, count, rounds):
    """Where a node has ranks enough, and a thread may fill what leaves it; blocks of 8 bytes."""
    info = {"expected_iterations": rounds, "ranks_per_node": "1"}
    info.update({"progress": "manual"} if manual else {})
    with tuning_file(comm), mock.patch.object(situations, "CROWD", 1):
        by_node = not manual and count <= 1024 and rounds == "20"
        wanted = situations.BY_NODE if by_node else situations.FAR_ONLY
        assert exchange(comm, count, info=info) == wanted


class Given(race.Race):
    """A race whose rounds take what their requests say, by the number of the round."""

    def _times(self, pair, repeats, turns):
        return np.array([[each.request.next() for _ in range(turns)] for each in pair])


class Rounds:
    """A request whose rounds take so long, but for one of them."""

    def __init__(self, seconds, late=0):
        self.seconds, self.late, self.seen = seconds, late, 0

    def next(self):
        self.seen += 1
        return self.seconds * (100 if self.seen == self.late else 1)

    def Free(self):
        pass


@parameters(first=[1e-4, 2e-3], factor=[1.2, 30], late=[0, 8])
def case_what_takes_many_times_as_long_is_looked_at_twice(comm, first, factor, late):
    """Where rounds are no shorter than a millisecond; one that comes late decides nothing, as the
    eighth of the first one, its second in the duel."""
    assert race.GLANCES == 4
    made = {"first": Rounds(first, late), "slow": Rounds(first * factor)}
    able = [SimpleNamespace(name=name) for name in made]
    record = Given(comm, far=True).run(able, lambda method: made[method.name])
    assert (made["slow"].seen == 2) == (first > 1e-3 and factor == 30 and not late)
    assert record.costs["first"].round == first
    assert record.costs["slow"].round == pytest.approx(first * factor)


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
        exchange(comm, 32, info={"progress": "manual"})
        with Bcast_init(comm, np.ones(100), method="auto"):
            pass
        send = np.zeros((comm.size, 32))
        boxes = [(slice(rank, rank + 1),) for rank in range(comm.size)]
        Alltoallw_init(comm, [send, boxes], [(send.shape, float), boxes]).Free()
        Alltoall_init(comm, send, None).Free()
        expected = 8
        if comm.size > 1:  # as if there were several nodes
            exchange(comm, 32, info={"ranks_per_node": "1"})
            expected += 1
        if comm.rank == 0:
            known = sorted(read_records(path)[machine()])
            assert len(known) == expected, known
            assert sum("broadcast" in name for name in known) == 1
            assert sum("by boxes" in name for name in known) == 1
            assert sum("emulated" in name for name in known) == expected - 8
            assert sum("manual progress" in name for name in known) == 1
            assert all(" cores, " in name and " rounds; " in name for name in known)


@parameters(content=["{"])
def case_a_broken_file_is_a_warning_on_one_rank(comm, content):
    """Or an error on all ranks, where the program makes errors of warnings."""
    with tuning_file(comm) as path:
        if comm.rank == 0:
            path.write_text(content)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            exchange(comm)
        words = [str(each.message) for each in seen if each.category is RuntimeWarning]
        assert bool(words) == (comm.rank == 0), words
        assert comm.rank or path.read_text() == content  # it may not be ours
    with tuning_file(comm) as path, warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        if comm.rank == 0:
            path.write_text(content)
        agreed(comm, RuntimeWarning, lambda: exchange(comm), "no tuning file")


@parameters(said=[{}, {"expected_iterations": "1"}])
def case_a_file_that_refuses_everything_is_not_believed(comm, said):
    """It is measured again, or what usually wins is taken."""
    nothing = Record({}, dict.fromkeys(candidates(comm), "not here"))
    with tuning_file(comm) as path:
        exchange(comm)
        if comm.rank == 0:
            (situation,) = read_records(path)[machine()]
            open_tuning().learn(machine(), situation, nothing)
        Context.of(comm).decided.clear()
        assert exchange(comm, info=said) in candidates(comm)
        assert chosen_by(comm, said) == (auto.USUAL if said else auto.RECALLED)


@ranks(at_least=2)
def case_a_request_says_by_what_it_was_chosen(comm):
    with tuning_file(comm) as path:
        assert chosen_by(comm, {}, "p2p") == ""
        for count in (8, 1 << 16):  # nothing is measured, and nothing is kept
            assert chosen_by(comm, {"effort": "estimate"}, count=count) == auto.USUAL
        assert comm.rank or not path.exists()
        assert chosen_by(comm, {}) == auto.MEASURED
        assert chosen_by(comm, {}) == auto.RECALLED
        assert chosen_by(comm, {"expected_iterations": "1", "slots": "1"}) == auto.USUAL


def chosen_by(comm, info, method="auto", count=32):
    sent = np.zeros(count * comm.size)
    with Alltoallv_init(comm, sent, None, method=method, info=info) as request:
        said = request.chosen_by
        assert f", by {said}: " in repr(request) if said else ", by " not in repr(request)
    assert len(set(comm.allgather(said))) == 1
    return said


# -- what a decision may not depend on -------------------------------------------------------------


@contextmanager
def failing(comm, method, error, times=1 << 30, rank=None):
    """The transport of a method fails so many times: on all ranks, or on one."""
    tried = []

    class Failing(methods()[method].load()):
        def __init__(self, operation, resources):
            tried.append(operation)
            if len(tried) <= times and rank in (None, comm.rank):
                raise error
            super().__init__(operation, resources)

    module, _, name = methods()[method].where.partition(":")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(import_module(module, "onesided.collectives"), name, Failing)
        yield tried


@ranks(at_least=2)
@parameters(rank=[None, 0, 1])
def case_what_is_short_is_remembered_by_the_process(comm, rank):
    """No room for one method: the others are measured once, not at every initialization."""
    error = ResourceError("no room")
    with tuning_file(comm) as path, failing(comm, "p2p", error, rank=rank) as tried:
        first = exchange(comm, 48)
        assert len(tried) == 1
        assert first != "p2p"
        assert exchange(comm, 48) == first
        assert chosen_by(comm, {}, count=48) == auto.RECALLED
        assert len(tried) == 1
        assert comm.rank or not path.exists()  # another process may have room


@ranks(at_least=2)
@parameters(error=[MPI.ERR_OTHER, MPI.ERR_UNSUPPORTED_OPERATION, MPI.ERR_NO_MEM], rank=[None, 1])
def case_a_passing_error_of_mpi_is_not_remembered(comm, error, rank):
    """It has a class of ours; and the next initialization tries the method again, unless MPI says
    that it cannot do it."""
    problem = MPI.Exception(error)
    kinds = {MPI.ERR_OTHER: MPIError, MPI.ERR_NO_MEM: ResourceError}
    with failing(comm, "p2p", problem, rank=rank):
        agreed(comm, kinds.get(error, UnsupportedError), lambda: Alltoallv_init(
            comm, np.ones(comm.size), None, method="p2p"), "MPI: ")  # fmt: skip
    with tuning_file(comm) as path, failing(comm, "p2p", problem, 1, rank) as tried:
        exchange(comm, 48)
        first = len(tried)
        exchange(comm, 48)
        assert (len(tried) > first) == (error == MPI.ERR_OTHER), len(tried)
        assert comm.bcast(path.exists()) == (error != MPI.ERR_NO_MEM)
        if error == MPI.ERR_UNSUPPORTED_OPERATION and comm.rank == 0:
            (record,) = read_records(path)[machine()].values()
            assert "p2p" in record.refused


@ranks(at_least=2)
@parameters(rank=[None, 1], where=["module", "transport"], method=["auto", "own"])
def case_a_candidate_that_cannot_be_made_is_everybodys_error(comm, rank, where, method):
    """What has been tried before it is given back, and nobody waits for a rank that fails alone."""
    live, known = len(Context.of(comm).live), {k: dict(t) for k, t in registry._METHODS.items()}
    there = rank is not None and comm.rank != rank
    with tuning_file(comm), pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_METHODS", known)
        if where == "transport":
            own, error = "p2p", RuntimeError("no such thing")
        else:
            own, error = "mine", ImportError("no module named 'mine'")
            registry.register(Method(own, "mine:PersistentExchange", True, True, ""))
            patch.setitem(sys.modules, "mine", mpi if there else None)
        failed = failing(comm, own, error, rank=rank) if where == "transport" else nullcontext()
        with failed, pytest.raises(type(error)):
            Alltoallv_init(comm, np.ones(48 * comm.size), None,
                           method=own if method == "own" else "auto")  # fmt: skip
    assert len(Context.of(comm).live) == live
    exchange(comm, 48)


#: No memory: ours, Python's, NumPy's.
SHORT = {"ours": lambda: ResourceError("no room"), "Python's": lambda: MemoryError("no room"),
         "NumPy's": lambda: raises(MemoryError, lambda: np.zeros(1 << 59))}  # fmt: skip


@parameters(whose=SHORT, said=[{}, {"effort": "estimate"}])
def case_what_has_no_memory_is_passed_over(comm, whose, said):
    """In trials, and when what usually wins is made; by all ranks where one has none for a trial.
    """
    first, plain = situations.usual_order(not alone(comm), True, 0)[0], np.empty(48 * comm.size)
    with tuning_file(comm), failing(comm, first, SHORT[whose]()) as tried:
        assert exchange(comm, 48, info=said) in set(candidates(comm)) - {first}
        assert tried

    def nothing(*words, **names):
        raise SHORT[whose]()

    with tuning_file(comm), pytest.MonkeyPatch.context() as patch:
        if comm.rank == comm.size - 1:
            patch.setattr(situations, "_scratch", nothing)
        assert exchange(comm, 48, info=said, recvbuf=plain) in candidates(comm)


@contextmanager
def trials(most):
    """The requests that are tried, where a trial has so many bytes at most."""
    seen, original = [], race.Race.run

    def run(self, able, make):
        def watched(method):
            request = make(method)
            seen.append((request.operation, [array.nbytes for array in request.transport.arrays]))
            return request

        return original(self, able, watched)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(race.Race, "run", run)
        patch.setattr(situations, "MOST", most)
        patch.setattr(situations, "MOST_FAR", most)
        yield seen


#: What is tried: everybody with everybody, by boxes, and along grids with open ends.
TRIED = {"Alltoall": Alltoall_init, "Alltoallw": Alltoallw_init,
         "Neighbor_alltoall": Neighbor_alltoall_init, "Neighbor_allgather": Neighbor_allgather_init}


def opened(comm):
    """A line, or a grid of two lines that are no rings, each of whose ranks has an end."""
    grid = comm.size > 2 and comm.size % 2 == 0
    return comm.Create_cart([2, comm.size // 2] if grid else [comm.size], [True] * grid + [False])


@ranks(at_least=2)
@parameters(memory=["own", "plain", "window", "holes"], call=TRIED, above=[False, True])
def case_long_exchanges_are_tried_with_shorter_blocks(comm, memory, call, above):
    """A trial moves no more than so many bytes, whatever the exchange has; blocks that nobody
    sends are none of them, but have room in the receive array."""
    most, boxes, within = 1 << 16, call == "Alltoallw", opened(comm)
    sources, keys = list(range(comm.size)), [comm.rank] * comm.size
    if call.startswith("Neighbor"):
        sources, keys = neighbors(within)[1]
    into = len(sources)
    out = 1 if call == "Neighbor_allgather" else into
    keys = [key % out for key in keys]
    real = comm.allreduce(sum(peer >= 0 for peer in sources), MPI.MAX)
    rows = most // 8 // real + above

    def sent(rank):
        return np.arange(float(rows * out)) + 1e6 * rank

    with tuning_file(comm), trials(most) as seen:
        recv = None if memory == "own" else np.empty(rows * into)
        if memory == "window":
            recv = empty(comm, rows * into)
        send, given = sent(comm.rank), recv
        kind = MPI.DOUBLE.Create_resized(0, 16).Commit()
        if boxes:
            send = [send.reshape(rows, into),
                    [(slice(0, rows), slice(p, p + 1)) for p in range(into)]]  # fmt: skip
            given = [((into, rows), float) if recv is None else recv.reshape(into, rows),
                     [(slice(p, p + 1),) for p in range(into)]]  # fmt: skip
        elif memory == "holes":
            given = np.empty(2 * rows * into)
            send, given, recv = [send.repeat(2), rows, kind], [given, rows, kind], given[::2]
        request = TRIED[call](within if call.startswith("Neighbor") else comm, send, given)
        request.Start()
        got = request.Wait()
        got = np.asarray(got if recv is None else recv).reshape(into, rows)
        for place, (peer, key) in enumerate(zip(sources, keys, strict=True)):
            if peer >= 0:
                theirs = sent(peer).reshape(rows, -1).T if boxes else sent(peer).reshape(out, -1)
                assert np.array_equal(got[place], theirs[key])
        del got
        request.Free()
        for of, nbytes in seen:
            assert sum(8 * block.size for block in of.send.blocks) <= most
            assert all(each <= most // real * into for each in nbytes)
        assert bool(seen) == (not boxes or not above)  # of other shapes on the other side
        if memory == "window":
            free(recv)
        kind.Free()
        within.Free()


@ranks(at_least=4)
@parameters(third=[0, 1, 4999, 5000], receives=["own", "plain"])
def case_blocks_that_overlap_are_tried(comm, third, receives):
    """What is sent to several ranks may overlap, and begin at the same element."""
    most, long = 1 << 16, 5000  # half of which is tried
    places = [0, 1, *[2] * (comm.size - 2)]
    lengths = [long, long, third, *[long] * (comm.size - 3)]
    data, start = np.arange(long + 2.0), places[comm.rank]
    mine = data[start : start + lengths[comm.rank]]
    send = [data, lengths, places] if comm.rank == 0 else [np.zeros(0), [0] * comm.size]
    recv = [np.zeros(lengths[comm.rank]), [lengths[comm.rank]] + [0] * (comm.size - 1)]
    with tuning_file(comm), trials(most) as seen:
        request = Alltoallv_init(comm, send, None if receives == "own" else recv)
        assert seen
        request.Start()
        assert np.array_equal(request.Wait(), mine)
        request.Free()


@ranks(at_least=2)
def case_candidates_of_one_rank_are_a_mismatch(comm):
    """What is registered on some ranks only is no reason to hang."""
    with tuning_file(comm), pytest.MonkeyPatch.context() as patch:
        known = {kind: dict(table) for kind, table in registry._METHODS.items()}
        patch.setattr(registry, "_METHODS", known)
        if comm.rank == 1:
            where = ".transports.p2p:PointToPoint"
            registry.register(Method("mine", where, True, True, ""))
        with pytest.raises(MismatchError, match="mine"):
            exchange(comm)
    exchange(comm)


@parameters(error=[KeyboardInterrupt, SystemExit, RuntimeError, PatternError])
def case_memory_of_trials_is_given_back_by_all_ranks_or_none(comm, error):
    """That is collective: not where a rank may be interrupted alone."""
    released, original = [], situations.Resources.release

    def release(self):
        released.append(1)
        original(self)

    def run(*words):
        raise error

    with tuning_file(comm), pytest.MonkeyPatch.context() as patch:
        patch.setattr(situations.Resources, "release", release)
        patch.setattr(race.Race, "run", run)
        with pytest.raises(error):
            Bcast_init(comm, np.ones(100))
        assert bool(released) == issubclass(error, Exception)


def case_nothing_is_learnt_under_debugging(comm):
    with tuning_file(comm) as path, pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONESIDED_DEBUG", "1")
        assert chosen_by(comm, {}, count=48) == auto.USUAL
        assert comm.rank or not path.exists()


@ranks(at_least=2)
def case_the_environment_overrules(comm):
    with tuning_file(comm), pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONESIDED_METHOD", "exchange=mpi-persistent,reduction=p2p")
        assert exchange(comm) == "mpi-persistent"
        assert chosen_by(comm, {}) == "ONESIDED_METHOD"
        assert chosen_by(comm, {}, "rma-notify") == ""
        with Allreduce_init(comm, np.ones(2), np.ones(2)) as request:
            assert request.method == "p2p"
        with Bcast_init(comm, np.ones(2)) as request:
            assert request.chosen_by == auto.MEASURED
        patch.setenv("ONESIDED_METHOD", f"exchange={('p2p', 'mpi-persistent')[comm.rank % 2]}")
        with pytest.raises(MismatchError, match="mpi-persistent"):
            exchange(comm)


@ranks(at_least=2)
def case_a_race_has_so_much_time(comm):
    """Who was not tried by then is passed over, and that is known to the process."""
    with tuning_file(comm) as path, pytest.MonkeyPatch.context() as patch:
        patch.setattr(race, "SECONDS", 0.0)
        patch.setattr(race, "SECONDS_FAR", 0.0)
        assert exchange(comm, 48) == situations.usual_order(not alone(comm), True, 0)[0]
        assert chosen_by(comm, {}, count=48) == auto.RECALLED
        assert comm.rank or not path.exists()
