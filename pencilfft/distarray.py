"""Arrays of which every rank holds its block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from onesided.collectives.errors import PatternError
from onesided.pencilfft.decomposition import PencilGeometry

if TYPE_CHECKING:
    from onesided.pencilfft.plan import PFFT


class DistArray(np.ndarray[Any, np.dtype[Any]]):
    """Local. This rank's block of a distributed array, in plain memory.

    An ndarray that remembers its :class:`PencilGeometry`. With ``rank`` r a tensor field: r leading
    axes, each as long as the array has dimensions, count the components and are not distributed.
    An index that picks components keeps the DistArray; any other index gives an ndarray, because
    a part of a block is nobody's block. Operations are local. Dropping it needs nothing
    collective.
    """

    _pencil: PencilGeometry | None
    _rank: int

    def __new__(
        cls, pencil: PencilGeometry, dtype: DTypeLike = float, val: Any = None, rank: int = 0
    ) -> DistArray:
        """Local. Filled with ``val``, uninitialized for None."""
        if rank < 0:
            raise PatternError(f"a tensor of rank {rank} does not exist")
        shape = (len(pencil.shape),) * rank + pencil.subshape
        self = np.ndarray.__new__(cls, shape, dtype)
        self._pencil, self._rank = pencil, rank
        if val is not None:
            self.fill(val)
        return self

    def __array_finalize__(self, array: NDArray[Any] | None) -> None:
        self._pencil, self._rank = None, 0
        pencil = getattr(array, "_pencil", None)
        if pencil is not None and self.shape[self.ndim - len(pencil.shape) :] == pencil.subshape:
            self._pencil, self._rank = pencil, self.ndim - len(pencil.shape)

    def __array_wrap__(
        self, array: NDArray[Any], context: Any = None, return_scalar: bool = False
    ) -> Any:
        if return_scalar:
            return array[()]
        if isinstance(array, DistArray):
            return array
        wrapped = array.view(type(self))
        wrapped.__array_finalize__(self)
        return array if wrapped._pencil is None else wrapped

    def __getitem__(self, index: Any) -> Any:
        entries = index if isinstance(index, tuple) else (index,)
        count = len(entries)
        components = 0 < count <= self._rank and all(
            isinstance(entry, int | np.integer) for entry in entries
        )
        return super().__getitem__(index) if components else self.v[index]

    @property
    def v(self) -> NDArray[Any]:
        """The block as a plain ndarray, sharing memory."""
        return self.view(np.ndarray)

    @property
    def pencil(self) -> PencilGeometry:
        """Which part of the global array this is."""
        if self._pencil is None:
            raise PatternError(f"an array of shape {self.shape} is no block of a pencil any more")
        return self._pencil

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
        """The axis along which the blocks are whole."""
        return self.pencil.axis

    @property
    def global_shape(self) -> tuple[int, ...]:
        """Shape of the global array, with the component axes."""
        components: tuple[int, ...] = self.shape[: self._rank]
        return components + self.pencil.shape

    @property
    def substart(self) -> tuple[int, ...]:
        """First global index of the block on each axis."""
        return (0,) * self._rank + self.pencil.substart

    def local_slice(self) -> tuple[slice, ...]:
        """Local. The block as slices of the global array."""
        return tuple(slice(0, n) for n in self.shape[: self._rank]) + self.pencil.local_slice()


def newDistArray(
    pfft: PFFT, forward_output: bool = True, val: Any = 0, rank: int = 0, view: bool = False
) -> Any:
    """Local. A new array for the output of ``pfft.forward``, or for its input.

    Arguments as in mpi4py-fft: filled with ``val``; ``rank`` is the tensor rank; ``view`` asks
    for a plain ndarray instead of a :class:`DistArray`.
    """
    pencil = pfft.pencil[1 if forward_output else 0]
    array = DistArray(pencil, pfft.dtype(forward_output), val, rank)
    return array.v if view else array
