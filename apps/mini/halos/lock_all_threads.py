"""Ghosts by Put, with MPI_Win_lock_all, MPI_Win_unlock_all and one thread for every neighbor.

This is how the paper on multi-threaded one-sided communication changed HPCCG: every thread drives
the traffic to its neighbor only, by a Put of what the original sends there; the thread that
computes synchronises the window. The threads are made once, before anything is timed.

The paper does not say how a rank learns that its ghosts are there. Here all ranks meet in a barrier
after MPI_Win_unlock_all, which has completed the Puts at their targets. The window has room for the
ghosts of two rounds, used in turn: who writes to one of them again has left the barrier of the
round between, which its owner entered after reading. So one barrier a round is enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.apps.mini.halos.halo import Need, Neighbor, Packed, neighbors
from onesided.apps.mini.halos.threads import beside, check_threads, team_of
from onesided.apps.mini.halos.window import Landing
from onesided.apps.team import Work
from onesided.collectives import OnesidedError

SLOTS = 2


class LockAllThreads(Packed):
    """Collective. ``UnsupportedError`` on every rank where threads may not call this MPI.

    An epoch is open from the making on, and the next one is opened where one ends, so that
    MPI_Win_sync can be called before ghosts are read (MPI-4.1 section 12.5.4).
    """

    label = ""

    def __init__(self, need: Need) -> None:
        pattern = need.pattern
        super().__init__(need)
        check_threads(need.comm)
        self._landing = Landing(need.comm, SLOTS * len(pattern.ghosts), need.dtype)
        self._window = self._landing.window
        self._slots = np.split(self._landing.memory, SLOTS)
        near, count = neighbors(pattern), len(pattern.ghosts)
        shifts = (slot * count for slot in range(SLOTS))
        self._works = [self._slot_works(near, self._landing.places(near, by)) for by in shifts]
        try:
            self._team = team_of(need.comm, len(self._works[0]) - 1)
        except OnesidedError:  # the same on every rank
            self._works, self._slots = [], []
            self._landing.free()
            raise
        self._slot = 0
        self._freed = False
        self._window.Lock_all()
        self._window.Sync()
        self._landing.comm.Barrier()  # nobody puts before all have cleared their memory

    def _slot_works(self, near: list[Neighbor], places: Mapping[int, int]) -> list[Work]:
        """Local. What the calling thread and those of the neighbors do in a round."""
        puts: list[Work] = [
            partial(self._window.Put, self._packed[each.sent], each.rank, places[each.rank])
            for each in near
            if each.sent.stop > each.sent.start
        ]
        return beside(puts)

    def start(self, x: NDArray[Any]) -> None:
        """Local in the sense of MPI. Returns when all threads have called Put."""
        self._pack(x)
        self._slot = 1 - self._slot
        self._team.run(self._works[self._slot])

    def finish(self) -> NDArray[Any]:
        """Collective. The ghosts, when they are there: all ranks wait for all."""
        window = self._window
        window.Unlock_all()
        self._landing.comm.Barrier()
        window.Lock_all()
        window.Sync()
        return self._slots[self._slot]

    def Free(self) -> None:
        """Collective. End the threads, then give the window back; once more has no effect."""
        if self._freed:
            return
        self._freed = True
        self._team.close()
        self._works, self._slots = [], []
        self._window.Unlock_all()
        self._landing.free()
