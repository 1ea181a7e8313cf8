"""Ghosts by Put between two fences, straight into the local vectors of the neighbors.

This is how the paper on multi-threaded one-sided communication changed MiniFE: a Put where the
original has a send. The first fence tells that no rank reads its ghosts any more, the second that
all are there; both are called by the thread that computes. The window is the local vector itself,
which is filled beside the ghosts while they are coming.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.mini.halos.halo import Need, Neighbor, Packed, neighbors
from onesided.collectives import UnsupportedError


class Fence(Packed):
    """Collective. All Puts by the calling thread.

    ``UnsupportedError`` on every rank where the two copies of a window are not one.
    """

    label = ""

    def __init__(self, need: Need) -> None:
        super().__init__(need)
        self._comm = need.comm.Dup()
        self._window, self._local = _window(self._comm, need.pattern.n_local, need.dtype)
        near = neighbors(need.pattern)
        places = _places(self._comm, near)
        self._puts: list[Callable[[], object]] = [
            partial(self._window.Put, self._packed[each.sent], each.rank, int(places[each.rank]))
            for each in near
            if each.sent.stop > each.sent.start
        ]
        self._freed = False

    def start(self, x: NDArray[Any]) -> None:
        """Collective: all ranks wait for all, and then put."""
        self._pack(x)
        self._window.Fence(MPI.MODE_NOPRECEDE)
        self._put()

    def fill(self, x: NDArray[Any]) -> None:
        """Local. Copy ``x`` to the owned part of the local vector, where nobody puts."""
        self._local[: self.n_own] = x

    def finish(self) -> NDArray[Any]:
        """Collective. The local vector, when the ghosts of all ranks are there."""
        self._window.Fence(MPI.MODE_NOSUCCEED)
        return self._local

    def Free(self) -> None:
        """Collective. Give the window back; a second time has no effect."""
        if self._freed:
            return
        self._freed = True
        self._puts, self._local = [], self._local[:0].copy()
        self._window.Free()
        self._comm.Free()

    def _put(self) -> None:
        """Local. Give every neighbor what it needs."""
        for put in self._puts:
            put()


def _window(
    comm: MPI.Intracomm, count: int, dtype: np.dtype[Any]
) -> tuple[MPI.Win, NDArray[Any]]:
    """Collective. A window with the local vector."""
    room = max(1, count)
    window = MPI.Win.Allocate(room * dtype.itemsize, dtype.itemsize, comm=comm)
    unified = comm.allreduce(window.Get_attr(MPI.WIN_MODEL) == MPI.WIN_UNIFIED, op=MPI.LAND)
    if not unified:
        window.Free()
        comm.Free()
        raise UnsupportedError("windows of this MPI have not the unified memory model")
    memory: Any = window.tomemory()
    local: NDArray[Any] = np.frombuffer(memory, dtype, room)[:count]
    local[:] = 0
    comm.Barrier()  # nobody puts before all have cleared their memory
    return window, local


def _places(comm: MPI.Intracomm, near: list[Neighbor]) -> NDArray[np.int64]:
    """Collective. For every rank the element of its local vector where this one's entries go."""
    mine = np.zeros(comm.size, np.int64)
    for each in near:
        mine[each.rank] = each.ghosts.start
    places = np.empty_like(mine)
    comm.Alltoall(mine, places)
    return places
