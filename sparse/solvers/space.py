"""Blocks of distributed vectors: sums and scalar products, without a new array.

Vectors are worked on in parts that stay in cache while several operations follow each other, and
the scalar products of one moment share one reduction.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives import Sums, sums
from onesided.collectives.context import Context
from onesided.sparse.moving import of_all

#: Entries of a part; of longer vectors OpenBLAS makes threads, which take the cores of other ranks.
_PART = 10_000
_MOST_SUMS = 3  # in one message of a cache line, also where they are complex

Vector = NDArray[Any]
Scalar = Any  #: a float, or a complex number where vectors are complex


class Space:
    """Local. All distributed vectors of one partition and dtype, of which this rank has blocks.

    Scalar products are conjugate linear in their first vector. Every rank gets the same numbers
    from a reduction, so that all ranks decide alike.
    """

    def __init__(self, comm: MPI.Intracomm, length: int, dtype: np.dtype[Any]) -> None:
        self._comm, self.length, self.dtype = comm, length, dtype
        #: Slices that cover a block; none where the block is empty.
        self.parts = [slice(first, first + _PART) for first in range(0, length, _PART)]
        wide = np.complex128 if dtype.kind == "c" else np.float64
        self._vdot: Any = np.vdot if dtype.kind == "c" else np.ndarray.dot  # the latter is faster
        #: How many sums there are at a time, and their dtype.
        self.wanted = _MOST_SUMS, wide
        self._sums = sums(comm, *self.wanted)
        limits = np.finfo(dtype)
        self._tiny = float(limits.tiny)
        #: A sum of squares that may have lost parts too small to be squared.
        self._least = self._tiny / float(limits.eps) ** 2

    @cached_property
    def axpy(self) -> Any:
        """Of BLAS: y += a x."""
        return _blas("axpy", self.dtype)

    @cached_property
    def scal(self) -> Any:
        """Of BLAS: x *= a."""
        return _blas("scal", self.dtype)

    def vector(self) -> Vector:
        """Local. A new block of zeros."""
        return np.zeros(self.length, self.dtype)

    def share(self, x: Vector, y: Vector) -> Scalar:
        """Local. What this rank adds to (x, y); parts of single precision are summed in double."""
        if self.length <= _PART:
            return self._vdot(x, y).item()
        total: Scalar = 0.0
        for part in self.parts:
            total += self._vdot(x[part], y[part]).item()
        return total

    def square(self, x: Vector) -> float:
        """Collective. (x, x)."""
        found: float = self._idle().of(self.share(x, x))[0].real
        return found

    def dots(self, *pairs: tuple[Vector, Vector]) -> list[Scalar]:
        """Collective. Scalar products of all pairs, by one reduction."""
        return self.sums(*[self.share(x, y) for x, y in pairs])

    def norm(self, x: Vector) -> float:
        """Collective. The Euclidean norm, which neither overflows nor vanishes before it must; the
        caller has NumPy ignore that its square does."""
        return self.norm_of(self.square(x), x)

    def norm_of(self, square: float, x: Vector) -> float:
        """Collective. As :meth:`norm`, where (x, x) is known."""
        if self.is_safe(square):
            return math.sqrt(square)
        parts = np.abs(x.view(x.real.dtype))
        largest = float(of_all(self._comm, parts.max(initial=0.0)).max())
        if not 0 < largest < math.inf:
            return largest
        scaled = x / largest if largest > self._tiny else (x / self._tiny) / (largest / self._tiny)
        return largest * math.sqrt(self.dots((scaled, scaled))[0].real)

    def is_safe(self, square: float) -> bool:
        """Local. Whether a sum of squares has neither overflowed nor lost what is too small."""
        return self._least < square < math.inf

    def sums(self, *own: Scalar) -> list[Scalar]:
        """Collective. The sums over all ranks of some numbers, by one reduction."""
        return self._idle().of(*own)

    def _idle(self) -> Sums:
        """Collective where somebody around this solver has started its sums, or a solver inside of
        it has dropped them; else local."""
        if self._sums.request.state != "inactive":
            self._sums = sums(self._comm, *self.wanted)
        return self._sums

    def gram(self, one: Vector, other: Vector) -> Vector:
        """Collective. Scalar products of all columns of two blocks, (n, k) and (n, m), in double
        precision."""
        wide = self.wanted[1]
        mine: Vector = np.zeros((one.shape[1], other.shape[1]), wide)
        for part in self.parts:
            left, right = (each[part].astype(wide, copy=False) for each in (one, other))
            mine += left.conj().T @ right
        self._comm.Allreduce(MPI.IN_PLACE, mine, op=MPI.SUM)
        return mine

    def sums_during(self, work: Callable[[], object], *own: Scalar) -> list[Scalar]:
        """Collective. As :meth:`sums`, under way while the work is done."""
        reduction, count = self._idle(), len(own)
        reduction.own[:count] = own
        try:
            reduction.start()
            work()
            reduction.finish()
        except BaseException as error:
            if not isinstance(error, Exception) or Context.of(self._comm).broken_by(error):
                reduction.give_up(error)  # other ranks may never come
            elif reduction.request.active:  # an error of all ranks, which have started it
                reduction.finish()
            raise
        totals: list[Scalar] = reduction.total[:count].tolist()
        return totals

    def add(self, y: Vector, factor: Scalar, x: Vector) -> None:
        """Local. y += factor x."""
        for part in self.parts:
            self.axpy(x[part], y[part], a=factor)

    def scale(self, factor: Scalar, x: Vector) -> None:
        """Local. x *= factor."""
        for part in self.parts:
            self.scal(factor, x[part])

    def add_square(self, y: Vector, factor: Scalar, x: Vector) -> Scalar:
        """Local. y += factor x; returns this rank's share of (y, y)."""
        total: Scalar = 0.0
        for part in self.parts:
            piece = y[part]
            self.axpy(x[part], piece, a=factor)
            total += np.vdot(piece, piece).item()
        return total

    def extend(self, y: Vector, factor: Scalar, x: Vector) -> None:
        """Local. y = x + factor y."""
        for part in self.parts:
            piece = y[part]
            self.scal(factor, piece)
            self.axpy(x[part], piece)

    def advance(self, x: Vector, alpha: Scalar, p: Vector, beta: Scalar, z: Vector) -> None:
        """Local. x += alpha p, then p = z + beta p."""
        for part in self.parts:
            direction = p[part]
            self.axpy(direction, x[part], a=alpha)
            self.scal(beta, direction)
            self.axpy(z[part], direction)


def root(square: float) -> float:
    """Local. The square root; not a number where there is none."""
    return math.sqrt(square) if square >= 0 else math.nan


def start_block(rows: tuple[int, int], dtype: np.dtype[Any], seed: int = 0) -> NDArray[Any]:
    """Local. The entries of a half-open range of a random vector that depends on the seed alone.

    Real and imaginary part are even between -1 and 1.
    """
    start, stop = rows
    draws = 2 if dtype.kind == "c" else 1
    bits = np.random.PCG64(seed)
    bits.advance(draws * start)  # a number takes one step of the generator
    numbers = 2.0 * np.random.Generator(bits).random(draws * (stop - start)) - 1.0
    values = numbers.view(np.complex128) if draws == 2 else numbers
    return values.astype(dtype)


def _blas(name: str, dtype: np.dtype[Any]) -> Any:
    from scipy.linalg.blas import get_blas_funcs  # slow to import, and not always needed

    return get_blas_funcs(name, dtype=dtype)
