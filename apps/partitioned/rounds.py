"""A round of Listing 1, to be timed or to be checked."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.partitioned.markings import Work
from onesided.apps.partitioned.runner import Lane, Runner
from onesided.apps.team import Team

TURNS = 3  # rounds of a check; Open MPI's partitioned send is right in the first one only
PROBES = 16  # looks for messages between the start and the first mark of a checked round


class Round:
    """Start, the loop over partitions on several threads, wait. Calling it runs it.

    ``ready`` has for every call the seconds from its beginning until the last partition was ready
    (the bytes were there, the last mark began), on this side.
    """

    def __init__(self, runner: Runner, team: Team, works: Sequence[Work]) -> None:
        self.runner, self.ready = runner, list[float]()
        self._team, self._works = team, works

    def __call__(self) -> None:
        """Local, as far as the contestant is: the other side runs its own."""
        runner = self.runner
        begin = time.perf_counter()
        runner.start()
        ready = self._team.run(self._works) or [time.perf_counter()]
        runner.wait()
        self.ready.append(max(ready) - begin)

    def nudged(self, comm: MPI.Intracomm) -> None:
        """Local. The same, while MPI makes progress before the first partition is ready."""
        self.runner.start()
        for _ in range(PROBES):
            comm.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG)
        self._team.run(self._works)
        self.runner.wait()


def pace(comm: MPI.Intracomm, seconds: Sequence[float]) -> float:
    """Collective. The fastest of some rounds, by the slower side: others may be disturbed."""
    slower = np.array(seconds)
    comm.Allreduce(MPI.IN_PLACE, slower, op=MPI.MAX)
    return float(slower.min())


class Check:
    """Sends data that change with every round, and looks at every partition."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._places = np.arange(-(-lane.message.size // 8), dtype=np.uint64)
        self._turn = 0

    def wrong(self, round_: Round, most: float) -> int:
        """Collective. The most partitions that were wrong after a round; notes the pace.

        The receiver looks as soon as it has waited. The sender destroys its buffer as soon as it
        has waited, which every correct transfer allows. After ``most`` seconds there are no more
        rounds.
        """
        lane, wrong, taken = self._lane, 0, list[float]()
        for _ in range(TURNS):
            expected = self._data()
            lane.message[:] = expected if lane.is_sender else ~expected
            lane.comm.Barrier()
            begin = time.perf_counter()
            round_.nudged(lane.comm)
            seconds = time.perf_counter() - begin
            if lane.is_sender:
                lane.message[:] = ~expected
            else:
                wrong = max(wrong, self._differing(expected))
            taken.append(lane.comm.allreduce(seconds, op=MPI.MAX))
            if sum(taken) > most:
                break
        round_.runner.pace = min(taken)
        worst: int = lane.comm.allreduce(wrong, op=MPI.MAX)
        return worst

    def _data(self) -> NDArray[np.uint8]:
        """Bytes that no other round has, and no other place."""
        self._turn += 1
        words = (self._places << np.uint64(24)) + np.uint64(self._turn)
        return words.view(np.uint8)[: self._lane.message.size]

    def _differing(self, expected: NDArray[np.uint8]) -> int:
        differs = self._lane.message != expected
        return int(differs.reshape(self._lane.partitions, -1).any(axis=1).sum())
