"""Measure several things fairly: interleaved, from a barrier on, by the slowest rank.

In every round each subject runs once (or its ``repeats`` times in a row, where one run is too
short for the clock), after a barrier; every round has another order. Time k of one subject and time
k of another were therefore taken next to each other, and their ratio survives a machine that other
programs share.

A machine that has done something else for a while is slow at first: caches are cold, and clocks
follow the load (some 30 ms on a virtual machine of ours, by a factor of 1.7 after a mere pause).
Programs call a transform or a product again and again, so a subject may have a ``lead``: seconds
for which it runs before each timed region, without being timed.
"""

from __future__ import annotations

import gc
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI
from rich.console import Console

from onesided.apps.cli.progress import progress

REGION = 2e-4  # seconds that a timed region lasts at least
STEADY = 5e-3  # the same, of a subject that is made by :func:`steady`
LEAD = 0.03  # seconds for which such a subject runs before each of them
MOST_REPEATS = 1000
WARM_UP = 3


@dataclass(frozen=True)
class Subject:
    """Something to time: a name, a call of all ranks, or of rank 0 alone while others sleep.

    ``apart``: each of several repeats comes after a barrier of its own, which is not timed: a rank
    may be through before others have begun.
    """

    name: str
    call: Callable[[], object]
    repeats: int = 1
    alone: bool = False
    lead: float = 0.0
    apart: bool = False


def measure(
    comm: MPI.Intracomm,
    subjects: Sequence[Subject],
    *,
    iterations: int,
    seconds: float,
    tick: Callable[[], None] = lambda: None,
) -> list[list[float]]:
    """Collective. Seconds per call, a list for each subject, the same on every rank.

    At most ``iterations`` rounds, fewer where they would take longer than ``seconds``. Every time
    is the largest over the ranks. ``tick`` is called after each round, outside the timed regions.
    """
    with no_garbage_collection():
        for _ in range(WARM_UP):
            trial = np.array([_region(comm, subject) * subject.repeats for subject in subjects])
        comm.Allreduce(MPI.IN_PLACE, trial, op=MPI.MAX)
        leads = [
            int(np.ceil(subject.lead / max(taken, 1e-9)))
            for subject, taken in zip(subjects, trial, strict=True)
        ]
        longest = float(np.dot(trial, 1 + np.array(leads)))
        rounds = max(1, min(iterations, int(seconds / max(longest, 1e-9))))
        times = np.empty((rounds, len(subjects)))
        shuffle = np.random.default_rng(1)  # the same on all ranks
        for row in times:
            for index in shuffle.permutation(len(subjects)):
                for _ in range(leads[index]):
                    _region(comm, subjects[index])
                row[index] = _region(comm, subjects[index])
            tick()
    comm.Allreduce(MPI.IN_PLACE, times, op=MPI.MAX)
    return [column.tolist() for column in times.T]


def timed(
    comm: MPI.Intracomm,
    subjects: Sequence[Subject],
    options: Namespace,
    out: Console | None,
    title: str,
) -> list[list[float]]:
    """Collective. Measure by ``--iterations`` and ``--seconds``, with progress on ``out``."""
    with progress(out, title, options.iterations) as tick:
        return measure(
            comm, subjects, iterations=options.iterations, seconds=options.seconds, tick=tick
        )


def repeats(
    comm: MPI.Intracomm, call: Callable[[], object], region: float = REGION, *, alone: bool = False
) -> int:
    """Collective. How many calls in a row make a region that is long enough for the clock."""
    subject = Subject("trial", call, alone=alone)
    shortest = min(_region(comm, subject) for _ in range(WARM_UP))
    agreed: float = comm.allreduce(shortest, op=MPI.MAX)
    return max(1, min(MOST_REPEATS, round(region / max(agreed, 1e-9))))


def steady(
    comm: MPI.Intracomm, name: str, call: Callable[[], object], *, alone: bool = False
) -> Subject:
    """Collective. A subject whose timed regions are not short, on a machine that is awake."""
    return Subject(name, call, repeats(comm, call, STEADY, alone=alone), alone, LEAD)


def setup_time(comm: MPI.Intracomm, call: Callable[[], object]) -> float:
    """Collective. Seconds of one call, by the slowest rank."""
    elapsed = _region(comm, Subject("setup", call))
    return float(comm.allreduce(elapsed, op=MPI.MAX))


def _region(comm: MPI.Intracomm, subject: Subject) -> float:
    """Collective. Seconds per call on this rank; 0 where the subject is rank 0's alone."""
    call, count = subject.call, range(subject.repeats)
    comm.Barrier()
    if subject.alone and comm.rank != 0:
        elapsed = 0.0
    elif subject.apart:
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
    if subject.alone:
        rest(comm)
    return elapsed / subject.repeats


def rest(comm: MPI.Intracomm) -> None:
    """Collective. A barrier that sleeps, so that who is still at work has the machine."""
    arrived = comm.Ibarrier()
    while not arrived.Test():
        time.sleep(0.0005)


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


# Where the time of an application goes: the seconds that a rank spends in communication.


class Stopwatch:
    """Local. Adds up the seconds in the calls that it was given, in laps."""

    def __init__(self) -> None:
        self._seconds = 0.0
        #: Seconds of every lap.
        self.laps: list[float] = []

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

    def lapped(self, call: Callable[[], object]) -> Callable[[], object]:
        """Local. The same call; each is a lap."""

        def run() -> None:
            self._seconds = 0.0
            call()
            self.laps.append(self._seconds)

        return run


class WatchedComm(MPI.Intracomm):
    """The same communicator, whose collective calls of arrays are under a watch."""

    def __new__(cls, comm: MPI.Intracomm, stopwatch: Stopwatch) -> WatchedComm:
        """Local."""
        made: WatchedComm = super().__new__(cls, comm)
        plain = MPI.Intracomm(comm)
        made.Allreduce = stopwatch.timed(plain.Allreduce)  # type: ignore[method-assign]
        made.Alltoallw = stopwatch.timed(plain.Alltoallw)  # type: ignore[method-assign]
        return made


def communication(comm: MPI.Intracomm, stopwatch: Stopwatch, rounds: int) -> list[float]:
    """Collective. Seconds of the laps of the last measurement that were timed, mean over ranks.

    A measurement has some rounds that do not count first, and before each timed lap as many that
    do not count as before the others.
    """
    return _mean(comm, timed_laps(stopwatch.laps, rounds))


def timed_laps(laps: Sequence[float], rounds: int) -> list[float]:
    """Local. Those that count; ``ValueError`` where the laps are not those of so many rounds."""
    group, rest = divmod(len(laps) - WARM_UP, rounds)
    if group < 1 or rest:
        raise ValueError(f"{len(laps)} laps in {rounds} rounds")
    return list(laps[WARM_UP + group - 1 :: group])


def _mean(comm: MPI.Intracomm, seconds: Sequence[float]) -> list[float]:
    total = np.array(seconds)
    comm.Allreduce(MPI.IN_PLACE, total)
    means: list[float] = (total / comm.size).tolist()
    return means
