"""Measure several things fairly: in turns, from a barrier on, by the slowest rank, and checked.

In every round each variant runs once (or its ``repeats`` times in a row, where one run is too
short for the clock). Time k of one and time k of another were therefore taken next to each other,
and their ratio survives a machine that other programs share. The order is balanced: over a block
of rounds everyone has every place, and follows everyone else, equally often; a seed decides which
block comes when.

A machine that has done something else for a while is slow at first: caches are cold, and clocks
follow the load (some 30 ms on a virtual machine of ours, by a factor of 1.7 after a mere pause).
So a variant may have a ``warm_up``, as programs call a transform or a product again and again.

What is timed is checked: before the first round, and after the last one.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.cli.failures import by_rank_0
from onesided.apps.cli.statistics import Verdict, worst
from onesided.collectives import sums
from onesided.sparse.solvers.space import Space

Made = TypeVar("Made")
#: What is timed.
Call: TypeAlias = Callable[[], object]

REGION = 2e-4  # seconds that a timed region lasts at least
STEADY = 5e-3  # the same, of kernels
WARM = 0.03  # seconds for which these run before each of them
MOST_REPEATS = 1000
WARM_UP = 3  # rounds that are not timed
SEED = 1  # of the order; the same on all ranks


class unchecked(str):
    """In the place of a check why there is none: nobody could doubt it, or there is no result."""


#: A verdict on what a variant brings about, or None where nothing can be said. Collective.
Check = Callable[[], Verdict | None] | unchecked


def nothing() -> None:
    """Local. In the place of a call where nothing is to be done."""


@dataclass(frozen=True)
class Variant:
    """One way to do a thing, made ready: what is timed.

    ``call``: of all ranks, or of rank 0 (``on_root``) while the others sleep. ``repeats``: calls
    in a row that are timed together. ``barriers``: each of them comes after a barrier of its own,
    which is not timed: a rank may be through before others have begun. ``warm_up``: seconds for
    which it runs before each timed region. ``before`` and ``after`` are called around every
    region, and not timed. ``parts``: what tells the seconds, ever growing, that went into parts
    of the calls. ``first``: once, in the place of the rounds that are not timed, for what must
    not run more often than it counts. ``own``: the last so many times by a clock of its own,
    Collective, for a program beside this one. ``free``: Collective, gives back what was made.
    ``steps``: how many iterations the last calls were, each of whose times is told.

    ``used``: the method that works, which may be one that ``auto`` chose; ``set_up``: whether
    making it is a set-up that has to pay, or the seconds of that; ``extra``: seconds of making it
    that went into data and checks, the same on all ranks; ``metrics``: what else its row tells.
    """

    call: Call
    check: Check
    name: str = ""
    repeats: int = 1
    on_root: bool = False
    warm_up: float = 0.0
    barriers: bool = False
    before: Call = nothing
    after: Call = nothing
    parts: Mapping[str, Callable[[], float]] = field(default_factory=dict)
    first: Call | None = None
    own: Callable[[int], list[float]] | None = None
    free: Call = nothing
    steps: Callable[[], float] = lambda: 1.0
    used: str = ""
    set_up: bool | float = True
    extra: float = 0.0
    metrics: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Timings:
    """What came out, by name of the variant.

    ``times``: seconds per call, one for each round, by the slowest rank; ``ranks``: medians of
    those of the fastest rank and of the mean over them. ``parts``: seconds of parts of a call,
    means over the ranks. ``verdicts``: the worst of each.
    """

    times: dict[str, list[float]] = field(default_factory=dict)
    ranks: dict[str, list[float]] = field(default_factory=dict)
    parts: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    verdicts: dict[str, Verdict] = field(default_factory=dict)


def interleaved(
    comm: MPI.Intracomm, variants: Sequence[Variant], *, iterations: int,
    seconds: float = math.inf, tick: Call = nothing,
) -> Timings:
    """Collective. Everything about each variant, the same on every rank.

    At most ``iterations`` rounds, fewer where they would take longer than ``seconds``, by what one
    took before or because that is over. ``tick`` is called after each turn of one variant.
    """
    found = Timings()
    _check(variants, found)
    with no_garbage_collection():
        trial = _warmed_up(comm, variants)
        runs = [int(np.ceil(each.warm_up / max(taken, 1e-9)))
                for each, taken in zip(variants, trial, strict=True)]  # fmt: skip
        longest = float(np.dot(trial, 1 + np.array(runs, float)))
        rounds = max(1, int(min(iterations, seconds / max(longest, 1e-9))))
        times = np.empty((rounds, len(variants)))
        parts = [np.zeros((len(each.parts), rounds)) for each in variants]
        end = time.monotonic() + seconds
        for number, order in zip(range(rounds), orders(len(variants)), strict=False):
            for index in order:
                each = variants[index]
                _warm(comm, each, runs[index])
                times[number, index], parts[index][:, number] = _region(comm, each)
                tick()
            if seconds < math.inf and comm.bcast(time.monotonic() > end):
                times = times[: number + 1]
                parts = [seconds_of[:, : number + 1] for seconds_of in parts]
                break
    fastest, mean, slowest = (np.empty_like(times) for _ in range(3))
    for into, how in ((fastest, MPI.MIN), (mean, MPI.SUM), (slowest, MPI.MAX)):
        comm.Allreduce(times, into, op=how)
    mean /= comm.size
    for index, (each, local) in enumerate(zip(variants, parts, strict=True)):
        steps = max(1.0, each.steps())
        taken: list[float] = (slowest[:, index] / steps).tolist()
        found.times[each.name] = taken if each.own is None else each.own(len(taken))
        if not each.on_root:
            over = [float(np.median(of[:, index]) / steps) for of in (fastest, mean)]
            found.ranks[each.name] = over
        means = local / steps
        comm.Allreduce(MPI.IN_PLACE, means)
        means /= comm.size
        found.parts[each.name] = dict(zip(each.parts, means.tolist(), strict=True))
    _check(variants, found)
    return found


def _check(variants: Sequence[Variant], found: Timings) -> None:
    """Collective. Everyone, one after the other."""
    for each in variants:
        if not isinstance(each.check, unchecked):
            before = found.verdicts.get(each.name)
            verdict = each.check()
            if verdict is not None:
                found.verdicts[each.name] = verdict if before is None else worst([before, verdict])


def _warmed_up(comm: MPI.Intracomm, variants: Sequence[Variant]) -> NDArray[Any]:
    """Collective. Seconds of a turn of each, without its warm-up; 0 where that is not known."""
    trial = np.zeros(len(variants))
    for each in variants:
        if each.first is not None:
            each.first()
    for _ in range(WARM_UP):
        for index, each in enumerate(variants):
            if each.first is None:
                trial[index] = _region(comm, each)[0] * each.repeats
    comm.Allreduce(MPI.IN_PLACE, trial, op=MPI.MAX)
    return trial


def _warm(comm: MPI.Intracomm, each: Variant, runs: int) -> None:
    """Collective. So many regions that are not timed, or as many as its warm-up has time for: on a
    machine that others use, one may take a thousand times as long as the trial."""
    end, done, step = time.monotonic() + each.warm_up, 0, 1
    while done < runs and not (done and comm.bcast(time.monotonic() > end)):
        for _ in range(min(step, runs - done)):
            _region(comm, each)
        done, step = done + step, 2 * step


def orders(count: int) -> Iterator[list[int]]:
    """Local. Orders of so many variants without end, balanced over blocks of them.

    In a block of ``count`` orders, or twice as many where that is odd, everyone has every place,
    and comes right after everyone else, equally often (E. J. Williams 1949).
    """
    dice = np.random.default_rng(SEED)
    zigzag = [(place + 1) // 2 if place % 2 else -(place // 2) for place in range(count)]
    square = [[(start + step) % count for step in zigzag] for start in range(count)]
    if count % 2:
        square += [row[::-1] for row in square]
    while True:
        names = dice.permutation(count)
        for row in dice.permutation(len(square)) if count else [0]:
            yield names[square[row]].tolist() if count else []


def repeats(
    comm: MPI.Intracomm, call: Call, region: float = REGION, *, on_root: bool = False
) -> int:
    """Collective. How many calls in a row make a region that is long enough for the clock."""
    trial = Variant(call, unchecked("a trial"), on_root=on_root)
    shortest = min(_region(comm, trial)[0] for _ in range(WARM_UP))
    agreed: float = comm.allreduce(shortest, op=MPI.MAX)
    return max(1, min(MOST_REPEATS, round(region / max(agreed, 1e-9))))


def clocked(comm: MPI.Intracomm, call: Callable[[], Made]) -> tuple[Made, float]:
    """Collective. What one call gives, and its seconds by the slowest rank."""
    comm.Barrier()
    begin = time.perf_counter()
    made = call()
    elapsed = time.perf_counter() - begin
    return made, float(comm.allreduce(elapsed, op=MPI.MAX))


def _region(comm: MPI.Intracomm, variant: Variant) -> tuple[float, list[float]]:
    """Collective. Seconds per call on this rank, and those of its parts; 0 where it is rank 0's."""
    call, count = variant.call, range(variant.repeats)
    variant.before()
    begun = [read() for read in variant.parts.values()]
    comm.Barrier()
    if variant.on_root:
        elapsed = _on_root(comm, call, len(count))
    elif variant.barriers:
        elapsed = 0.0
        for _ in count:
            begin = time.perf_counter()
            call()
            elapsed += time.perf_counter() - begin
            comm.Barrier()
    else:
        begin = time.perf_counter()
        for _ in count:
            call()
        elapsed = time.perf_counter() - begin
    ended = [read() for read in variant.parts.values()]
    variant.after()
    spent = [(late - early) / len(count) for early, late in zip(begun, ended, strict=True)]
    return elapsed / len(count), spent


def _on_root(comm: MPI.Intracomm, call: Call, count: int) -> float:
    """Collective. Seconds of so many calls of rank 0 alone; 0 on the others, which sleep."""

    def run() -> float:
        begin = time.perf_counter()
        for _ in range(count):
            call()
        return time.perf_counter() - begin

    return by_rank_0(comm, run) or 0.0


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Local. Garbage is collected before the block, and not inside it."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class Stopwatch:
    """Local. Adds up the seconds in the calls that it was given; calling it tells them."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def __call__(self) -> float:
        return self._seconds

    def timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Local. The same call, under the watch."""
        clock = time.perf_counter

        def run(*given: Any, **named: Any) -> Any:
            began = clock()
            answer = call(*given, **named)
            self._seconds += clock() - began
            return answer

        return run

    def watch(self, holder: Any, *names: str) -> None:
        """Local. Put these methods of an object under the watch."""
        for name in names:
            setattr(holder, name, self.timed(getattr(holder, name)))


def rounds_of(*requests: Any) -> Callable[[], float]:
    """Local. What tells the seconds that rounds of these requests took in Start and Wait, also
    those that compiled code started; they count in a block of ``profile()``.
    """
    return lambda: float(sum(each.in_start + each.in_wait for each in requests))


def sums_of_solvers(comm: MPI.Intracomm, dtype: np.dtype[Any]) -> Any:
    """Collective. The request by which solvers sum over the ranks of a communicator."""
    return sums(comm, *Space(comm, 0, dtype).wanted).request


class WatchedComm(MPI.Intracomm):
    """The same communicator, whose collective calls of arrays are under a watch."""

    def __new__(cls, comm: MPI.Intracomm, stopwatch: Stopwatch) -> WatchedComm:
        made: WatchedComm = super().__new__(cls, comm)
        plain = MPI.Intracomm(comm)
        made.Alltoallw = stopwatch.timed(plain.Alltoallw)  # type: ignore[method-assign]
        return made
