"""MPI_Put between two fences by a thread for every neighbor: MiniMD as in paper 002.

Every thread drives the traffic to its neighbor only; the fences are called by the thread that
computes. Where both neighbors of a line are the same rank, one thread sends what goes to both
sides. The threads are made once, before anything is timed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from onesided.apps.mini.halos.lock_all_threads import check_threads
from onesided.apps.minimd.sides import SIDES
from onesided.apps.minimd.ways.fence import Fence
from onesided.apps.minimd.ways.link import Line
from onesided.apps.partitioned.team import Team, Work
from onesided.collectives import agreed


class FenceThreads(Fence):
    """Collective. ``UnsupportedError`` on every rank where threads may not call this MPI."""

    def __init__(self, line: Line) -> None:
        check_threads(line.comm)
        low, high = line.neighbors
        shares = [SIDES] if low == high else [(side,) for side in SIDES]
        puts: list[Work] = [partial(self._put_sides, share) for share in shares]
        self._works: list[Work] = [time.perf_counter, *puts]
        with agreed(line.comm):
            self._team = Team(len(self._works))
        super().__init__(line)

    def free(self) -> None:
        """Collective over the line. End the threads, then give the window back."""
        self._team.close()
        self._works = []
        super().free()

    def _put(self) -> None:
        """Local. Returns when all threads have called Put."""
        self._team.run(self._works)

    def _put_sides(self, sides: Sequence[int]) -> float:
        """Local. The work of one thread; returns when it has ended, by the clock."""
        for side in sides:
            self._puts[side]()
        return time.perf_counter()
