"""Blocks of distributed vectors: sums and scalar products, without a new array.

Vectors are worked on in parts that stay in cache while several operations follow each other, and
the scalar products of one moment share one reduction.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray
from scipy.linalg.blas import get_blas_funcs

_PART_BYTES = 1 << 17
_MOST_SUMS = 8

Vector = NDArray[Any]
Scalar = Any  #: a float, or a complex number where vectors are complex


class Space:
    """Local. All distributed vectors of one partition and dtype, of which this rank has blocks.

    Scalar products are conjugate linear in their first vector. Every rank gets the same numbers
    from a reduction, so that all ranks decide alike.
    """

    def __init__(self, comm: MPI.Comm, length: int, dtype: np.dtype[Any]) -> None:
        self._comm, self.length, self.dtype = comm, length, dtype
        step = max(1, _PART_BYTES // dtype.itemsize)
        #: Slices that cover a block; none where the block is empty.
        self.parts = [slice(first, first + step) for first in range(0, length, step)]
        self.axpy = get_blas_funcs("axpy", dtype=dtype)
        self.scal = get_blas_funcs("scal", dtype=dtype)
        wide = np.complex128 if dtype.kind == "c" else np.float64
        self._own, self._total = np.zeros(_MOST_SUMS, wide), np.zeros(_MOST_SUMS, wide)
        self._count = 0
        self._request: MPI.Request | None = None

    def vector(self) -> Vector:
        """Local. A new block of zeros."""
        return np.zeros(self.length, self.dtype)

    def dots(self, *pairs: tuple[Vector, Vector]) -> list[Scalar]:
        """Collective. Scalar products of all pairs, by one reduction."""
        return self.sums(*(np.vdot(x, y) for x, y in pairs))

    def norm(self, x: Vector) -> float:
        """Collective. The Euclidean norm."""
        return float(np.sqrt(self.dots((x, x))[0].real))

    def sums(self, *own: Scalar) -> list[Scalar]:
        """Collective. The sums over all ranks of some numbers, by one reduction."""
        count = len(own)
        self._own[:count] = own
        self._comm.Allreduce(self._own[:count], self._total[:count])
        totals: list[Scalar] = self._total[:count].tolist()
        return totals

    def start_sums(self, *own: Scalar) -> None:
        """Collective, nonblocking. As :meth:`sums`; :meth:`finish_sums` gives them."""
        self._count = len(own)
        self._own[: self._count] = own
        self._request = self._comm.Iallreduce(self._own[: self._count], self._total[: self._count])

    def finish_sums(self) -> list[Scalar]:
        """Collective. Wait for the sums that have been started."""
        if self._request is None:
            raise RuntimeError("no sums have been started")
        self._request.Wait()
        self._request = None
        totals: list[Scalar] = self._total[: self._count].tolist()
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
            total += np.vdot(piece, piece)
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
