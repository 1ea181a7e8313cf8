"""Memory of every rank that others put ghosts to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.mini.halos.halo import Neighbor
from onesided.collectives import OnesidedError, ResourceError, UnsupportedError, agree


class Landing:
    """A window of so many elements on each rank, in a communicator of its own, 0 at first.

    ``memory`` has those of this rank; who keeps views of it lets them go before ``free``.
    """

    def __init__(self, comm: MPI.Intracomm, count: int, dtype: np.dtype[Any]) -> None:
        """Collective. ``ResourceError`` on every rank where one has no memory for a window.

        ``UnsupportedError`` where the two copies of a window are not one: a rank reads and writes
        some elements while others come.
        """
        self.comm = comm.Dup()
        self.window = MPI.WIN_NULL
        self.memory: NDArray[Any] = np.empty(0, dtype)
        try:
            self.window = _allocated(self.comm, max(1, count) * dtype.itemsize, dtype.itemsize)
            _check_model(self.comm, self.window)
        except OnesidedError:  # the same on every rank
            self.free()
            raise
        memory: Any = self.window.tomemory()
        self.memory = np.frombuffer(memory, dtype, max(1, count))[:count]
        self.memory[:] = 0

    def places(self, near: list[Neighbor], shift: int = 0) -> Mapping[int, int]:
        """Collective. By neighbor, the element of its window where this rank's entries go.

        ``shift``: where the ghosts begin, on this rank.
        """
        mine = np.zeros(self.comm.size, np.int64)
        for each in near:
            mine[each.rank] = each.ghosts.start + shift
        found = np.empty_like(mine)
        self.comm.Alltoall(mine, found)
        return {each.rank: int(found[each.rank]) for each in near}

    def free(self) -> None:
        """Collective."""
        if self.window != MPI.WIN_NULL:
            self.memory = self.memory[:0].copy()
            self.window.Free()
        self.comm.Free()


def _allocated(comm: MPI.Intracomm, nbytes: int, item: int) -> MPI.Win:
    """Collective."""
    window, error = MPI.WIN_NULL, None
    try:
        window = MPI.Win.Allocate(nbytes, item, comm=comm)
    except MPI.Exception as failure:
        error = ResourceError(f"no window of {nbytes} bytes: {failure.Get_error_string()}")
    agree(comm, error)
    return window


def _check_model(comm: MPI.Intracomm, window: MPI.Win) -> None:
    """Collective."""
    error = None
    if window.Get_attr(MPI.WIN_MODEL) != MPI.WIN_UNIFIED:
        error = UnsupportedError("windows of this MPI have not the unified memory model")
    agree(comm, error)
