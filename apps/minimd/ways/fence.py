"""MPI_Put between two fences, into a window that MPI allocates."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.minimd.sides import SIDES, Counts, Pair
from onesided.apps.minimd.ways.link import Line, Link
from onesided.collectives import ResourceError, agree

ITEM = MPI.DOUBLE.Get_size()


class Fence(Link):
    """Collective. The opening fence waits until nobody reads any more what came before."""

    def __init__(self, line: Line) -> None:
        super().__init__(line)
        self._window = _allocate(line)
        memory: NDArray[np.float64] = np.asarray(self._window.tomemory()).view(np.float64)
        memory[:] = 0.0
        self._into = line.sides(memory)
        self._sent: Counts = (0, 0)
        self._puts: list[Callable[[], object]] = [self._put_of(side, 0) for side in SIDES]
        self._window.Fence(MPI.MODE_NOPRECEDE)

    def exchange(self, sent: Counts, received: Counts) -> Pair:
        """Collective over the line."""
        if sent != self._sent:
            self._sent = sent
            self._puts[:] = [self._put_of(side, sent[side]) for side in SIDES]
        self._window.Fence(0)
        self._put()
        self._window.Fence(0)
        return self._into

    def free(self) -> None:
        """Collective over the line."""
        self._into, self._puts = (np.empty(0), np.empty(0)), []
        self._window.Fence(MPI.MODE_NOSUCCEED)
        self._window.Free()

    def _put(self) -> None:
        """Local. Returns when Put has been called for both sides."""
        for put in self._puts:
            put()

    def _put_of(self, side: int, count: int) -> Callable[[], object]:
        """Local. The call for one side: what goes to the lower neighbor comes there from the
        higher one."""
        place = (1 - side) * self.line.room
        return partial(
            self._window.Put,
            [self.out[side], count, MPI.DOUBLE],
            self.line.neighbors[side],
            [place, count, MPI.DOUBLE],
        )


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
