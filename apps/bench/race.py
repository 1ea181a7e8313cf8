"""Measure several things fairly: in turns, from a barrier on, by the slowest rank, and checked.

In every round each contestant runs once (or its ``repeats`` times in a row, where one run is too
short for the clock). Time k of one and time k of another were therefore taken next to each other,
and their ratio survives a machine that other programs share. The order is balanced: over a block
of rounds everyone has every place, and follows everyone else, equally often; a seed decides which
block comes when.

A machine that has done something else for a while is slow at first: caches are cold, and clocks
follow the load (some 30 ms on a virtual machine of ours, by a factor of 1.7 after a mere pause).
Programs call a transform or a product again and again, so a contestant may have a ``lead``:
seconds for which it runs before each timed region, without being timed.

What is timed is checked: before the first round, and after the last one.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.cli.failures import rest
from onesided.apps.cli.options import Options
from onesided.apps.cli.progress import progress
from onesided.apps.cli.statistics import Verdict, worst

Made = TypeVar("Made")

REGION = 2e-4  # seconds that a timed region lasts at least
STEADY = 5e-3  # the same, of a contestant that is made by :func:`steady`
LEAD = 0.03  # seconds for which such a contestant runs before each of them
MOST_REPEATS = 1000
WARM_UP = 3  # rounds that are not timed
SEED = 1  # of the order; the same on all ranks


@dataclass(frozen=True)
class Unchecked:
    """Why there is nothing to check about a contestant."""

    why: str


def unchecked(why: str) -> Unchecked:
    """Local. In the place of a check: a result that nobody could doubt, or that is not there."""
    return Unchecked(why)


#: A verdict on what a contestant brings about. Collective.
Check = Callable[[], Verdict] | Unchecked


def nothing() -> None:
    """Local. In the place of a call where nothing is to be done."""


@dataclass(frozen=True)
class Contestant:
    """Something to time: a call of all ranks, or of rank 0 ``alone`` while the others sleep.

    ``apart``: each of several repeats comes after a barrier of its own, which is not timed: a rank
    may be through before others have begun. ``before`` and ``after`` are called around every
    region, and not timed. ``parts``: what tells the seconds, ever growing, that went into parts
    of the calls. ``warm_up``: once, in the place of the rounds that are not timed, for what must
    not run more often than it counts. ``own``: the last so many times by a clock of its own,
    Collective, for a program beside this one.
    """

    name: str
    call: Callable[[], object]
    check: Check
    repeats: int = 1
    alone: bool = False
    lead: float = 0.0
    apart: bool = False
    before: Callable[[], object] = nothing
    after: Callable[[], object] = nothing
    parts: Mapping[str, Callable[[], float]] = field(default_factory=dict)
    warm_up: Callable[[], object] | None = None
    own: Callable[[int], list[float]] | None = None


@dataclass
class Race:
    """What came out, by name of the contestant.

    ``times``: seconds per call, one for each round, by the slowest rank. ``parts``: seconds of
    parts of a call, means over the ranks; ``mine``: those of this rank. ``verdicts``: the worst
    of each; ``unchecked``: why there is none.
    """

    times: dict[str, list[float]] = field(default_factory=dict)
    parts: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    mine: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    unchecked: dict[str, str] = field(default_factory=dict)


def race(
    comm: MPI.Intracomm,
    contestants: Sequence[Contestant],
    *,
    iterations: int,
    seconds: float = float("inf"),
    tick: Callable[[], object] = nothing,
    seed: int = SEED,
) -> Race:
    """Collective. Everything about each contestant, the same on every rank but for ``mine``.

    At most ``iterations`` rounds, fewer where they would take longer than ``seconds``. ``tick`` is
    called after each turn of one contestant.
    """
    found = Race(unchecked={
        each.name: each.check.why for each in contestants if isinstance(each.check, Unchecked)
    })  # fmt: skip
    _check(contestants, found)
    with no_garbage_collection():
        trial = _warmed_up(comm, contestants)
        leads = [
            int(np.ceil(each.lead / max(taken, 1e-9)))
            for each, taken in zip(contestants, trial, strict=True)
        ]
        longest = float(np.dot(trial, 1 + np.array(leads, float)))
        rounds = max(1, int(min(iterations, seconds / max(longest, 1e-9))))
        times = np.empty((rounds, len(contestants)))
        parts = [np.zeros((len(each.parts), rounds)) for each in contestants]
        for number, order in zip(range(rounds), orders(len(contestants), seed), strict=False):
            for index in order:
                each = contestants[index]
                for _ in range(leads[index]):
                    _region(comm, each)
                times[number, index], parts[index][:, number] = _region(comm, each)
                tick()
    comm.Allreduce(MPI.IN_PLACE, times, op=MPI.MAX)
    for each, column, mine in zip(contestants, times.T, parts, strict=True):
        taken: list[float] = column.tolist()
        found.times[each.name] = taken if each.own is None else each.own(len(taken))
        found.mine[each.name] = _named(each, mine)
        means = mine.copy()
        comm.Allreduce(MPI.IN_PLACE, means)
        found.parts[each.name] = _named(each, means / comm.size)
    _check(contestants, found)
    return found


def _named(each: Contestant, seconds: NDArray[Any]) -> dict[str, list[float]]:
    return {name: row.tolist() for name, row in zip(each.parts, seconds, strict=True)}


def _check(contestants: Sequence[Contestant], found: Race) -> None:
    """Collective. Everyone, one after the other."""
    for each in contestants:
        if not isinstance(each.check, Unchecked):
            before = found.verdicts.get(each.name)
            verdict = each.check()
            found.verdicts[each.name] = verdict if before is None else worst([before, verdict])


def _warmed_up(comm: MPI.Intracomm, contestants: Sequence[Contestant]) -> NDArray[Any]:
    """Collective. Seconds of a turn of each, without its lead; 0 where that is not known."""
    trial = np.zeros(len(contestants))
    for each in contestants:
        if each.warm_up is not None:
            each.warm_up()
    for _ in range(WARM_UP):
        for index, each in enumerate(contestants):
            if each.warm_up is None:
                trial[index] = _region(comm, each)[0] * each.repeats
    comm.Allreduce(MPI.IN_PLACE, trial, op=MPI.MAX)
    return trial


def orders(count: int, seed: int = SEED) -> Iterator[list[int]]:
    """Local. Orders of so many contestants without end, balanced over blocks of them.

    In a block of ``count`` orders, or twice as many where that is odd, everyone has every place,
    and comes right after everyone else, equally often (E. J. Williams 1949).
    """
    dice = np.random.default_rng(seed)
    zigzag = [(place + 1) // 2 if place % 2 else -(place // 2) for place in range(count)]
    square = [[(start + step) % count for step in zigzag] for start in range(count)]
    if count % 2:
        square += [row[::-1] for row in square]
    while True:
        names = dice.permutation(count)
        for row in dice.permutation(len(square)) if count else [0]:
            yield names[square[row]].tolist() if count else []


def timed(
    comm: MPI.Intracomm,
    contestants: Sequence[Contestant],
    options: Options,
    title: str,
) -> Race:
    """Collective. A race by ``--iterations`` and ``--seconds``, with its progress."""
    with progress(comm, options, title, options.iterations * len(contestants)) as tick:
        return race(
            comm, contestants, iterations=options.iterations, seconds=options.seconds, tick=tick
        )


def repeats(
    comm: MPI.Intracomm, call: Callable[[], object], region: float = REGION, *, alone: bool = False
) -> int:
    """Collective. How many calls in a row make a region that is long enough for the clock."""
    contestant = Contestant("trial", call, unchecked("a trial"), alone=alone)
    shortest = min(_region(comm, contestant)[0] for _ in range(WARM_UP))
    agreed: float = comm.allreduce(shortest, op=MPI.MAX)
    return max(1, min(MOST_REPEATS, round(region / max(agreed, 1e-9))))


def steady(
    comm: MPI.Intracomm, name: str, call: Callable[[], object], check: Check, *, alone: bool = False
) -> Contestant:
    """Collective. One whose timed regions are not short, on a machine that is awake."""
    count = repeats(comm, call, STEADY, alone=alone)
    return Contestant(name, call, check, count, alone, LEAD)


def clocked(comm: MPI.Intracomm, call: Callable[[], Made]) -> tuple[Made, float]:
    """Collective. What one call gives, and its seconds by the slowest rank."""
    comm.Barrier()
    begin = time.perf_counter()
    made = call()
    elapsed = time.perf_counter() - begin
    return made, float(comm.allreduce(elapsed, op=MPI.MAX))


def _region(comm: MPI.Intracomm, contestant: Contestant) -> tuple[float, list[float]]:
    """Collective. Seconds per call on this rank, and those of its parts.

    0 where the call is rank 0's alone.
    """
    call, count = contestant.call, range(contestant.repeats)
    contestant.before()
    begun = [read() for read in contestant.parts.values()]
    comm.Barrier()
    if contestant.alone and comm.rank != 0:
        elapsed = 0.0
    elif contestant.apart:
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
    ended = [read() for read in contestant.parts.values()]
    if contestant.alone:
        rest(comm)
    contestant.after()
    spent = [(late - early) / len(count) for early, late in zip(begun, ended, strict=True)]
    return elapsed / len(count), spent


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
        """Local. Seconds so far."""
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


class WatchedComm(MPI.Intracomm):
    """The same communicator, whose collective calls of arrays are under a watch."""

    def __new__(cls, comm: MPI.Intracomm, stopwatch: Stopwatch) -> WatchedComm:
        """Local."""
        made: WatchedComm = super().__new__(cls, comm)
        plain = MPI.Intracomm(comm)
        made.Allreduce = stopwatch.timed(plain.Allreduce)  # type: ignore[method-assign]
        made.Alltoallw = stopwatch.timed(plain.Alltoallw)  # type: ignore[method-assign]
        return made
