"""Fields of a :class:`~onesided.collectives.Grid` and distributed arrays: from one to the other,
and to and from files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives import Grid
from onesided.collectives.agreement import agreed
from onesided.collectives.context import Scoped
from onesided.collectives.errors import PatternError, RequestError
from onesided.collectives.pattern import Box
from onesided.pencilfft.distarray import DistArray
from onesided.pencilfft.io.hdf5 import HDF5File
from onesided.pencilfft.redistribution import METHOD, between


class GridTransfer(Scoped):
    """The way between a field, without its ghosts, and a distributed array of the same shape.

    Both are bound; what it needs is kept with the communicator of the grid, as of
    :func:`redistribute`.
    """

    def __init__(
        self, grid: Grid, field: NDArray[Any], array: DistArray, *, method: str = METHOD
    ) -> None:
        """Collective over the grid's ranks, which are those of the array. ``method`` as for
        :func:`~onesided.collectives.Alltoallw_init`.

        Raises :class:`PatternError` on every rank where shapes, components or dtypes differ.
        """
        shape, comm = grid.global_shape(field), grid.comm
        lead = field.ndim - len(grid.shape)
        with agreed(comm, "GridTransfer"):
            forms = [(shape[:lead], shape[lead:], field.dtype),
                     (array.shape[: array.rank], array.global_shape[array.rank :], array.dtype)]
            if forms[0] != forms[1]:
                raise PatternError(f"a field of {forms[0]} and a distributed array of {forms[1]}")
        self.field, self.array = field, array
        self._ends: tuple[NDArray[Any], NDArray[Any]] | None = (field[grid.owned], array.v)
        here, there = grid.part(comm.rank, shape), array.local_slice()
        self._found = between(comm, field.dtype, here, there, method, user=self)

    def to_array(self) -> DistArray:
        """Collective. Fill the distributed array from the field."""
        self._move(True)
        return self.array

    def to_field(self) -> NDArray[Any]:
        """Collective. Fill what ranks own of the field, not its ghosts."""
        self._move(False)
        return self.field

    def _move(self, forward: bool) -> None:
        if self._ends is None or (self._found is not None and self._found.freed):
            raise RequestError("a transfer that was freed cannot be used")
        source, target = self._ends if forward else self._ends[::-1]
        if self._found is None:
            target[...] = source
        else:
            self._found(forward, source, target)

    def Free(self) -> None:
        """Local. What it needed stays with the communicator for the next one; twice is once."""
        if self._found is not None:
            self._found.users.discard(self)
        self._found = self._ends = None


class _Owned(np.ndarray[Any, Any]):
    """What a rank owns of a field, a copy, as files want a distributed array: ``rank`` axes of
    components, the shape of the global array, and its place there."""

    comm: MPI.Intracomm
    rank: int
    global_shape: tuple[int, ...]
    place: Box

    @classmethod
    def of(cls, grid: Grid, field: NDArray[Any]) -> _Owned:
        """Collective."""
        shape = grid.global_shape(field)
        self = np.array(field[grid.owned], order="C").view(cls)
        self.comm, self.rank, self.global_shape = grid.comm, len(shape) - len(grid.shape), shape
        self.place = grid.part(grid.comm.rank, shape)
        return self

    def local_slice(self) -> Box:
        """Local."""
        return self.place


def write_field(
    grid: Grid,
    field: NDArray[Any],
    filename: Any,
    name: str = "field",
    step: int = 0,
    attributes: Mapping[str, Any] | None = None,
) -> None:
    """Collective. Write a field without its ghosts as a step of an :class:`HDF5File`, or of the
    file of this name; ``attributes`` are stored with it."""
    file = filename if isinstance(filename, HDF5File) else HDF5File(filename)
    file.write(step, {name: [_Owned.of(grid, field)]}, attributes=attributes)


def read_field(
    grid: Grid, field: NDArray[Any], filename: Any, name: str = "field", step: int = 0
) -> None:
    """Collective. Fill what ranks own of a field from an :class:`HDF5File`, or from the file of
    this name, whoever has written it."""
    own = _Owned.of(grid, field)
    file = filename if isinstance(filename, HDF5File) else HDF5File(filename, mode="r")
    file.read(own, name, step)
    field[grid.owned] = own
