"""Fields of a :class:`~onesided.collectives.Grid` to and from files of distributed arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives import Grid
from onesided.collectives.pattern import Box
from onesided.pencilfft.io.hdf5 import HDF5File


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
    file of this name; ``attributes`` are stored with it.

    Examples
    --------
    >>> import tempfile
    >>> folder = comm.bcast(tempfile.mkdtemp())
    >>> from onesided.collectives import Grid
    >>> with Grid(comm, (4, 4)) as grid:
    ...     u = grid.empty()
    ...     u[grid.owned] = 3.0
    ...     write_field(grid, u, f"{folder}/grid.h5")
    ...     u[grid.owned] = 0.0
    ...     read_field(grid, u, f"{folder}/grid.h5")
    ...     bool((u[grid.owned] == 3).all())
    True
    """
    file = filename if isinstance(filename, HDF5File) else HDF5File(filename)
    file.write(step, {name: [_Owned.of(grid, field)]}, attributes=attributes)


def read_field(
    grid: Grid, field: NDArray[Any], filename: Any, name: str = "field", step: int = 0
) -> None:
    """Collective. Fill what ranks own of a field from an :class:`HDF5File`, or from the file of
    this name, whoever has written it.

    Examples
    --------
    >>> import tempfile
    >>> folder = comm.bcast(tempfile.mkdtemp())
    >>> from onesided.collectives import Grid
    >>> with Grid(comm, (4, 4)) as grid:
    ...     u = grid.empty()
    ...     u[grid.owned] = 3.0
    ...     write_field(grid, u, f"{folder}/grid.h5")
    ...     u[grid.owned] = 0.0
    ...     read_field(grid, u, f"{folder}/grid.h5")
    ...     bool((u[grid.owned] == 3).all())
    True
    """
    own = _Owned.of(grid, field)
    file = filename if isinstance(filename, HDF5File) else HDF5File(filename, mode="r")
    file.read(own, name, step)
    field[grid.owned] = own
