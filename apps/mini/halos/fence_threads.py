"""Ghosts by Put between two fences, with one thread for every neighbor, as in the paper.

Every thread drives the traffic to its neighbor only; the fences are called by the thread that
computes. The threads are made once, before anything is timed.
"""

from __future__ import annotations

from onesided.apps.mini.halos.fence import Fence
from onesided.apps.mini.halos.halo import Need
from onesided.apps.mini.halos.threads import beside, check_threads, team_of
from onesided.collectives import OnesidedError


class FenceThreads(Fence):
    """Collective. ``UnsupportedError`` on every rank where threads may not call this MPI."""

    def __init__(self, need: Need) -> None:
        check_threads(need.comm)
        super().__init__(need)
        self._works = beside(self._puts)
        try:
            self._team = team_of(need.comm, len(self._puts))
        except OnesidedError:  # the same on every rank
            self._works = []
            super().Free()
            raise

    def Free(self) -> None:
        """Collective. End the threads, then give the window back; once more has no effect."""
        if not self._freed:
            self._team.close()
            self._works = []
        super().Free()

    def _put(self) -> None:
        """Local. Returns when all threads have called Put."""
        self._team.run(self._works)
