"""MPI_Put between two fences, into a window that MPI allocates: MiniMD as in paper 002.

The paper has a thread for every neighbor, which is ``fence-threads`` here. The fences are those of
the main thread.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.minimd.ways.link import Counts, Line, Link, Pair
from onesided.apps.team import Team
from onesided.collectives import ResourceError, UnsupportedError, agree

ITEM = MPI.DOUBLE.Get_size()


class Fence(Link):
    """Collective. The opening fence waits until nobody reads any more what came before."""

    def __init__(self, line: Line) -> None:
        super().__init__(line)
        self._window = _allocate(line)
        memory: NDArray[np.float64] = np.asarray(self._window.tomemory()).view(np.float64)
        memory[:] = 0.0
        self._into = line.sides(memory)
        self._window.Fence(MPI.MODE_NOPRECEDE)

    def exchange(self, sent: Counts, received: Counts) -> Pair:
        """Collective over the line."""
        self._window.Fence(0)
        self._put(sent)
        self._window.Fence(0)
        return self._into

    def free(self) -> None:
        """Collective over the line."""
        self._into = (np.empty(0), np.empty(0))
        self._window.Fence(MPI.MODE_NOSUCCEED)
        self._window.Free()

    def _put(self, sent: Counts) -> None:
        for side in range(2):
            self._put_one(side, sent[side])

    def _put_one(self, side: int, count: int) -> None:
        """What goes to the lower neighbor comes there from the higher one."""
        place = (1 - side) * self.line.room
        self._window.Put(
            [self.out[side], count, MPI.DOUBLE],
            self.line.neighbors[side],
            [place, count, MPI.DOUBLE],
        )


class ThreadedFence(Fence):
    """Collective. Every neighbor has a thread, which is made now and ended by ``free``."""

    def __init__(self, line: Line) -> None:
        level = MPI.Query_thread()
        if level < MPI.THREAD_MULTIPLE:
            raise UnsupportedError("a thread for every neighbor needs MPI_THREAD_MULTIPLE")
        super().__init__(line)
        self._team = Team(2)

    def _put(self, sent: Counts) -> None:
        self._team.run([partial(self._put_one, side, sent[side]) for side in range(2)])

    def free(self) -> None:
        """Collective over the line."""
        self._team.close()
        super().free()


def _allocate(line: Line) -> MPI.Win:
    """Collective. :class:`ResourceError` on all ranks where one has no window."""
    error = None
    window = MPI.WIN_NULL
    try:
        window = MPI.Win.Allocate(2 * line.room * ITEM, ITEM, comm=line.comm)
    except MPI.Exception as failure:
        error = ResourceError(f"no window of {2 * line.room * ITEM} bytes: {failure}")
    agree(line.comm, error, "window of ghost atoms")
    return window
