"""Where the time of an application goes: the seconds that a rank spends in communication."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from onesided.apps.timing import WARM_UP


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
