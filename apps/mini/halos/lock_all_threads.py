"""Ghosts by Put, with MPI_Win_lock_all, MPI_Win_unlock_all and one thread for every neighbor.

This is how the paper on multi-threaded one-sided communication changed HPCCG: every thread drives
the traffic to its neighbor only, by a Put of what the original sends there; the thread that
computes synchronises the window. The threads are made once, before anything is timed.

The paper does not say how a rank learns that its ghosts are there. Here all ranks meet in a barrier
after MPI_Win_unlock_all, which has completed the Puts at their targets. The window has room for the
ghosts of two rounds, used in turn: who writes to one of them again has left the barrier of the
round between, which its owner entered after reading. So one barrier a round is enough. From there
the ghosts, a small part of the vector, are copied beside the owned entries.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.mini.halos.halo import Need, Neighbor, Packed, neighbors
from onesided.apps.partitioned.team import Team, Work
from onesided.collectives import UnsupportedError, agreed
from onesided.sparse import HaloPattern

SLOTS = 2
LEVELS = {
    MPI.THREAD_SINGLE: "MPI_THREAD_SINGLE",
    MPI.THREAD_FUNNELED: "MPI_THREAD_FUNNELED",
    MPI.THREAD_SERIALIZED: "MPI_THREAD_SERIALIZED",
}


class LockAllThreads(Packed):
    """Collective. ``UnsupportedError`` on every rank where threads may not call this MPI.

    An epoch is open from the making on, and the next one is opened where one ends, so that
    MPI_Win_sync can be called before ghosts are read (MPI-4.1 section 12.5.4).
    """

    label = ""

    def __init__(self, need: Need) -> None:
        super().__init__(need)
        check_threads(need.comm)
        self._comm = need.comm.Dup()
        self._local: NDArray[Any] = np.zeros(need.pattern.n_local, need.dtype)
        count = len(need.pattern.ghosts)
        self._window, self._slots = _window(self._comm, count, need.dtype)
        near = neighbors(need.pattern)
        places = _places(self._comm, need.pattern, near)
        targets = [each for each in near if each.sent.stop > each.sent.start]
        self._works = [self._slot_works(targets, places, slot) for slot in range(SLOTS)]
        self._team = Team(1 + len(targets))
        self._slot = 0
        self._freed = False
        self._comm.Barrier()  # nobody puts before all have cleared their memory
        self._window.Lock_all()
        self._window.Sync()

    def _slot_works(
        self, targets: list[Neighbor], places: NDArray[np.int64], slot: int
    ) -> list[Work]:
        """Local. What the calling thread and those of the neighbors do in a round."""
        puts: list[Work] = [
            partial(self._put, self._packed[each.sent], each.rank, int(places[each.rank, slot]))
            for each in targets
        ]
        return [time.perf_counter, *puts]

    def _put(self, part: NDArray[Any], rank: int, place: int) -> float:
        """Local. The work of one thread; returns when it has ended, by the clock."""
        self._window.Put(part, rank, place)
        return time.perf_counter()

    def start(self, x: NDArray[Any]) -> None:
        """Local in the sense of MPI. Returns when all threads have called Put."""
        self._pack(x)
        self._slot = 1 - self._slot
        self._team.run(self._works[self._slot])

    def fill(self, x: NDArray[Any]) -> None:
        """Local. Copy ``x`` to the owned part of the local vector."""
        self._local[: self.n_own] = x

    def finish(self) -> NDArray[Any]:
        """Collective. The local vector, when the ghosts are there: all ranks wait for all."""
        window = self._window
        window.Unlock_all()
        self._comm.Barrier()
        window.Lock_all()
        window.Sync()
        self._local[self.n_own :] = self._slots[self._slot]
        return self._local

    def Free(self) -> None:
        """Collective. End the threads, then give the window back; once more has no effect."""
        if self._freed:
            return
        self._freed = True
        self._team.close()
        self._works, self._slots = [], []
        self._window.Unlock_all()
        self._window.Free()
        self._comm.Free()


def check_threads(comm: MPI.Intracomm) -> None:
    """Collective. ``UnsupportedError`` on every rank where one has too low a thread level."""
    with agreed(comm):
        level = MPI.Query_thread()
        if level < MPI.THREAD_MULTIPLE:
            raise UnsupportedError(
                "a thread for every neighbor needs MPI_THREAD_MULTIPLE, this MPI runs with "
                f"{LEVELS.get(level, level)}"
            )


def _window(
    comm: MPI.Intracomm, count: int, dtype: np.dtype[Any]
) -> tuple[MPI.Win, list[NDArray[Any]]]:
    """Collective. A window with room for the ghosts of two rounds, and the two parts of it.

    ``UnsupportedError`` on every rank where the two copies of a window are not one: a rank reads
    the ghosts of one round while those of the next may come.
    """
    room = max(1, SLOTS * count)
    window = MPI.Win.Allocate(room * dtype.itemsize, dtype.itemsize, comm=comm)
    unified = comm.allreduce(window.Get_attr(MPI.WIN_MODEL) == MPI.WIN_UNIFIED, op=MPI.LAND)
    if not unified:
        window.Free()
        comm.Free()
        raise UnsupportedError("windows of this MPI have not the unified memory model")
    memory: Any = window.tomemory()
    ghosts: NDArray[Any] = np.frombuffer(memory, dtype, room)
    ghosts[:] = 0
    return window, [ghosts[slot * count : (slot + 1) * count] for slot in range(SLOTS)]


def _places(comm: MPI.Intracomm, pattern: HaloPattern, near: list[Neighbor]) -> NDArray[np.int64]:
    """Collective. For every rank the elements of its window where this one's entries go."""
    count = len(pattern.ghosts)
    mine = np.zeros((comm.size, SLOTS), np.int64)
    for each in near:
        mine[each.rank] = each.ghosts.start - pattern.n_own + count * np.arange(SLOTS)
    places = np.empty_like(mine)
    comm.Alltoall(mine, places)
    return places
