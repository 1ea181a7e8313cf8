"""A distributed vector, or a block of k vectors: arithmetic on blocks, dot and norm over all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from mpi4py import MPI
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import DTypeLike, NDArray

from onesided.collectives import agreed, sums
from onesided.collectives.reduction.operation import FEW
from onesided.sparse.moving import gathered, of_all, scattered, shared_form
from onesided.sparse.partition import Partition


def checked_block(partition: Partition, rank: int, array: Any) -> NDArray[Any]:
    """Local. A block of vectors as an array; ``ValueError`` where it is not this rank's."""
    block = np.asarray(array)
    start, stop = partition.range(rank)
    if block.ndim not in (1, 2) or len(block) != stop - start:
        raise ValueError(
            f"the block has shape {block.shape}, rank {rank} owns the {stop - start} entries "
            f"{start}:{stop}"
        )
    return block


class DistVector(NDArrayOperatorsMixin):
    """A vector of which every rank holds the block that a partition gives it.

    ``array`` is this rank's block, (n,) or (n, k) for k vectors; it is not copied, unless ranks
    have blocks of different dtypes, of which all get the common one. Arithmetic with numbers and
    with vectors of the same partition is Local and works on blocks; ``dot``, ``vdot``,
    ``norm`` and ``sum`` are Collective and give the same bits on every rank: the parts of the
    ranks are summed in the order of the ranks.

    ``comm`` is borrowed. ``len(x)`` and ``x.shape`` are global.

    Examples
    --------
    >>> with diags(comm, [-1, 2, -1], [-1, 0, 1], shape=(8, 8)) as A:
    ...     x = DistVector(comm, A.col_partition, np.ones(A.col_range[1] - A.col_range[0]))
    ...     float(x.dot(A @ x))
    2.0
    """

    def __init__(self, comm: MPI.Intracomm, partition: Partition, array: NDArray[Any]) -> None:
        """Collective. A rank without entries may pass an empty list. Raises ``ValueError`` on every
        rank where a block does not fit, or ranks have different numbers of vectors,
        ``MismatchError`` where they have different partitions."""
        error: Exception | None = None
        block: NDArray[Any] = np.zeros(0)
        try:
            partition.check_parts(comm.size)
            block = checked_block(partition, comm.rank, array)
        except Exception as problem:
            error = problem
        kind, k, _ = shared_form(comm, f"DistVector of {partition!r}", block, error)
        block = block.reshape(len(block), k) if k else block
        self.comm, self.partition, self.array = comm, partition, block.astype(kind, copy=False)

    @classmethod
    def zeros(
        cls, comm: MPI.Intracomm, partition: Partition, dtype: DTypeLike = np.float64, k: int = 0
    ) -> Self:
        """Collective. Zeros; a block of k vectors where k is given."""
        with agreed(comm, ("DistVector.zeros", partition, k)):
            partition.check_parts(comm.size)
            start, stop = partition.range(comm.rank)
            block = np.zeros((stop - start, k) if k else stop - start, dtype)
        return cls(comm, partition, block)

    def like(self, array: NDArray[Any], partition: Partition | None = None) -> DistVector:
        """Local. A vector with another block, of the same partition unless another is given.

        Raises ``ValueError``, on this rank alone, where the block does not fit.
        """
        partition = self.partition if partition is None else partition
        start, stop = partition.range(self.comm.rank)
        if len(array) != stop - start:
            raise ValueError(f"a block of {len(array)} entries for the {stop - start} of this rank")
        vector = DistVector.__new__(DistVector)
        vector.comm, vector.partition, vector.array = self.comm, partition, array
        return vector

    @property
    def shape(self) -> tuple[int, ...]:
        """Local. The global shape."""
        return (self.partition.size, *self.array.shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Local. The dtype of the block."""
        return self.array.dtype

    __eq__ = object.__eq__
    __ne__ = object.__ne__
    __hash__ = object.__hash__

    def __len__(self) -> int:
        return self.partition.size

    def __bool__(self) -> bool:
        raise ValueError("a vector is neither true nor false; look at its entries")

    def __repr__(self) -> str:
        start, stop = self.partition.range(self.comm.rank)
        return f"<DistVector of {self.shape}, {self.dtype}, entries {start}:{stop} on this rank>"

    def __getitem__(self, key: Any) -> Any:
        """Local. Of this rank's block: ``x[...]`` is the block itself, ``x[:, j]`` of vector j."""
        return self.array[key]

    def __setitem__(self, key: Any, values: Any) -> None:
        """Local. Change this rank's block."""
        self.array[key] = values.array if isinstance(values, DistVector) else values

    def __array_ufunc__(self, ufunc: np.ufunc, way: str, *inputs: Any, **how: Any) -> Any:
        """Local. NumPy's functions of entries, as ``np.sqrt(x)``, of vectors that fit and numbers;
        ``TypeError`` for arrays, of which one rank cannot know whether they are blocks."""
        if way != "__call__" or ufunc.signature is not None:
            return NotImplemented
        out = how.get("out")
        if out is not None:
            how["out"] = tuple(self._block(each) for each in out)
        found = ufunc(*(self._block(each) for each in inputs), **how)
        if out is not None:
            found = found if isinstance(found, tuple) else (found,)
            each = zip(out, found, strict=True)
            both = tuple(self.like(new) if given is None else given for given, new in each)
            return both if len(both) > 1 else both[0]
        return tuple(map(self.like, found)) if isinstance(found, tuple) else self.like(found)

    @property
    def real(self) -> DistVector:
        """Local. The real parts, in the memory of this vector."""
        return self.like(self.array.real)

    @property
    def imag(self) -> DistVector:
        """Local. The imaginary parts; in the memory of this vector if it is complex."""
        return self.like(self.array.imag)

    def astype(self, dtype: DTypeLike) -> DistVector:
        """Local. A copy of another dtype."""
        return self.like(self.array.astype(dtype))

    def axpy(self, factor: Any, other: DistVector) -> None:
        """Local. self += factor * other, where a factor is a number, or one for each vector;
        without a temporary where both are contiguous and of one dtype of products."""
        block = self._block(other)
        mine, dtype = self.array, self.array.dtype
        if not np.can_cast(np.result_type(factor, block), dtype, "same_kind"):
            raise TypeError(f"{factor!r:.40} times {block.dtype} is added to a vector of {dtype}")
        simple = np.ndim(factor) == 0 and dtype == block.dtype and dtype.char in "fdFD"
        simple = simple and 0 < mine.size < 1 << 31 and mine.flags.writeable
        if simple and mine.flags.c_contiguous and block.flags.c_contiguous:
            from scipy.linalg.blas import get_blas_funcs  # slow to import

            get_blas_funcs("axpy", dtype=dtype)(block.reshape(-1), mine.reshape(-1), a=factor)
        else:
            np.add(mine, factor * block, out=mine, casting="same_kind")

    def copy(self) -> DistVector:
        """Local. The same numbers in memory of their own."""
        return self.like(self.array.copy())

    def conj(self) -> DistVector:
        """Local. The complex conjugate."""
        return self.like(self.array.conj())

    # -- over all ranks --------------------------------------------------------------------------

    def dot(self, other: DistVector) -> Any:
        """Collective. The sum of ``self * other``, nothing conjugated; one number per vector."""
        return self._total(_columns_dot(self.array, self._vector(other)))

    def vdot(self, other: DistVector) -> Any:
        """Collective. The sum of ``conj(self) * other``; one number per vector."""
        return self._total(_columns_dot(self.array.conj(), self._vector(other)))

    def __matmul__(self, other: DistVector) -> Any:
        """Collective. As :meth:`dot`; a matrix on the right says what it takes."""
        return self.dot(other) if isinstance(other, DistVector) else NotImplemented

    def min(self) -> Any:
        """Collective. The smallest entry; one number per vector."""
        return self._extreme(np.min, 1)

    def max(self) -> Any:
        """Collective. The largest entry; one number per vector."""
        return self._extreme(np.max, -1)

    def _extreme(self, of: Callable[..., Any], sign: int) -> Any:
        kind = self.array.dtype
        if kind.kind not in "fiu":
            raise TypeError(f"{kind} has no smallest and no largest number")
        first = sign * np.inf
        if kind.kind != "f":
            first = np.iinfo(kind).max if sign > 0 else np.iinfo(kind).min
        return of(of_all(self.comm, of(self.array, axis=0, initial=first)), axis=0)

    @np.errstate(all="ignore")  # of the caller; else one rank might raise alone
    def sum(self) -> Any:
        """Collective. The sum of the entries; one number per vector."""
        return self._total(self.array.sum(axis=0))

    @np.errstate(all="ignore")
    def norm(self, ord: float = 2) -> Any:
        """Collective. The 1-, 2- or infinity-norm; one number per vector.

        The 2-norm is scaled by the largest entry: it neither overflows nor underflows before the
        result does. ``ValueError`` for another ``ord``.
        """
        if ord not in (1, 2, np.inf):
            raise ValueError(f"norm of order {ord}; there are 1, 2 and inf")
        sizes = np.abs(self.array)
        if ord == 1:
            return self._total(sizes.sum(axis=0))
        if ord == 2:
            sizes = sizes if sizes.dtype.kind == "f" else sizes.astype(float)
            limits = np.finfo(sizes.dtype)
            square = self._total(_columns_dot(sizes, sizes))
            if np.all((square > limits.tiny / limits.eps**2) & (square < np.inf)):
                return np.sqrt(square)[()]
        largest = of_all(self.comm, sizes.max(axis=0, initial=0)).max(axis=0)
        if ord == np.inf:
            return largest[()]
        usable = (largest > 0) & np.isfinite(largest)
        scale = np.where(usable, largest, 1).astype(largest.dtype)
        scaled = sizes / scale
        return (scale * np.sqrt(self._total(_columns_dot(scaled, scaled))))[()]

    def gather(self, root: int = 0) -> NDArray[Any] | None:
        """Collective. The whole vector on ``root``, None on the other ranks."""
        with agreed(self.comm, ("DistVector.gather", root)):
            if not 0 <= root < self.comm.size:
                raise ValueError(f"root {root} on {self.comm.size} ranks")
        return gathered(self.comm, self.array, root)

    @classmethod
    def scatter(
        cls, comm: MPI.Intracomm, whole: NDArray[Any] | None, partition: Partition, root: int = 0
    ) -> Self:
        """Collective. The vector that ``root`` has whole, (n,) or (n, k); others pass None.

        Raises the same error on every rank: ``ValueError`` where it does not fit the partition,
        ``TypeError`` for what are no numbers.
        """
        with agreed(comm, ("DistVector.scatter", partition, root)):
            partition.check_parts(comm.size)
            if not 0 <= root < comm.size:
                raise ValueError(f"root {root} on {comm.size} ranks")
            if comm.rank == root:
                whole = np.asarray(whole)
                if whole.dtype.kind not in "biufc":
                    raise TypeError(f"a vector of {whole.dtype}")
                if whole.ndim not in (1, 2) or len(whole) != partition.size:
                    raise ValueError(f"shape {whole.shape} for {partition.size} entries")
                whole = whole.astype(whole.dtype.newbyteorder("="), copy=False)
        return cls(comm, partition, scattered(comm, whole, partition, root))

    def _total(self, mine: Any) -> Any:
        part = np.atleast_1d(mine)
        reduction = sums(self.comm, max(FEW, part.size), part.dtype)
        total = np.array(reduction.of(*part), part.dtype)
        return total if np.ndim(mine) else total[0]

    def _block(self, other: Any) -> Any:
        """The other operand's block, or the number; ``ValueError`` where it does not fit."""
        if isinstance(other, DistVector):
            mine, theirs = self.partition, other.partition
            if theirs is not mine and not np.array_equal(theirs.starts, mine.starts):
                raise ValueError(
                    f"vectors with partitions {mine.starts.tolist()} and {theirs.starts.tolist()}"
                )
            if other.array.shape != self.array.shape:
                raise ValueError(f"vectors of shapes {self.shape} and {other.shape}")
            return other.array
        if np.ndim(other) > 0 or np.result_type(other).kind not in "biufc":
            raise TypeError(f"a number or a DistVector expected, not {type(other).__name__}")
        return other

    def _vector(self, other: Any) -> Any:
        """The other vector's block; ``TypeError`` for what is none."""
        if not isinstance(other, DistVector):
            raise TypeError(f"a DistVector expected, not {type(other).__name__}")
        return self._block(other)


@np.errstate(all="ignore")
def _columns_dot(a: NDArray[Any], b: NDArray[Any]) -> Any:
    """Local. The dot product of two blocks, column by column where there are several."""
    return np.dot(a, b) if a.ndim == 1 else np.einsum("ij,ij->j", a, b)
