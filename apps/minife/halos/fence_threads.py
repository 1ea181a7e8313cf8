"""Ghosts by Put between two fences, with one thread for every neighbor, as in the paper.

Every thread drives the traffic to its neighbor only; the fences are called by the thread that
computes. The threads are made once, before anything is timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from onesided.apps.mini.halos.halo import Need
from onesided.apps.mini.halos.lock_all_threads import check_threads
from onesided.apps.minife.halos.fence import Fence
from onesided.apps.partitioned.team import Team, Work


class FenceThreads(Fence):
    """Collective. ``UnsupportedError`` on every rank where threads may not call this MPI."""

    def __init__(self, need: Need) -> None:
        check_threads(need.comm)
        super().__init__(need)
        puts: list[Work] = [partial(_timed, put) for put in self._puts]
        self._works: list[Work] = [time.perf_counter, *puts]
        self._team = Team(len(self._works))

    def Free(self) -> None:
        """Collective. End the threads, then give the window back; once more has no effect."""
        if not self._freed:
            self._team.close()
            self._works = []
        super().Free()

    def _put(self) -> None:
        """Local. Returns when all threads have called Put."""
        self._team.run(self._works)


def _timed(put: Callable[[], object]) -> float:
    """Local. The work of one thread; returns when it has ended, by the clock."""
    put()
    return time.perf_counter()
