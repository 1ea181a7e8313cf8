"""Incomplete LU factors of each rank's own block."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array

from onesided.collectives.agreement import agreed
from onesided.sparse.matrix import DistMatrix
from onesided.sparse.preconditioners.factors import Factors
from onesided.sparse.preconditioners.jacobi import check_square
from onesided.sparse.preconditioners.preconditioner import OfMatrix


class BlockILU(OfMatrix):
    """Block Jacobi: M solves with incomplete factors L U of the own block of each rank.

    The own block is the own rows by the own columns: what couples the ranks is left out, so that
    the number of iterations depends on the number of ranks, and ``apply`` is Local.

    The factors are SuperLU's (SciPy's ``spilu``) in the natural order without pivoting: entries
    below ``drop_tol`` times the largest of their column are dropped, and so many of the smallest
    that about ``fill_factor`` times the entries of the block are left. With 1 they need the memory
    of ILU(0), in places chosen by size; 10 is SciPy's own default and much stronger.

    L U is not Hermitian where the matrix is, and cg stalls with it: with ``hermitian`` M solves
    with ``L |D| L^H`` instead, D being the diagonal of U, which is Hermitian and positive definite.
    """

    def __init__(
        self,
        A: DistMatrix,
        *,
        hermitian: bool = False,
        fill_factor: float = 1.0,
        drop_tol: float = 1e-2,
    ) -> None:
        """Collective. ``ValueError`` on every rank where a block has no factors, with its rows."""
        self._choices = hermitian, fill_factor, drop_tol
        super().__init__(A)

    def _build(self) -> None:
        A, (hermitian, fill_factor, drop_tol) = self.matrix, self._choices
        with agreed(A.comm, ("BlockILU", hermitian, fill_factor, drop_tol)):
            check_square(A)
            self._factors = _factors(A, fill_factor, drop_tol)
            self._scale: NDArray[Any] | None = None
            if hermitian and self._factors is not None:
                self._factors, self._scale = _hermitian(self._factors, A.row_range)

    def apply(self, r: NDArray[Any], out: NDArray[Any]) -> None:
        """Local. out = M r; SuperLU allocates results before they are copied."""
        if self._factors is None:
            return
        half = self._factors.solve(r)
        if self._scale is not None:
            np.multiply(half, self._scale, out=half)
            half = self._factors.solve(half, "H")
        out[:] = half


def _factors(A: DistMatrix, fill_factor: float, drop_tol: float) -> Factors | None:
    """Local. SuperLU's incomplete factors of the own block; None where it is empty."""
    block = csc_array(A.own_block())
    start, stop = A.row_range
    if not block.shape[0]:
        return None
    if not np.all(np.isfinite(block.data)):
        raise ValueError(f"rows {start} to {stop} hold what is no number")
    from scipy.sparse.linalg import spilu  # slow to import

    try:
        lu = spilu(
            block,
            drop_tol=drop_tol,
            fill_factor=fill_factor,
            permc_spec="NATURAL",
            diag_pivot_thresh=0.0,
        )
    except RuntimeError as error:
        raise ValueError(f"rows {start} to {stop} have no incomplete factors: {error}") from error
    return Factors(lu, block.dtype)


def _hermitian(factors: Factors, rows: tuple[int, int]) -> tuple[Factors, NDArray[Any]]:
    """Local. L alone, and one over the absolute values of the diagonal of U."""
    pivots = np.abs(factors.lu.U.diagonal())
    if np.any(factors.lu.perm_r != np.arange(len(pivots))) or not np.all(pivots > 0):
        raise ValueError(f"rows {rows[0]} to {rows[1]} have a zero pivot")
    return Factors.of_triangle(factors.lu.L), 1.0 / pivots
