"""MPI_Put between two fences by a thread for every neighbor: MiniMD as in paper 002.

Every thread drives the traffic to its neighbor only; the fences are called by the thread that
computes. Where both neighbors of a line are the same rank, one thread sends what goes to both
sides. The threads are made once, before anything is timed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from onesided.apps.mini.halos.threads import beside, check_threads, team_of
from onesided.apps.minimd.sides import SIDES
from onesided.apps.minimd.ways.fence import Fence
from onesided.apps.minimd.ways.link import Line
from onesided.apps.team import Work


class FenceThreads(Fence):
    """Collective. ``UnsupportedError`` on every rank where threads may not call this MPI."""

    def __init__(self, line: Line) -> None:
        check_threads(line.comm)
        low, high = line.neighbors
        shares = [SIDES] if low == high else [(side,) for side in SIDES]
        puts: list[Work] = [partial(self._put_sides, share) for share in shares]
        self._works = beside(puts)
        self._team = team_of(line.comm, len(puts))
        super().__init__(line)

    def free(self) -> None:
        """Collective over the line. End the threads, then give the window back."""
        self._team.close()
        self._works = []
        super().free()

    def _put(self) -> None:
        """Local. Returns when all threads have called Put."""
        self._team.run(self._works)

    def _put_sides(self, sides: Sequence[int]) -> None:
        """Local. The work of one thread."""
        for side in sides:
            self._puts[side]()
