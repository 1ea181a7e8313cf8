"""Pencils with communicators: which block this rank has, and whom it shares an axis with.

The names, arguments and attributes are those of mpi4py-fft; the arithmetic is
:class:`~onesided.pencilfft.decomposition.PencilGeometry`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from operator import index
from typing import Any, Self

import numpy as np
from mpi4py import MPI
from numpy.typing import DTypeLike

from onesided.collectives.agreement import agree, agreed
from onesided.collectives.context import Context
from onesided.collectives.errors import PatternError, RequestError, UnsupportedError
from onesided.pencilfft.decomposition import PencilGeometry, balanced
from onesided.pencilfft.redistribution import Transfer


class Communicators(tuple[MPI.Comm, ...]):
    """Local. One communicator per array axis, borrowed: whoever made them frees them.

    :attr:`comm` is the communicator of all ranks of the process grid. Any tuple of
    sub-communicators that :class:`Subcomm` made leads to it, in any order.
    """

    _keyval = MPI.KEYVAL_INVALID

    @property
    def comm(self) -> MPI.Intracomm:
        """The communicator of all ranks of the process grid; borrowed.

        Raises UnsupportedError where several communicators come from elsewhere and do not make up
        the world, RequestError where it has been freed.
        """
        split = [comm for comm in self if comm.size > 1]
        for comm in split:
            whole = self._whole(comm)
            if whole is not None:
                return whole
        if len(split) < 2:
            return split[0] if split else MPI.COMM_SELF  # type: ignore[return-value]
        size = prod(comm.size for comm in split)
        if size != MPI.COMM_WORLD.size:
            raise UnsupportedError(
                f"no communicator of all {size} ranks is known for a process grid of "
                f"{[comm.size for comm in self]}; make its communicators with Subcomm"
            )
        return MPI.COMM_WORLD

    @classmethod
    def _whole(cls, comm: MPI.Comm) -> MPI.Intracomm | None:
        """The communicator that ``comm`` is a part of, as its maker noted it."""
        if cls._keyval == MPI.KEYVAL_INVALID:
            return None
        whole = comm.Get_attr(cls._keyval)
        if not isinstance(whole, MPI.Intracomm):
            return None
        if whole == MPI.COMM_NULL:
            raise RequestError("the communicator of the process grid has been freed")
        return whole

    @classmethod
    def _note(cls, comm: MPI.Comm, whole: MPI.Intracomm) -> None:
        if Communicators._keyval == MPI.KEYVAL_INVALID:
            Communicators._keyval = MPI.Comm.Create_keyval()
        comm.Set_attr(Communicators._keyval, whole)


def near(comm: MPI.Intracomm, ranks_per_node: int | None = None) -> int:
    """Collective on the first call. How many consecutive ranks are a node, 0 where nodes are not
    alike, or where there is only one."""
    firsts = Context.of(comm).node(ranks_per_node).firsts
    count = int(np.count_nonzero(firsts == firsts[0]))
    alike = np.array_equal(firsts, np.arange(len(firsts)) // count * count)
    return count if alike and count < len(firsts) else 0


class Subcomm(Communicators):
    """Collective over ``comm``. The sub-communicators of a process grid, one per array axis.

    Axes of size 1 get MPI.COMM_SELF. The others are owned by this object until :meth:`destroy`.
    Raises PatternError on every rank where the grid does not fit the number of ranks.

    Parameters
    ----------
    comm
        Communicator of all ranks of the grid. One with a Cartesian topology is taken as the grid
        it is, unless ``dims`` are given.
    dims
        Sizes of the grid, free ones 0; an integer for so many free ones; None for one.
    reorder
        Whether MPI may place the ranks on the grid as suits the machine.

    Examples
    --------
    >>> len(Subcomm(comm, 2))  # one for each of two axes
    2
    """

    def __new__(
        cls, comm: MPI.Intracomm, dims: int | Sequence[int] | None = None, reorder: bool = True
    ) -> Self:
        if not isinstance(comm, MPI.Intracomm):
            raise UnsupportedError(f"comm is a {type(comm).__name__}, not an intracommunicator")
        with agreed(comm, "Subcomm"):
            grid = _grid(comm, dims)
        given = dims is None and comm.Get_topology() == MPI.CART
        agree(comm, what=f"Subcomm of {grid}{', which is there' * given}")
        cartesian: Any = comm
        if not given:
            cartesian = comm.Create_cart(grid, reorder=reorder)
        parts: list[MPI.Comm] = []
        for axis, size in enumerate(grid):
            if size == 1:
                parts.append(MPI.COMM_SELF)
                continue
            parts.append(cartesian.Sub([other == axis for other in range(len(grid))]))
            cls._note(parts[-1], comm)
        if cartesian is not comm:
            cartesian.Free()
        return super().__new__(cls, parts)

    def destroy(self) -> None:
        """Collective. Free the communicators; a second call does nothing."""
        for comm in self:
            if comm not in (MPI.COMM_NULL, MPI.COMM_SELF):
                comm.Free()


def _grid(comm: MPI.Intracomm, dims: int | Sequence[int] | None) -> tuple[int, ...]:
    """The sizes of the grid axes."""
    if dims is None and comm.Get_topology() == MPI.CART:
        cartesian: Any = comm
        sizes = tuple(int(size) for size in cartesian.dims)
        if not sizes:
            raise PatternError("the Cartesian communicator has no axis")
        return sizes
    try:
        if dims is None or not isinstance(dims, Iterable):
            free = [0] * (1 if dims is None else index(dims))
        else:
            free = [max(0, index(part)) for part in dims]
    except TypeError as error:
        raise PatternError(f"dims {dims!r} is neither an integer nor a sequence of them") from error
    if not free:
        raise PatternError(f"dims {dims!r} hold no axis")
    return balanced(comm.size, free)


class Pencil:
    """Local. This rank's block of a global array, whole along ``axis``, with its communicators.

    Parameters
    ----------
    subcomm
        A :class:`Subcomm`, or communicators in any sequence: those over which each array axis is
        split. Where there are fewer of them than axes, the last ones are not split, nor is
        ``axis``.
    shape
        Of the global array. Axes may be shorter than their communicator has ranks; ranks without
        indices have empty blocks.
    axis
        The axis along which the block is whole.

    Raises PatternError, locally, where they do not fit each other.

    Examples
    --------
    >>> pencil = Pencil(Subcomm(comm, 2), (8, 6), axis=1)
    >>> pencil.subshape[1]
    6
    """

    def __init__(self, subcomm: Sequence[MPI.Comm], shape: Sequence[int], axis: int = -1) -> None:
        lengths, comms = tuple(index(n) for n in shape), list(subcomm)
        ndim = len(lengths)
        if not lengths or min(lengths) < 0:
            raise PatternError(f"shape {lengths} is that of no array")
        if not -ndim <= axis < ndim:
            raise PatternError(f"axis {axis} does not exist in {ndim} dimensions")
        if not 1 <= len(comms) <= ndim:
            raise PatternError(f"{len(comms)} communicators do not fit {ndim} dimensions")
        axis = index(axis) % ndim
        if len(comms) < ndim:
            comms += [MPI.COMM_SELF] * (ndim - 1 - len(comms))
            comms.insert(axis, MPI.COMM_SELF)
        if MPI.COMM_NULL in comms:
            raise PatternError("a communicator of the pencil is null or has been freed")
        self._set(
            PencilGeometry(
                lengths,
                tuple(comm.size for comm in comms),
                tuple(comm.rank for comm in comms),
                tuple(range(ndim)),
                axis,
            ),
            comms,
        )

    @classmethod
    def of(cls, geometry: PencilGeometry, subcomm: Iterable[MPI.Comm]) -> Self:
        """Local. From a geometry, and the communicator over which each array axis is split."""
        self = cls.__new__(cls)
        self._set(geometry, subcomm)
        return self

    def _set(self, geometry: PencilGeometry, subcomm: Iterable[MPI.Comm]) -> None:
        #: Which part of the global array this is.
        self.geometry = geometry
        #: The communicator over which each array axis is split; borrowed.
        self.subcomm = Communicators(subcomm)
        #: Shape of the global array, and the axis along which the block is whole.
        self.shape, self.axis = geometry.shape, geometry.axis
        #: Local shape, and first global index of the block on each axis.
        self.subshape, self.substart = geometry.subshape, geometry.substart

    @property
    def comm(self) -> MPI.Intracomm:
        """The communicator of all ranks that hold a part; see :class:`Communicators`."""
        return self.subcomm.comm

    def local_slice(self) -> tuple[slice, ...]:
        """Local. The block as slices of the global array."""
        return self.geometry.local_slice()

    def pencil(self, axis: int) -> Pencil:
        """Local. The pencil that is whole along ``axis`` and split over its communicator here."""
        ndim = len(self.shape)
        if not -ndim <= axis < ndim:
            raise PatternError(f"axis {axis} does not exist in {ndim} dimensions")
        comms, to = list(self.subcomm), index(axis) % ndim
        comms[self.axis], comms[to] = comms[to], comms[self.axis]
        return Pencil.of(self.geometry.pencil(to), comms)

    def transfer(
        self,
        pencil: Pencil,
        dtype: DTypeLike,
        components: Sequence[int] = (),
        **how: Any,
    ) -> Transfer:
        """Local. The redistribution from this pencil to ``pencil`` and back, of arrays that have
        these ``components`` before its axes.

        The two are whole along different axes and split alike along all others; PatternError
        where they are not. ``method`` and ``info`` as in :class:`Transfer`.
        """
        if self.shape != pencil.shape or self.axis == pencil.axis:
            raise PatternError(
                f"no transfer leads from {self!r} to {pencil!r}: they must have the same global "
                "shape and be whole along different axes"
            )
        expected = self.pencil(pencil.axis)
        if tuple(expected.subcomm) != tuple(pencil.subcomm):
            raise PatternError(
                f"no single transfer leads from {self!r} to {pencil!r}: they must be split over "
                "the same communicators along all other axes"
            )
        lead, shape = tuple(components), list(self.subshape)
        shape[pencil.axis] = self.shape[pencil.axis]
        return Transfer(
            self.subcomm[pencil.axis], (*lead, *shape), dtype,
            lead + self.subshape, len(lead) + self.axis,
            lead + pencil.subshape, len(lead) + pencil.axis, **how,
        )  # fmt: skip

    def __repr__(self) -> str:
        parts = tuple(self.geometry.parts(axis) for axis in range(len(self.shape)))
        return f"<pencil of {self.shape} along axis {self.axis}, split by {parts}>"
