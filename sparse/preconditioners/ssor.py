"""Symmetric successive overrelaxation on each rank's own block."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, dia_array, tril, triu

from onesided.collectives.agreement import agreed
from onesided.sparse.matrix import DistMatrix
from onesided.sparse.preconditioners.factors import Factors
from onesided.sparse.preconditioners.jacobi import checked_diagonal
from onesided.sparse.preconditioners.preconditioner import OfMatrix


class SSOR(OfMatrix):
    """Block Jacobi: M is the inverse of omega / (2 - omega) (D / omega + L) D^-1 (D / omega + U).

    D, L and U are diagonal, lower and upper part of the own rows and columns of each rank;
    ``omega`` 1 is the symmetric Gauss-Seidel method. ``apply`` is Local: what couples the ranks is
    left out, so that the number of iterations depends on the number of ranks. M is Hermitian and
    positive definite where the matrix is, as cg needs it.

    Examples
    --------
    >>> A = diags(comm, [-1, 2, -1], [-1, 0, 1], shape=(8, 8))
    >>> b = A @ np.ones(A.col_range[1] - A.col_range[0])
    >>> found = cg(A, b, M=SSOR(A), rtol=1e-8)
    >>> bool(np.allclose(found.x, 1, atol=1e-3))
    True
    >>> A.Free()
    """

    def __init__(self, A: DistMatrix, *, omega: float = 1.0) -> None:
        """Collective. ``ValueError`` on every rank for an omega that is not between 0 and 2, or a
        diagonal with a zero."""
        self._omega = omega
        super().__init__(A)

    def _build(self) -> None:
        A, omega = self.matrix, self._omega
        with agreed(A.comm, ("SSOR", omega)):
            A.check_square("SSOR")
            if not 0 < omega < 2:
                raise ValueError(f"omega is {omega}; it must be between 0 and 2")
            diagonal = checked_diagonal(A)
            block: Any = csc_array(A.own_block())
            size = block.shape[0]
            scaled: Any = dia_array((diagonal[None, :] / omega, [0]), shape=(size, size))
            self._scale = diagonal * ((2.0 - omega) / omega)
            self._lower = Factors.of_triangle(tril(block, -1) + scaled) if size else None
            self._upper = Factors.of_triangle(triu(block, 1) + scaled) if size else None

    def apply(self, r: NDArray[Any], out: NDArray[Any]) -> None:
        """Local. out = M r; SuperLU allocates two results on the way."""
        if self._lower is None or self._upper is None:
            return
        half = self._lower.solve(r)
        np.multiply(half, self._scale, out=half)
        out[:] = self._upper.solve(half)
