"""Fields of a :class:`~onesided.collectives.Grid` and distributed arrays: from one to the other,
and to and from files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives import Alltoallw_init, Grid
from onesided.collectives.agreement import agreed, words_of_all
from onesided.collectives.context import Context, Scoped
from onesided.collectives.errors import PatternError
from onesided.collectives.pattern import Box
from onesided.pencilfft.distarray import DistArray


class GridTransfer(Scoped):
    """The way between a field, without its ghosts, and a distributed array of the same shape.

    Both are bound, and either way is one persistent request: :meth:`to_array`, :meth:`to_field`.
    """

    def __init__(
        self, grid: Grid, field: NDArray[Any], array: DistArray, *, method: str = "rma-p2p"
    ) -> None:
        """Collective over the grid's ranks, which are those of the array. ``method`` as for
        :func:`~onesided.collectives.Alltoallw_init`.

        Raises :class:`PatternError` on every rank where shapes, components or dtypes differ.
        """
        comm, lead = Context.of(grid.comm).comm, field.ndim - len(grid.shape)
        shape = grid.global_shape(field)
        with agreed(comm, "GridTransfer"):
            forms = [(shape[:lead], shape[lead:], field.dtype),
                     (array.shape[: array.rank], array.global_shape[array.rank :], array.dtype)]
            if forms[0] != forms[1]:
                raise PatternError(f"a field of {forms[0]} and a distributed array of {forms[1]}")
        whole = tuple(slice(0, n) for n in shape[:lead])
        mine: Box = tuple(array.local_slice()[array.rank :])
        corners = words_of_all(2 * len(mine) * comm.size, np.int64)
        comm.Allgather(np.array([(part.start, part.stop) for part in mine], np.int64), corners)
        theirs: list[Box] = [
            tuple(slice(*ends) for ends in box)
            for box in corners.reshape(comm.size, -1, 2).tolist()
        ]
        parts = [grid.part(rank, shape)[lead:] for rank in range(comm.size)]
        origins = [low for low, _ in grid.layers]
        out = [_common(parts[comm.rank], box, whole, origins) for box in theirs]
        into = [_common(mine, part, whole, [0] * len(mine)) for part in parts]
        block = array.v
        self.field, self.array = field, array
        self._there = Alltoallw_init(grid.comm, [field, out], [block, into], method=method)
        self._back = Alltoallw_init(grid.comm, [block, into], [field, out], method=method)

    def to_array(self) -> DistArray:
        """Collective in the sense of MPI. Fill the distributed array from the field."""
        self._there.Start()
        self._there.Wait()
        return self.array

    def to_field(self) -> NDArray[Any]:
        """Collective in the sense of MPI. Fill what ranks own of the field, not its ghosts."""
        self._back.Start()
        self._back.Wait()
        return self.field

    def Free(self) -> None:
        """Collective. Give both requests back."""
        self._there.Free()
        self._back.Free()


def _common(one: Box, other: Box, lead: Box, origins: list[int]) -> Box | None:
    """What two boxes share, in the indices of an array that shows the first from ``origins`` on."""
    box = []
    for mine, theirs, origin in zip(one, other, origins, strict=True):
        start, stop = max(mine.start, theirs.start), min(mine.stop, theirs.stop)
        if start >= stop:
            return None
        box.append(slice(start - mine.start + origin, stop - mine.start + origin))
    return (*lead, *box)


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
    from onesided.pencilfft.io.hdf5 import HDF5File

    file = filename if isinstance(filename, HDF5File) else HDF5File(filename)
    file.write(step, {name: [_Owned.of(grid, field)]}, attributes=attributes)


def read_field(
    grid: Grid, field: NDArray[Any], filename: Any, name: str = "field", step: int = 0
) -> None:
    """Collective. Fill what ranks own of a field from an :class:`HDF5File`, or from the file of
    this name, whoever has written it."""
    from onesided.pencilfft.io.hdf5 import HDF5File

    own = _Owned.of(grid, field)
    file = filename if isinstance(filename, HDF5File) else HDF5File(filename, mode="r")
    file.read(own, name, step)
    field[grid.owned] = own
