"""Timing, verification, trials and the choice of methods, on the ranks of a job."""

from __future__ import annotations

import threading
from argparse import Namespace
from itertools import count

import numpy as np
import pytest
from cases import parameters, ranks, skip
from command_runs import run_command
from mpi4py import MPI

from onesided.apps.bench import choices, timing
from onesided.apps.bench.foreign import ForeignError
from onesided.apps.bench.sweep import Case, among, sweep
from onesided.apps.bench.timing import Variant, interleaved, repeats, unchecked
from onesided.apps.cli import failures
from onesided.apps.cli.failures import CommandError, by_rank_0, from_rank_0
from onesided.apps.cli.machine import Layout, facts
from onesided.apps.cli.options import Options
from onesided.apps.cli.report import Report, Row
from onesided.apps.cli.statistics import Verdict
from onesided.apps.papers.methods import METHODS
from onesided.apps.tools import fft
from onesided.apps.tools.doctor import OPERATIONS, try_method
from onesided.apps.tools.fft import FourierCheck, gathered
from onesided.apps.tools.grid_programs import Items
from onesided.apps.tools.spmv import vector
from onesided.collectives import Request, UnsupportedError, methods
from onesided.collectives.testing import check_transport
from onesided.pencilfft import PFFT, newDistArray

WHY = unchecked("a test")


class Clock:
    """A time that passes only where a case says so."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now

    monotonic = perf_counter

    def taking(self, seconds):
        """A call that takes so long."""

        def call():
            self.now += seconds

        return call


@pytest.fixture
def clock(monkeypatch):
    """The one by which everything is timed; sums of a few quarters have no rounding."""
    found = Clock()
    monkeypatch.setattr(timing, "time", found)
    return found


def case_times_are_those_of_the_slowest_rank(comm, clock):
    slow = Variant(clock.taking(0.25 + comm.rank), WHY, "slow")
    fast = Variant(clock.taking(0.25), WHY, "fast")
    times = interleaved(comm, [slow, fast], iterations=5, seconds=60 * comm.size).times
    assert times == {"slow": [comm.size - 0.75] * 5, "fast": [0.25] * 5}
    assert all(other == times for other in comm.allgather(times))


def case_rounds_are_interleaved_in_an_order_that_changes(comm):
    calls, ticks = [], []
    entered = [Variant(lambda name=name: calls.append(name), WHY, name) for name in "abc"]
    interleaved(comm, entered, iterations=8, seconds=60, tick=lambda: ticks.append(len(calls)))
    first = 3 * timing.WARM_UP
    assert calls[:first] == list("abc" * timing.WARM_UP)
    rounds = ["".join(calls[i : i + 3]) for i in range(first, len(calls), 3)]
    assert all(sorted(names) == list("abc") for names in rounds)
    assert len(set(rounds)) == 6
    assert comm.allgather(calls) == [calls] * comm.size
    assert len(ticks) == 3 * len(rounds) == 24


def case_repeats_are_counted(comm):
    calls = []
    many = Variant(lambda: calls.append(1), WHY, "many", repeats=7)
    found = interleaved(comm, [many], iterations=2, seconds=60)
    assert len(calls) == 7 * (2 + timing.WARM_UP)
    assert len(found.times["many"]) == 2


def case_a_race_ends_in_time(comm, clock):
    found = interleaved(comm, [Variant(clock.taking(2), WHY, "slow")], iterations=1000, seconds=10)
    assert len(found.times["slow"]) == 5
    numbers = count()

    def slower():
        """When the race has begun, as the machine has got something else to do."""
        clock.now += 0.25 if next(numbers) < timing.WARM_UP else 2

    later = Variant(slower, WHY, "later", warm_up=1)  # one call that is not timed, and one that is
    found = interleaved(comm, [later], iterations=1000, seconds=10)
    assert found.times["later"] == [2] * 3


def case_what_rank_0_does_alone(comm, clock):
    alone = Variant(clock.taking(0.25), WHY, "alone", on_root=True)
    found = interleaved(comm, [alone], iterations=2, seconds=60)
    assert found.times["alone"] == [0.25, 0.25]
    assert bool(clock.now) == (comm.rank == 0)


def case_what_some_ranks_find_or_cannot_do_is_that_of_all(comm):
    assert from_rank_0(comm, lambda: comm.rank + 5) == 5
    assert by_rank_0(comm, lambda: "found") == ("found" if comm.rank == 0 else None)
    members = {0, comm.size - 1}
    ranks = among(comm, sorted(members), lambda few: (few.size, few.allreduce(comm.rank)))
    assert ranks == (len(members), sum(members))

    def fail(*_):
        raise ForeignError("nobody there")

    with pytest.raises(ForeignError, match="nobody there"):
        from_rank_0(comm, fail)
    with pytest.raises(CommandError, match="No such file"):
        by_rank_0(comm, lambda: open("/no/such/file"))
    with pytest.raises(CommandError, match="nobody there"):
        among(comm, sorted(members), fail)


def case_what_is_timed_is_checked_before_and_after(comm):
    verdicts = [Verdict(0.0, 0.0), Verdict(1.0, 0.0)]
    checked = Variant(lambda: None, lambda: verdicts.pop(0), "checked")
    other = Variant(lambda: None, WHY, "other")
    found = interleaved(comm, [checked, other], iterations=1)
    assert verdicts == []
    assert not found.verdicts["checked"].passed


def case_calls_are_repeated_until_they_fill_a_region(comm, clock):
    """By the slowest rank."""
    assert repeats(comm, clock.taking(2 * timing.REGION)) == 1
    several = repeats(comm, clock.taking(timing.REGION / (2 if comm.rank else 4)))
    assert several == (4 if comm.size == 1 else 2)
    assert repeats(comm, lambda: None) == timing.MOST_REPEATS


def case_gathered_puts_blocks_where_they_belong(comm):
    shape = (2 * comm.size + 1, 3)
    rows = slice(comm.rank * 2, comm.rank * 2 + 2 + (comm.rank == comm.size - 1))
    whole = np.arange(np.prod(shape), dtype=float).reshape(shape)
    found = gathered(comm, whole[rows], (rows, slice(0, 3)), shape)
    assert (found is None) == (comm.rank != 0)
    assert found is None or np.array_equal(found, whole)


@parameters(dtype=["float32", "float64", "complex64", "complex128"], limit=[0, 1 << 20])
def case_right_transforms_pass_and_wrong_ones_do_not(comm, dtype, limit, seed, monkeypatch):
    monkeypatch.setattr(fft, "GATHER_LIMIT", limit)
    with PFFT(comm, (9, 8, 10), dtype=dtype, method="p2p") as plan:
        source = newDistArray(plan, False)
        source[...] = np.random.default_rng([seed, comm.rank]).standard_normal(source.shape)
        check = FourierCheck(comm, plan, source)
        assert check.gathers == (limit > 0)
        verdict = check(plan)
        assert verdict.passed, verdict
        forward = plan.forward
        for wrong in (_doubled, _first_changed, _turned):
            plan.forward = Wrong(forward, wrong)
            verdict = check(plan)
            assert not verdict.passed, (wrong.__name__, verdict)
        plan.forward = forward


class Wrong:
    """A transform whose result is spoilt, and which is like the right one in all else."""

    def __init__(self, forward, spoil):
        self._forward, self._spoil = forward, spoil

    def __getattr__(self, name):
        return getattr(self._forward, name)

    def __call__(self, source, target, **how):
        self._forward(source, target, **how)
        self._spoil(target)


def _doubled(target):
    target *= 2


def _first_changed(target):
    if target.size and not any(target._p0.substart):
        target.flat[0] += 1


def _turned(target):
    target *= np.exp(0.1j)


@parameters(operation=list(OPERATIONS))
def case_trial_of_every_method(comm, operation):
    for method in methods(operation):
        trial = try_method(comm, method, {}, operation)
        assert trial.works or not trial.supported, trial
        assert trial.works or trial.reason


@parameters(operation=["exchange", "reduction"])
def case_a_trial_sees_wrong_data(comm, operation):
    wait = Request.Wait

    def wrong(self):
        received = wait(self)
        if comm.rank == comm.size - 1 and received is not None:
            received.reshape(-1)[0] += 1
        return received

    Request.Wait = wrong
    try:
        trial = try_method(comm, "p2p", {}, operation)
    finally:
        Request.Wait = wait
    assert not trial.works
    assert trial.supported
    assert "wrong data" in trial.reason


def swept(comm, methods, make, **more):
    """The rows of one case, and what was freed in which order."""
    freed = []

    def opened(comm, stack):
        stack.callback(freed.append, "case")

        def ready(labels):
            name = labels["method"]
            if name.startswith("rma"):
                raise UnsupportedError(f"no {name} here")
            return make(name, lambda: freed.append(name))

        return ready

    report = Report("sweep", {}, {})
    options = Options(iterations=3, seconds=20.0, json=None)
    case = Case({"size": "1"}, [{"method": name} for name in methods], opened, **more)
    try:
        sweep(comm, options, report, [case], "testing")
    finally:
        swept.freed = freed
    return report.rows


def ready(name, free):
    calls = []
    return Variant(lambda: calls.append(1), lambda: Verdict(0.0, 0.0), free=free,
                   metrics={"bytes": 8, "kernel": name})  # fmt: skip


def case_a_sweep_has_a_row_for_everything_also_for_what_cannot_be_made(comm):
    rows = swept(comm, ["mpi", "rma-lock", "p2p"], ready, setups=3)
    assert [row.labels for row in rows] == [
        {"size": "1", "method": name} for name in ("mpi", "rma-lock", "p2p")
    ]
    assert rows[1].reason == "no rma-lock here"
    assert rows[0].against["mpi"] == rows[0].times == rows[2].against["mpi"]
    assert len(rows[2].times) == 3
    assert len(rows[2].metrics["init_times_s"]) == 3 == len(rows[2].metrics["free_times_s"])
    assert rows[2].setup > 0
    assert rows[2].nbytes == 8
    assert swept.freed[-3:] == ["p2p", "mpi", "case"]


def case_a_sweep_of_nothing_that_works_is_an_error(comm):
    with pytest.raises(CommandError, match="rma-lock: no rma-lock here"):
        swept(comm, ["mpi", "rma-lock"], ready)


def case_what_rank_0_cannot_do_alone_is_the_error_of_all(comm):
    """An opponent that dies in the second round: nobody waits for ever, all is freed."""
    turns = []

    def die():
        turns.append(1)
        if len(turns) > 5:
            raise ForeignError("the program ended: killed")

    def make(name, free):
        return Variant(die, unchecked("a test"), on_root=True, free=free)

    with pytest.raises(CommandError, match="the program ended: killed"):
        swept(comm, ["PETSc"], make, against=())
    assert swept.freed == ["PETSc", "case"]


@parameters(words=["rma-mt --patterns rate-halo --sizes 8", "partitioned --buffer 1K --sizes 1K"])
@ranks(at_least=2, at_most=2)
def case_threads_of_a_benchmark_that_one_rank_cannot_make(comm, words):
    """All are told, and nobody waits for it."""
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        skip("threads that call MPI need MPI_THREAD_MULTIPLE")
    start = threading.Thread.start

    def refused(thread):
        if thread.name == "team" and comm.rank == comm.size - 1:
            raise RuntimeError("can't start new thread")
        start(thread)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        with pytest.raises(CommandError, match="threads: can't start new thread"):
            run_command(comm, f"bench {words} --threads 2 --iterations 1")
    assert "team" not in [thread.name for thread in threading.enumerate()]


@parameters(verify=[False, True])
def case_a_field_that_is_held_against_nothing_is_not_verified(comm, verify):
    words = "heat --shape 8 8 --steps 4 --repeats 2 --comm grid"
    code, found = run_command(comm, words + " --verify" * verify)
    assert code == 0
    first, second = found["rows"]
    assert (first.get("verified"), second["verified"]) == (True if verify else None, True)


def case_items_migrate_along_the_axis_that_is_cut(comm):
    """With two ranks the second one; where nothing came to a rank, the verdict would be wrong."""
    words = "bench halo --patterns migrate --shape 8 16 16 --iterations 2"
    code, found = run_command(comm, words)
    assert code == 0, found
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Items, "drift", lambda self: None)
        assert run_command(comm, words)[0] == (comm.size > 1)


@ranks(at_least=2)
def case_nothing_is_freed_where_one_rank_alone_cannot_go_on(comm):
    """The others are in a barrier, and would not free it with that rank."""
    freed, last = [], comm.rank == comm.size - 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(failures, "LONGEST_WAIT", 0.1)
        try:
            with failures.closing(comm) as stack:
                stack.callback(freed.append, "case")
                if last:
                    raise CommandError("no memory here")
                comm.Barrier()
        except CommandError:
            assert not freed
            comm.Barrier()
    assert freed == ([] if last else ["case"])


def case_parts_and_their_rest_are_a_time(comm, clock):
    watch = timing.Stopwatch()
    inside, beside = watch.timed(clock.taking(2)), clock.taking(1)

    def call():
        inside()
        beside()

    def make(name, free):
        return Variant(call, unchecked("a test"), free=free, parts={"inside": watch},
                       steps=lambda: 2.0)  # fmt: skip

    (row,) = swept(comm, ["one"], make, rest="compute")
    assert row.times  # of two steps in a call
    assert {*row.times, *row.ranks} == {1.5}
    assert set(row.parts["inside"]) == {1.0}
    assert set(row.parts["compute"]) == {0.5}


@ranks(at_least=3, at_most=3)
@parameters(method=[method.name for method in METHODS], ranks_per_node=["", "1"])
def case_methods_of_the_papers(comm, method, ranks_per_node):
    """They come in from outside, and do what a transport has to do."""
    info = {"ranks_per_node": ranks_per_node} if ranks_per_node else None
    assert check_transport(comm, method, info) == {}


def case_names_of_methods(comm):
    assert choices.chosen("all")[0] == "mpi"
    assert set(choices.chosen("all")) == set(methods())
    assert choices.chosen("p2p,rma-fence") == ["mpi", "p2p", "rma-fence"]
    assert choices.chosen("p2p, p2p", baseline=False) == ["p2p"]
    with pytest.raises(CommandError, match="no method 'rma'; the methods are mpi, "):
        choices.chosen("rma")


def case_the_caller_has_the_last_word_on_hints(comm):
    options = Namespace(iterations=7, info=[("slots", "1")])
    assert choices.hints(options) == {"expected_iterations": "7", "slots": "1"}
    options.info.append(("expected_iterations", "9"))
    assert choices.hints(options)["expected_iterations"] == "9"


def case_layout(comm, options):
    nodes = int(options.get("nodes", "1"))
    layout = Layout.of(comm)
    assert sum(layout.ranks_per_node) == comm.size
    assert len(layout.ranks_per_node) == nodes, layout
    assert str(layout).startswith(f"{nodes} node{'s' if nodes > 1 else ''}, ")
    assert facts(comm)["nodes"] == nodes


def case_a_report_without_json_writes_nothing_and_one_that_cannot_be_written_fails_on_all(comm):
    report = Report("nothing", {}, {}, [Row({"method": "p2p"}, reason="none")])
    report.finish(comm, Options())
    with pytest.raises(CommandError, match="No such file"):
        report.finish(comm, Options(json="/no/such/folder/out.json"))


@parameters(dtype=["float32", "float64", "complex64", "complex128"])
def case_vector_is_the_same_in_parts(comm, dtype):
    whole = vector(0, 20, np.dtype(dtype))
    assert whole.dtype == dtype
    parts = [vector(0, 7, whole.dtype), vector(7, 20, whole.dtype)]
    assert np.array_equal(np.concatenate(parts), whole)
    assert len(np.unique(whole)) == 20
    assert not np.array_equal(vector(0, 20, whole.dtype, 1.0), whole)
