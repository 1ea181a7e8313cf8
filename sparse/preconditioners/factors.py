"""Factors of a matrix of one rank: SuperLU's, or those on the matrix's own pattern."""

from __future__ import annotations

from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csc_array

try:
    from onesided.sparse.preconditioners import _ilu as _compiled
except ImportError:  # no compiler was present
    _compiled = None  # type: ignore[assignment]


class Factors:
    """SuperLU's factors of a matrix of a certain dtype."""

    def __init__(self, lu: Any, dtype: np.dtype[Any]) -> None:
        self.lu, self._dtype = lu, dtype  # a SuperLU

    @classmethod
    def of_triangle(cls, matrix: Any) -> Factors:
        """Local. Of a triangular matrix: no fill, and a solution is one substitution."""
        from scipy.sparse.linalg import splu  # slow to import

        whole = csc_array(matrix)
        lu = splu(
            whole,
            permc_spec="NATURAL",
            diag_pivot_thresh=0.0,
            relax=1,
            options={"Equil": False},
        )
        return cls(lu, whole.dtype)

    def solve(self, r: NDArray[Any], trans: Literal["N", "T", "H"] = "N") -> NDArray[Any]:
        """Local. A new array of the factors' dtype; real ones take a complex r in two parts."""
        if r.dtype.kind == "c" and self._dtype.kind != "c":
            real, imaginary = (self.solve(part, trans) for part in (r.real, r.imag))
            joined: NDArray[Any] = real + 1j * imaginary
            return joined
        solution: NDArray[Any] = self.lu.solve(np.ascontiguousarray(r, self._dtype), trans)
        return solution


class PatternFactors:
    """L U on the pattern of the matrix, ILU(0), in double precision.

    ``definite``: the matrix is Hermitian, and so is L U, with pivots above zero. With ``absolute``
    it is, where the matrix is Hermitian: L |D| L^H instead of L D L^H.
    """

    def __init__(self, block: sparse.csr_array, absolute: bool) -> None:
        """Local. ``ValueError`` where a pivot is zero, or the diagonal has no place."""
        kind = np.dtype(np.complex128 if block.dtype.kind == "c" else np.float64)
        block = sparse.csr_array(block.astype(kind))
        block.sort_indices()
        skew: Any = block - block.conj().T
        n = block.shape[0]
        self._indptr, self._indices = block.indptr.astype(np.int64), block.indices.astype(np.int64)
        self._values, self._pivot = block.data.copy(), np.zeros(n, np.int64)
        limit = 100 * float(np.finfo(cast(Any, kind)).eps) * np.max(np.abs(block.data), initial=0.0)
        factor = _factored if _compiled is None else _compiled.factor
        bad = factor(
            self._indptr, self._indices, self._values, self._pivot, np.zeros(n, np.int64)
        )
        if bad >= 0:
            raise ValueError(f"row {bad} of the block has a zero pivot")
        hermitian = np.max(np.abs(skew.data), initial=0.0) <= limit
        if absolute and hermitian:
            row = np.repeat(np.arange(n), np.diff(self._indptr))
            upper = self._indices >= row
            signs = np.where(self._values[self._pivot].real < 0, -1.0, 1.0)
            self._values[upper] *= signs[row[upper]]
        pivots = self._values[self._pivot]
        self.definite = bool(hermitian and np.all(pivots.real > 0))
        self._triangles: Any = None
        if _compiled is None:
            parts = self._values, self._indices, self._indptr
            both = sparse.csr_array(parts, shape=(n, n))
            lower = sparse.tril(both, -1) + sparse.eye_array(n)
            self._triangles = tuple(Factors.of_triangle(t) for t in (lower, sparse.triu(both)))

    def solve(self, r: NDArray[Any]) -> NDArray[Any]:
        """Local. A new array; real factors take a complex r in two parts."""
        kind = self._values.dtype
        if r.dtype.kind == "c" and kind.kind != "c":
            real, imaginary = (self.solve(part) for part in (r.real, r.imag))
            joined: NDArray[Any] = real + 1j * imaginary
            return joined
        if self._triangles is not None:
            lower, upper = self._triangles
            return np.asarray(upper.solve(lower.solve(r)))
        x = np.array(r, kind)
        _compiled.solve(self._indptr, self._indices, self._values, self._pivot, x)
        return x


def _factored(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int64],
    values: NDArray[Any],
    pivot: NDArray[np.int64],
    place: NDArray[np.int64],
) -> int:
    """Local. As the compiled ``factor``: -1, or the row whose pivot is zero or missing."""
    place[:] = -1
    for row in range(len(pivot)):
        start, stop = indptr[row], indptr[row + 1]
        columns = indices[start:stop]
        place[columns] = np.arange(start, stop)
        pivot[row] = place[row]
        for k in range(start, stop):
            above = indices[k]
            if above >= row:
                break
            values[k] /= values[pivot[above]]
            rest = slice(pivot[above] + 1, indptr[above + 1])
            at = place[indices[rest]]
            values[at[at >= 0]] -= values[k] * values[rest][at >= 0]
        place[columns] = -1
        if pivot[row] < 0 or values[pivot[row]] == 0:
            return row
    return -1
