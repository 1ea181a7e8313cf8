"""Ghosts by Put between two fences.

This is how the paper on multi-threaded one-sided communication changed MiniFE: a Put where the
original has a send. Puts that follow the first fence reach a rank after it has called its own
(MPI-4.1 section 12.5.1), which it does when it reads its ghosts no more; the second fence tells
that all are there. Both are called by the thread that computes.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.mini.halos.halo import Need, Packed, neighbors
from onesided.apps.mini.halos.window import Landing
from onesided.apps.team import Work


class Fence(Packed):
    """Collective. All Puts by the calling thread; errors are those of :class:`.Landing`."""

    label = ""

    def __init__(self, need: Need) -> None:
        super().__init__(need)
        self._landing = Landing(need.comm, len(need.pattern.ghosts), need.dtype)
        self._window, self._ghosts = self._landing.window, self._landing.memory
        near = neighbors(need.pattern)
        places = self._landing.places(near)
        self._puts: list[Work] = [
            partial(self._window.Put, self._packed[each.sent], each.rank, places[each.rank])
            for each in near
            if each.sent.stop > each.sent.start
        ]
        self._freed = False

    def start(self, x: NDArray[Any]) -> None:
        """Collective: all ranks wait for all, and then put."""
        self._pack(x)
        self._window.Fence(MPI.MODE_NOPRECEDE)
        self._put()

    def finish(self) -> NDArray[Any]:
        """Collective. The ghosts, when those of all ranks are there."""
        self._window.Fence(MPI.MODE_NOSUCCEED)
        return self._ghosts

    def Free(self) -> None:
        """Collective. Give the window back; a second time has no effect."""
        if self._freed:
            return
        self._freed = True
        self._puts, self._ghosts = [], self._ghosts[:0].copy()
        self._landing.free()

    def _put(self) -> None:
        """Local. Give every neighbor what it needs."""
        for put in self._puts:
            put()
