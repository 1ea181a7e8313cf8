"""Factors of each rank's own block: incomplete ones, or whole ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray
from scipy.sparse import csc_array

from onesided.collectives.agreement import agreed
from onesided.sparse.matrix import DistMatrix
from onesided.sparse.preconditioners.factors import Factors, PatternFactors
from onesided.sparse.preconditioners.preconditioner import OfMatrix


class BlockILU(OfMatrix):
    """Block Jacobi: M solves with incomplete factors L U of the own block of each rank.

    The own block is the own rows by the own columns: what couples the ranks is left out, so that
    the number of iterations depends on the number of ranks, and ``apply`` is Local.

    Without other arguments the factors have the pattern of the block, ILU(0), as PETSc's default;
    they are Hermitian and positive definite where the blocks and their pivots are, and then cg
    takes them. ``fill_factor`` or ``drop_tol`` ask for SuperLU's (SciPy's ``spilu``) in the natural
    order without pivoting: entries below ``drop_tol`` (1e-4) times the largest of their column are
    dropped, and so many of the smallest that about ``fill_factor`` (10) times the entries of the
    block are left. Those are not Hermitian where the matrix is.

    With ``hermitian`` M solves with ``L |D| L^H`` instead, D being the diagonal of U, which is
    Hermitian and positive definite whatever the signs of the pivots.

    Examples
    --------
    >>> A = diags(comm, [-1, 2, -1], [-1, 0, 1], shape=(8, 8))
    >>> b = A @ np.ones(A.col_range[1] - A.col_range[0])
    >>> found = cg(A, b, M=BlockILU(A, hermitian=True), rtol=1e-8)
    >>> bool(np.allclose(found.x, 1, atol=1e-3))
    True
    >>> A.Free()
    """

    def __init__(
        self,
        A: DistMatrix,
        *,
        hermitian: bool = False,
        fill_factor: float | None = None,
        drop_tol: float | None = None,
    ) -> None:
        """Collective. ``ValueError`` on every rank where a block has no factors, with its rows, or
        is not Hermitian where factors on its pattern are to be."""
        self._choices = hermitian, fill_factor, drop_tol
        super().__init__(A)

    def _build(self) -> None:
        A, (hermitian, fill_factor, drop_tol) = self.matrix, self._choices
        own_pattern = fill_factor is None and drop_tol is None
        self._factors: Factors | PatternFactors | None = None
        self._scale: NDArray[Any] | None = None
        with agreed(A.comm, ("BlockILU", hermitian, fill_factor, drop_tol)):
            A.check_square("BlockILU")
            block = _own_block(A)
            if block is None:
                definite = True
            elif own_pattern:
                factors = _made(A, lambda: PatternFactors(block, hermitian))
                self._factors, definite = factors, factors.definite
                if hermitian and not definite:
                    raise ValueError(f"{_rows(A)} are not Hermitian")
            else:
                made = _made(A, lambda: _dropped(block, fill_factor or 10.0, drop_tol))
                self._factors, definite = made, hermitian
                if hermitian:
                    self._factors, self._scale = _hermitian(made, A)
        self.hermitian = bool(A.comm.allreduce(definite, op=MPI.LAND))

    def apply(self, r: NDArray[Any], out: NDArray[Any]) -> None:
        """Local. out = M r; results are allocated before they are copied."""
        if self._factors is None:
            return
        half = self._factors.solve(r)
        if self._scale is not None and isinstance(self._factors, Factors):
            np.multiply(half, self._scale, out=half)
            half = self._factors.solve(half, "H")
        out[:] = half


class BlockLU(OfMatrix):
    """Block Jacobi: M solves with the own block of each rank, by SuperLU; additive Schwarz's method
    without overlap. Hermitian where the matrix is, and definite where that is.

    Examples
    --------
    >>> A = diags(comm, [-1, 2, -1], [-1, 0, 1], shape=(8, 8))
    >>> b = A @ np.ones(A.col_range[1] - A.col_range[0])
    >>> found = cg(A, b, M=BlockLU(A), rtol=1e-8)
    >>> bool(np.allclose(found.x, 1, atol=1e-3))
    True
    >>> A.Free()
    """

    def _build(self) -> None:
        """Collective. ``ValueError`` on every rank where a block is singular, with its rows."""
        A = self.matrix
        self._factors: Factors | None = None
        with agreed(A.comm, "BlockLU"):
            A.check_square("BlockLU")
            block = _own_block(A)
            if block is not None:
                self._factors = _made(A, lambda: _whole(block))

    def apply(self, r: NDArray[Any], out: NDArray[Any]) -> None:
        """Local. out = M r; SuperLU allocates the result before it is copied."""
        if self._factors is not None:
            out[:] = self._factors.solve(r)


def _rows(A: DistMatrix) -> str:
    return f"rows {A.row_range[0]} to {A.row_range[1]}"


def _own_block(A: DistMatrix) -> Any:
    """Local. This rank's rows by its own columns, CSR; None where there are none."""
    block = A.own_block()
    if not block.shape[0]:
        return None
    if not np.all(np.isfinite(block.data)):
        raise ValueError(f"{_rows(A)} hold what is no number")
    return block


def _made(A: DistMatrix, make: Any) -> Any:
    """Local. Factors; what the library says of a block that has none names the rows."""
    try:
        return make()
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"{_rows(A)} have no factors: {error}") from error


def _whole(block: Any) -> Factors:
    from scipy.sparse.linalg import splu  # slow to import

    return Factors(splu(csc_array(block)), block.dtype)


def _dropped(block: Any, fill_factor: float, drop_tol: float | None) -> Factors:
    """Local. SuperLU's incomplete factors."""
    from scipy.sparse.linalg import spilu  # slow to import

    least = 1e-4 if drop_tol is None else drop_tol
    how: dict[str, Any] = {"permc_spec": "NATURAL", "diag_pivot_thresh": 0.0}
    lu = spilu(csc_array(block), drop_tol=least, fill_factor=fill_factor, **how)
    return Factors(lu, block.dtype)


def _hermitian(factors: Factors, A: DistMatrix) -> tuple[Factors, NDArray[Any]]:
    """Local. L alone, and one over the absolute values of the diagonal of U."""
    pivots = np.abs(factors.lu.U.diagonal())
    if np.any(factors.lu.perm_r != np.arange(len(pivots))) or not np.all(pivots > 0):
        raise ValueError(f"{_rows(A)} have a zero pivot")
    return Factors.of_triangle(factors.lu.L), 1.0 / pivots
