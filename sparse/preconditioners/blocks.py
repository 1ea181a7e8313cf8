"""Preconditioners of each rank's own block: its diagonal, factors, incomplete or whole, and
symmetric relaxation.

Factors are SuperLU's, or those on the matrix's own pattern.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray
from scipy import sparse

from onesided.collectives.agreement import agreed
from onesided.sparse.alike import plain
from onesided.sparse.matrix import DistMatrix
from onesided.sparse.partition import Integers
from onesided.sparse.preconditioners.preconditioner import OfMatrix, OfOneKind

try:
    from onesided.sparse.preconditioners import _loops
except ImportError:
    _loops = None  # type: ignore[assignment]
loops: Any = _loops


def checked_diagonal(A: DistMatrix) -> NDArray[Any]:
    """Local. This rank's diagonal; ``ValueError`` for a zero or what is no number, with its row."""
    diagonal: NDArray[Any] = np.asarray(A.diagonal())
    bad = np.flatnonzero((diagonal == 0) | ~np.isfinite(diagonal))
    if len(bad):
        row = A.row_range[0] + int(bad[0])
        raise ValueError(f"the diagonal has {diagonal[bad[0]]} in row {row}")
    return diagonal


class Jacobi(OfMatrix):
    """M is the inverse of the diagonal, this rank's block of which is ``inverse``.

    ``apply`` is Local; the rank count does not matter.

    Examples
    --------
    >>> with diags(comm, [-1, 2, -1], [-1, 0, 1], shape=(8, 8)) as A:
    ...     b = A @ np.ones(A.col_range[1] - A.col_range[0])
    ...     np.allclose(cg(A, b, M=Jacobi(A), rtol=1e-8).x, 1, atol=1e-3)
    True
    """

    def _build(self) -> None:
        """Collective. ``ValueError`` on every rank where the diagonal has a zero."""
        A = self.matrix
        with agreed(A.comm, "Jacobi"):
            A.check_square("Jacobi")
            self.inverse: NDArray[Any] = 1.0 / checked_diagonal(A)

    def apply(self, r: NDArray[Any], out: NDArray[Any]) -> None:
        """Local. out = M r."""
        np.multiply(r, self.inverse, out=out)


class PatternFactors:
    """L U on the pattern of a block of rows, in double precision; L has ones on its diagonal."""

    row: NDArray[np.int64]  #: of each entry, while the factors are made
    definite: bool  #: whether the block is Hermitian, and so is L U, with pivots above zero

    def __init__(self, block: sparse.csr_array) -> None:
        """Local. The ``values`` are the block's, and are to become those of L and of U."""
        block = sparse.csr_array(block.astype(np.result_type(block.dtype, np.float64)))
        block.sort_indices()
        self.indptr, self.indices = block.indptr.astype(np.int64), block.indices.astype(np.int64)
        self.values, self.pivot = block.data.copy(), np.zeros(block.shape[0], np.int64)
        self.row = np.repeat(np.arange(block.shape[0]), np.diff(self.indptr))
        self._triangles: Any = None

    def solve(self, r: NDArray[Any]) -> NDArray[Any]:
        """Local. A new array, for one of the dtype of the factors."""
        if loops is None:
            if self._triangles is None:
                n = len(r)
                both = sparse.csr_array((self.values, self.indices, self.indptr), shape=(n, n))
                lower = sparse.tril(both, -1) + sparse.eye_array(n)
                self._triangles = _triangle(lower), _triangle(sparse.triu(both))
            lower, upper = self._triangles
            return np.asarray(upper.solve(lower.solve(r)))
        x = r.copy()
        loops.solve(self.indptr, self.indices, self.values, self.pivot, x)
        return x


def incomplete(block: sparse.csr_array, absolute: bool) -> PatternFactors:
    """Local. ILU(0). With ``absolute`` L |D| L^H instead of L D L^H where the block is Hermitian.

    ``ValueError`` where a pivot is zero, or the diagonal has no place.
    """
    made, skew = PatternFactors(block), block - block.conj().T
    limit = 100 * float(np.finfo(block.dtype).eps) * np.max(np.abs(block.data), initial=0.0)
    factor = _factored if loops is None else loops.factor
    bad = factor(made.indptr, made.indices, made.values, made.pivot, np.zeros_like(made.pivot))
    if bad >= 0:
        raise ValueError(f"row {bad} of the block has a zero pivot")
    hermitian = np.max(np.abs(skew.data), initial=0.0) <= limit
    if absolute and hermitian:
        upper = made.indices >= made.row
        signs = np.where(made.values[made.pivot].real < 0, -1.0, 1.0)
        made.values[upper] *= signs[made.row[upper]]
    made.definite = bool(hermitian and np.all(made.values[made.pivot].real > 0))
    del made.row
    return made


def relaxed(block: sparse.csr_array, omega: float) -> PatternFactors:
    """Local. (1 + omega L D^-1) (D / omega + U) / (2 - omega), for a diagonal without zeros."""
    made = PatternFactors(block)
    made.pivot[:] = np.flatnonzero(made.indices == made.row)
    lower = made.indices < made.row
    made.values[lower] *= omega / made.values[made.pivot][made.indices[lower]]
    made.values[made.pivot] /= omega
    made.values[~lower] /= 2.0 - omega
    del made.row
    return made


def _factored(
    indptr: Integers, indices: Integers, values: NDArray[Any], pivot: Integers, place: Integers
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


class _Block(OfOneKind):
    """Factors of this rank's own block, if that has rows."""

    _factors: Any

    def _times(self, r: NDArray[Any]) -> NDArray[Any]:
        """Local."""
        solved: NDArray[Any] = r if self._factors is None else self._factors.solve(r)
        return solved


class BlockILU(_Block):
    """Block Jacobi: M solves with incomplete factors L U of the own block of each rank.

    The own block is the own rows by the own columns: what couples the ranks is left out, so that
    the number of iterations depends on the number of ranks, and ``apply`` is Local.

    Without other arguments the factors have the pattern of the block, ILU(0), as PETSc's default;
    they are Hermitian and positive definite where the blocks and their pivots are, and then cg
    takes them. ``fill_factor`` or ``drop_tol`` ask for SuperLU's (SciPy's ``spilu``) in the natural
    order without pivoting: entries below ``drop_tol`` (1e-4) times the largest of their column are
    dropped, and so many of the smallest that about ``fill_factor`` (10) times the entries of the
    block are left. Those are not Hermitian where the matrix is, and stand without ``hermitian``.

    With that M solves with ``L |D| L^H`` instead, D being the diagonal of U, which is
    Hermitian and positive definite whatever the signs of the pivots.

    Examples
    --------
    >>> with diags(comm, [-1, 2, -1], [-1, 0, 1], shape=(8, 8)) as A:
    ...     b = A @ np.ones(A.col_range[1] - A.col_range[0])
    ...     np.allclose(cg(A, b, M=BlockILU(A, hermitian=True), rtol=1e-8).x, 1, atol=1e-3)
    True
    """

    def __init__(
        self, A: DistMatrix, *, hermitian: bool = False, fill_factor: float | None = None,
        drop_tol: float | None = None,
    ) -> None:  # fmt: skip
        """Collective. ``ValueError`` on every rank where a block has no factors, with its rows, or
        is not Hermitian where factors on its pattern are to be."""
        self._choices = hermitian, fill_factor, drop_tol
        super().__init__(A)

    def _build(self) -> None:
        A, (hermitian, fill_factor, drop_tol) = self.matrix, self._choices
        own_pattern = fill_factor is None and drop_tol is None
        self._kind = np.result_type(A.dtype, np.float64) if own_pattern else A.dtype
        with agreed(A.comm, plain(("BlockILU", hermitian, fill_factor, drop_tol))):
            A.check_square("BlockILU")
            if hermitian and not own_pattern:
                raise ValueError("factors with fill_factor or drop_tol cannot be Hermitian")
            if own_pattern:
                self._factors = _of_own_block(A, incomplete, hermitian)
            else:
                self._factors = _of_own_block(A, _dropped, fill_factor or 10.0, drop_tol)
            definite = self._factors is None or (own_pattern and self._factors.definite)
            if hermitian and not definite:
                raise ValueError(f"{_rows(A)} are not Hermitian")
        self.hermitian = bool(A.comm.allreduce(definite, op=MPI.LAND))


class BlockLU(_Block):
    """Block Jacobi: M solves with the own block of each rank, by SuperLU; additive Schwarz's method
    without overlap. Hermitian where the matrix is, and definite where that is.

    Examples
    --------
    >>> with diags(comm, [-1, 2, -1], [-1, 0, 1], shape=(8, 8)) as A:
    ...     b = A @ np.ones(A.col_range[1] - A.col_range[0])
    ...     np.allclose(cg(A, b, M=BlockLU(A), rtol=1e-8).x, 1, atol=1e-3)
    True
    """

    def _build(self) -> None:
        """Collective. ``ValueError`` on every rank where a block is singular, with its rows."""
        A = self.matrix
        self._kind = A.dtype
        with agreed(A.comm, "BlockLU"):
            A.check_square("BlockLU")
            self._factors = _of_own_block(A, _whole)


def _rows(A: DistMatrix) -> str:
    return f"rows {A.row_range[0]} to {A.row_range[1]}"


def _of_own_block(A: DistMatrix, factors: Callable[..., Any], *how: Any) -> Any:
    """Local. Factors of this rank's rows by its own columns; None where there are none. What the
    library says of a block that has none names the rows."""
    block = A.own_block()
    if not block.shape[0]:
        return None
    if not np.all(np.isfinite(block.data)):
        raise ValueError(f"{_rows(A)} hold what is no number")
    try:
        return factors(block, *how)
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"{_rows(A)} have no factors: {error}") from error


def _whole(block: Any, **how: Any) -> Any:
    """Local. SuperLU's factors."""
    from scipy.sparse.linalg import splu  # slow to import

    return splu(sparse.csc_array(block), **how)


def _triangle(matrix: Any) -> Any:
    """Local. Those of a triangular matrix: no fill, and a solution is one substitution."""
    how = {"permc_spec": "NATURAL", "diag_pivot_thresh": 0.0, "options": {"Equil": False}}
    return _whole(matrix, relax=1, **how)


def _dropped(block: Any, fill_factor: float, drop_tol: float | None) -> Any:
    """Local. SuperLU's incomplete factors."""
    from scipy.sparse.linalg import spilu  # slow to import

    least = 1e-4 if drop_tol is None else drop_tol
    how: dict[str, Any] = {"permc_spec": "NATURAL", "diag_pivot_thresh": 0.0}
    return spilu(sparse.csc_array(block), drop_tol=least, fill_factor=fill_factor, **how)


class SSOR(_Block):
    """Block Jacobi: M is the inverse of omega / (2 - omega) (D / omega + L) D^-1 (D / omega + U).

    D, L and U are diagonal, lower and upper part of the own rows and columns of each rank;
    ``omega`` 1 is the symmetric Gauss-Seidel method. ``apply`` is Local: what couples the ranks is
    left out, so that the number of iterations depends on the number of ranks. M is Hermitian and
    positive definite where the matrix is, as cg needs it.

    Examples
    --------
    >>> with diags(comm, [-1, 2, -1], [-1, 0, 1], shape=(8, 8)) as A:
    ...     b = A @ np.ones(A.col_range[1] - A.col_range[0])
    ...     np.allclose(cg(A, b, M=SSOR(A), rtol=1e-8).x, 1, atol=1e-3)
    True
    """

    def __init__(self, A: DistMatrix, *, omega: float = 1.0) -> None:
        """Collective. ``ValueError`` on every rank for an omega that is not between 0 and 2, or a
        diagonal with a zero."""
        self._omega = omega
        super().__init__(A)

    def _build(self) -> None:
        A, omega = self.matrix, self._omega
        self._kind = np.result_type(A.dtype, np.float64)
        with agreed(A.comm, ("SSOR", plain(omega))):
            A.check_square("SSOR")
            if not 0 < omega < 2:
                raise ValueError(f"omega is {omega}; it must be between 0 and 2")
            checked_diagonal(A)
            self._factors = _of_own_block(A, relaxed, omega)
