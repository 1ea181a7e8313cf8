"""Arrays of which every rank holds its block."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from numbers import Integral
from operator import index
from typing import Any, Self

import numpy as np
from mpi4py import MPI
from numpy.typing import DTypeLike, NDArray

from onesided.collectives.agreement import agree, agreed
from onesided.collectives.errors import PatternError, UnsupportedError
from onesided.pencilfft.decomposition import (
    PencilGeometry,
    block_of,
    choose_grid,
    on_nodes,
)
from onesided.pencilfft.io import npy
from onesided.pencilfft.io.filebase import FileBase, gathered
from onesided.pencilfft.io.hdf5 import HDF5File
from onesided.pencilfft.io.netcdf import NCFile
from onesided.pencilfft.io.selection import Selection
from onesided.pencilfft.pencil import Pencil, Subcomm, near
from onesided.pencilfft.redistribution import Transfer, between, prepared


class DistArray(np.ndarray[Any, np.dtype[Any]]):
    """This rank's block of a distributed array, an ndarray in plain memory.

    Collective over the communicator where it has to make communicators (``subcomm`` is None or a
    sequence of integers), else local. Operations are local, as those of any ndarray are:
    ``u.sum()`` is the sum of the block. Dropping an array needs nothing collective.

    Parameters
    ----------
    global_shape
        Shape of the global array, with the component axes of a tensor first.
    subcomm
        A :class:`Subcomm` or tuple of communicators, one per distributed axis; or grid sizes for
        the ranks of MPI.COMM_WORLD, free ones 0; None splits all axes but ``alignment``, as a
        plan does that is given no grid.
    val
        Number to fill the block with; None leaves it uninitialized.
    dtype
        Of the elements.
    buffer, strides
        Memory to use instead of new memory, as in :class:`numpy.ndarray`.
    alignment
        The distributed axis along which blocks are whole; the last one that is not split where
        None.
    rank
        Tensor rank: so many leading axes count components and are not distributed.

    An index that picks components keeps the DistArray; any other index gives an ndarray, because
    a part of a block is nobody's block. One-dimensional arrays are whole on every rank, unless
    they come from a plan. Arguments and attributes are those of mpi4py-fft. Raises PatternError
    where the arguments do not fit each other.

    Examples
    --------
    >>> u = DistArray((8, 6), [0, 1], val=1.0)
    >>> u.global_shape
    (8, 6)
    >>> float(comm.allreduce(u.sum()))
    48.0
    """

    _p0: Any = None  # Pencil or PencilGeometry; subclasses of others' making set these two
    _rank: int = 0

    def __new__(
        cls,
        global_shape: Sequence[int],
        subcomm: Sequence[MPI.Comm] | Sequence[int] | None = None,
        val: Any = None,
        dtype: DTypeLike = float,
        buffer: Any = None,
        strides: Sequence[int] | None = None,
        alignment: int | None = None,
        rank: int = 0,
    ) -> Self:
        shape = tuple(index(n) for n in global_shape)
        if not 0 <= rank <= len(shape):
            raise PatternError(f"a tensor of rank {rank} and shape {shape} does not exist")
        pencil = None if len(shape) - rank < 2 else _pencil(shape[rank:], subcomm, alignment)
        local = shape if pencil is None else shape[:rank] + pencil.subshape
        self = np.ndarray.__new__(cls, local, dtype, buffer, 0, strides)
        if buffer is None and val is not None:
            np.ndarray.fill(self, val)
        self._p0, self._rank = pencil, rank
        return self

    @classmethod
    def of(
        cls,
        pencil: Pencil | PencilGeometry,
        dtype: DTypeLike = float,
        val: Any = None,
        components: Sequence[int] = (),
        order: Sequence[int] | None = None,
    ) -> Self:
        """Local. The block of a pencil; ``components`` are axes before it, not distributed.

        ``order`` is the order of its axes in memory, outermost first; C order where it is None.
        """
        shape = (*components, *pencil.subshape)
        axes = range(len(shape)) if order is None else order
        # memory of this class: the base of a plain view tells whose it is, as mpi4py-fft's does
        memory = np.ndarray.__new__(cls, [shape[axis] for axis in axes], dtype)
        self = np.ndarray.transpose(memory, np.argsort(axes))
        self._p0, self._rank = pencil, len(components)
        if val is not None:
            self.fill(val)
        return self

    @classmethod
    def over(cls, block: NDArray[Any], pencil: Pencil | PencilGeometry, rank: int) -> Self:
        """Local. A plain array as the block of a pencil, sharing memory."""
        self = block.view(cls)
        self._p0, self._rank = pencil, rank
        return self

    def __array_finalize__(self, array: NDArray[Any] | None) -> None:
        pencil = getattr(array, "_p0", None)
        if pencil is None:
            self._p0, self._rank = None, getattr(array, "_rank", 0)
            return
        rank = self.ndim - len(pencil.shape)
        block = rank >= 0 and self.shape[rank:] == pencil.subshape
        self._p0, self._rank = (pencil, rank) if block else (None, 0)

    def __array_wrap__(
        self, array: NDArray[Any], context: Any = None, return_scalar: bool = False
    ) -> Any:
        if return_scalar:
            return array[()]
        if context is None:  # a reduction: its extents may be those of the block on some ranks
            return array.view(np.ndarray)
        if isinstance(array, DistArray):
            return array
        wrapped = array.view(type(self))
        wrapped.__array_finalize__(self)
        return array if wrapped._p0 is None and self._p0 is not None else wrapped

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Local. What is pickled comes back as a plain ndarray: nobody's block."""
        return self.v.__reduce_ex__(protocol)

    def __getitem__(self, index: Any) -> Any:
        entries = index if isinstance(index, tuple) else (index,)
        components = 0 < len(entries) <= self._rank and all(
            isinstance(entry, Integral | slice) for entry in entries
        )
        return super().__getitem__(index) if components else self.v[index]

    @property
    def T(self) -> Any:
        """The block with its axes turned round, a plain ndarray: nobody's block."""
        return self.v.T

    def transpose(self, *axes: Any) -> Any:
        """Local. The block with its axes in another order, a plain ndarray."""
        return self.v.transpose(*axes)

    def swapaxes(self, axis1: Any, axis2: Any) -> Any:
        """Local. The block with two axes exchanged, a plain ndarray."""
        return self.v.swapaxes(axis1, axis2)

    @property
    def v(self) -> NDArray[Any]:
        """The block as a plain ndarray, sharing memory."""
        return self.view(np.ndarray)

    @property
    def pencil(self) -> Any:
        """Which part of the global array this is: a :class:`Pencil`."""
        if self._p0 is None:
            raise PatternError(f"an array of shape {self.shape} is no block of a pencil")
        return self._p0

    @property
    def rank(self) -> int:
        """Tensor rank: the number of leading axes that count components."""
        return self._rank

    @property
    def dimensions(self) -> int:
        """Number of distributed dimensions."""
        return len(self.pencil.shape)

    @property
    def alignment(self) -> int:
        """The distributed axis along which the blocks are whole, component axes not counted."""
        axis: int = self.pencil.axis
        return axis

    @property
    def global_shape(self) -> tuple[int, ...]:
        """Shape of the global array, with the component axes."""
        if self._p0 is None:
            return tuple(self.shape)
        return (*self.shape[: self._rank], *self.pencil.shape)

    @property
    def substart(self) -> tuple[int, ...]:
        """First global index of the block on each axis."""
        return (0,) * self._rank + tuple(self.pencil.substart)

    @property
    def subcomm(self) -> tuple[MPI.Comm, ...]:
        """The communicator over which each axis is split; borrowed."""
        return (MPI.COMM_SELF,) * self._rank + tuple(self._connected().subcomm)

    @property
    def commsizes(self) -> list[int]:
        """The number of ranks along each axis."""
        return [comm.size for comm in self.subcomm]

    @property
    def comm(self) -> MPI.Intracomm:
        """The communicator of all ranks that hold a part; borrowed, never freed by the array."""
        if self._p0 is None:
            return MPI.COMM_SELF
        return self._connected().comm

    def _connected(self) -> Pencil:
        pencil = self.pencil
        if not hasattr(pencil, "subcomm"):
            raise PatternError(f"an array of {pencil} knows no communicator")
        connected: Pencil = pencil
        return connected

    def local_slice(self) -> tuple[slice, ...]:
        """Local. The block as slices of the global array."""
        if self._p0 is None:
            return tuple(slice(0, n) for n in self.shape)
        return tuple(slice(0, n) for n in self.shape[: self._rank]) + block_of(self.pencil)

    def get_pencil_and_transfer(self, axis: int) -> tuple[Pencil, Transfer]:
        """Local. The pencil along ``axis``, and the transfer from this array's pencil to it."""
        pencil = self._connected()
        target = pencil.pencil(axis)
        return target, pencil.transfer(target, self.dtype)

    def redistribute(self, axis: int | None = None, out: DistArray | None = None) -> DistArray:
        """Collective. The same global array, in blocks that are whole along ``axis``.

        ``out`` takes it and says the axis where that is None; else a new array is returned, or
        this one where it is whole along ``axis`` already. All components travel together.
        ``out`` may be decomposed in any way. Raises PatternError where it is no block of the same
        global array.
        """
        pencil = self._connected()
        form = self.global_shape, self.dtype, pencil.axis  # some may know the way already
        call = "DistArray.redistribute", axis, out is None, form
        with prepared(pencil.comm, call) as each:
            if out is not None:
                _check_target(self, out, axis)
            elif axis is None:
                raise PatternError("redistribute() needs an axis or an array to write to")
            else:
                target = pencil.pencil(axis)
                each.over = pencil.subcomm[target.axis]
        if out is not None:
            _send(pencil.comm, self.v, out.v, self.local_slice(), out.local_slice())
            return out
        if target.axis == pencil.axis:
            return self
        if each.over.size == 1:  # whole along both
            self._p0 = target
            return self
        components = self.shape[: self._rank]
        out = DistArray.of(target, self.dtype, components=components)
        transfer = pencil.transfer(target, self.dtype, components)
        try:
            transfer.forward(self.v, out.v)
        finally:
            transfer.destroy()
        return out

    def get(self, gslice: Sequence[Any], root: int = 0) -> NDArray[Any] | None:
        """Collective. A part of the global array on one rank, None on the others.

        ``gslice`` holds an integer or a slice for each axis, component axes first; missing ones
        are whole. Only the part travels. PatternError on every rank where it does not exist, and
        for elements that are Python's objects.
        """
        comm, shape = self.comm, self.global_shape
        with agreed(comm):
            entries = tuple(gslice) if isinstance(gslice, tuple | list) else (gslice,)
            missing = (slice(None),) * (len(shape) - len(entries))
            selection = Selection.of(shape, entries + missing)
            if not 0 <= root < comm.size:
                raise PatternError(f"root {root} is no rank of {comm.size}")
            if self.dtype.hasobject:
                raise PatternError(f"elements of {self.dtype} cannot be sent")
            cut = selection.cut(self.local_slice())
            mine = None if cut is None else self.v[cut[0]]
            part = np.empty(selection.result if comm.rank == root else 0, self.dtype)
        agree(comm, what=("DistArray.get", selection.name, root, shape, self.dtype))
        for box, data in gathered(comm, cut and cut[1], mine, self.dtype, root):
            part[box] = data
        return part if comm.rank == root else None

    def write(
        self,
        filename: Any,
        name: str = "darray",
        step: int = 0,
        global_slice: Sequence[Any] | None = None,
        domain: Sequence[Any] | None = None,
        as_scalar: bool = False,
    ) -> None:
        """Collective. Write to an :class:`HDF5File` where the name ends with ".h5" or ".hdf5", or
        where it is one; where the name ends with ".npy" the whole array, which ``np.load`` reads
        (names, steps and domains mean nothing then); else to an :class:`NCFile`, as in
        mpi4py-fft. Over MPI.COMM_WORLD for an array that every rank has, but for ".npy"."""
        if _is_npy(filename):
            npy.save(self, os.fspath(filename), global_slice)
        else:
            entry = self if global_slice is None else (self, global_slice)
            _file(filename, domain, "a").write(step, {name: [entry]}, as_scalar=as_scalar)

    def read(self, filename: Any, name: str = "darray", step: int = 0) -> None:
        """Collective. Fill the array from an :class:`HDF5File`, a ".npy" file of the global array,
        or an :class:`NCFile`."""
        if _is_npy(filename):
            npy.load(self, os.fspath(filename))
        else:
            _file(filename, None, "r").read(self, name, step)


def _is_npy(filename: Any) -> bool:
    return not isinstance(filename, FileBase) and os.fspath(filename).endswith(".npy")


def _file(filename: Any, domain: Sequence[Any] | None, mode: str) -> Any:
    """The file itself, or that of this name, whose ending tells its format."""
    if isinstance(filename, FileBase):
        return filename
    kind = HDF5File if os.fspath(filename).endswith((".h5", ".hdf5")) else NCFile
    return kind(filename, domain, mode)


def _check_target(source: DistArray, target: Any, axis: int | None) -> None:
    """Local. PatternError where it cannot take the source, or is not whole along the axis."""
    if not isinstance(target, DistArray) or target.global_shape != source.global_shape:
        raise PatternError(
            f"the target is a {type(target).__name__} of shape {np.shape(target)}, no DistArray of "
            f"global shape {source.global_shape}"
        )
    if axis is not None and axis % source.dimensions != target.alignment:
        raise PatternError(f"axis is {axis}, but out is whole along {target.alignment}")
    if MPI.Comm.Compare(source.comm, target.comm) not in (MPI.IDENT, MPI.CONGRUENT):
        raise PatternError("source and target are on communicators of different ranks")
    if target.dtype != source.dtype or not target.flags.writeable:
        raise PatternError(
            f"source has dtype {source.dtype}, the target {target.dtype}"
            f"{'' if target.flags.writeable else ' and is read-only'}"
        )
    if source is not target and np.may_share_memory(source, target):
        raise PatternError("source and target share memory")


def _send(
    comm: MPI.Comm,
    source: NDArray[Any],
    target: NDArray[Any],
    here: tuple[slice, ...],
    there: tuple[slice, ...],
) -> None:
    """Collective. From blocks ``here`` of a global array to blocks ``there``."""
    found = between(comm, source.dtype, here, there)
    if found is None:
        target[...] = source
    else:
        found(True, source, target)


def fftshift(u: DistArray, axes: int | Sequence[int] | None = None) -> DistArray:
    """Collective. A new array with the zero frequency in the middle of each axis.

    As :func:`numpy.fft.fftshift` of the global array. ``axes`` are distributed ones, component axes
    not counted; None is all of them. Each axis that is split costs one exchange of the array.
    PatternError on every rank for an axis that does not exist.

    Examples
    --------
    >>> u = DistArray((2 * comm.size, 4), [0, 1])
    >>> u[:] = np.fft.fftfreq(4, 1 / 4)
    >>> fftshift(u, axes=1)[0].tolist()
    [-2.0, -1.0, 0.0, 1.0]
    """
    return _shifted(u, axes, False)


def ifftshift(u: DistArray, axes: int | Sequence[int] | None = None) -> DistArray:
    """Collective. What undoes :func:`fftshift`, as :func:`numpy.fft.ifftshift`.

    Examples
    --------
    >>> u = DistArray((2 * comm.size, 4), [0, 1])
    >>> u[:] = [-2, -1, 0, 1]
    >>> ifftshift(u, axes=1)[0].tolist()
    [0.0, 1.0, -2.0, -1.0]
    """
    return _shifted(u, axes, True)


def _shifted(u: DistArray, axes: Any, back: bool) -> DistArray:
    comm, ndim = u.comm, u.dimensions
    with prepared(comm, ("fftshift", axes, back, u.global_shape, u.dtype)):
        chosen = list(range(ndim) if axes is None else axes if np.iterable(axes) else [axes])
        if not all(-ndim <= index(axis) < ndim for axis in chosen):
            raise PatternError(f"axes {axes!r} are not among the {ndim} of the array")
    for axis in (u.rank + axis % ndim for axis in chosen):
        length = u.global_shape[axis]
        by = length - length // 2 if back else length // 2
        moved = DistArray.over(np.empty_like(u.v), u.pencil, u.rank)
        where = u.local_slice()
        if u.subcomm[axis].size == 1:
            moved.v[...] = np.roll(u.v, by, axis)
        else:  # what goes up, and what goes around the end
            for start, stop, step in ((0, length - by, by), (length - by, length, by - length)):
                part = where[axis]
                low = min(max(part.start, start), part.stop)
                high = max(low, min(part.stop, stop))
                here, box = list(where), [slice(None)] * u.ndim
                here[axis] = slice(low + step, high + step)
                box[axis] = slice(low - part.start, high - part.start)
                _send(comm, u.v[tuple(box)], moved.v, tuple(here), where)
        u = moved
    return u if chosen else u.copy()


def _pencil(shape: tuple[int, ...], subcomm: Any, alignment: int | None) -> Pencil:
    """The pencil that the arguments of :class:`DistArray` describe."""
    if alignment is not None and not -len(shape) <= alignment < len(shape):
        raise PatternError(f"alignment {alignment} is no axis of {len(shape)} dimensions")
    axis = None if alignment is None else index(alignment) % len(shape)
    if subcomm is None:  # as the plans that say nothing of a grid
        sizes = choose_grid(MPI.COMM_WORLD.size, shape, [len(shape) - 1 if axis is None else axis])
        subcomm = _world(on_nodes(sizes, shape, near(MPI.COMM_WORLD)))
    elif not all(isinstance(entry, MPI.Comm) for entry in subcomm):
        subcomm = _world(tuple(index(entry) for entry in subcomm))
    if len(subcomm) != len(shape):
        raise PatternError(f"{len(subcomm)} communicators do not fit {len(shape)} dimensions")
    ranks = [comm.size for comm in subcomm]
    if axis is None:
        if 1 not in ranks:
            raise PatternError(f"no axis is whole: the communicators have {ranks} ranks")
        axis = len(ranks) - 1 - ranks[::-1].index(1)
    return Pencil(subcomm, shape, axis)


@functools.cache
def _world(dims: tuple[int, ...]) -> Subcomm:
    """Collective over MPI.COMM_WORLD on the first call for these sizes; kept until MPI ends."""
    return Subcomm(MPI.COMM_WORLD, dims, reorder=False)


def newDistArray(
    pfft: Any,
    forward_output: bool = True,
    val: Any = 0,
    rank: int = 0,
    view: bool = False,
) -> Any:
    """Local. A new array for the output of ``pfft.forward``, or for its input, of a plan
    (:class:`~onesided.pencilfft.PFFT`).

    Arguments as in mpi4py-fft: filled with ``val``; ``rank`` is the tensor rank, each of whose
    axes has as many components as the array dimensions; ``view`` asks for a plain ndarray instead
    of a :class:`DistArray`. The leading axes of a plan with ``batch`` are there by themselves.
    Its memory is in C order, or in that of a plan with ``order="plan"``.

    Examples
    --------
    >>> with PFFT(comm, (8, 8)) as fft:
    ...     u = newDistArray(fft, False, val=3.0)
    >>> u.shape == u.pencil.subshape
    True
    """
    pencil: Any = pfft.pencil[1 if forward_output else 0]
    batch = tuple(getattr(pfft, "batch", ()))
    if rank < 0:
        raise PatternError(f"a tensor of rank {rank} does not exist")
    if rank and batch:
        raise UnsupportedError(f"rank={rank} for a plan whose arrays have leading axes {batch}")
    components = (len(pencil.shape),) * rank or batch
    memory = None if rank else pfft.memory_order(forward_output)
    array = DistArray.of(pencil, pfft.dtype(forward_output), val, components, memory)
    return array.v if view else array
