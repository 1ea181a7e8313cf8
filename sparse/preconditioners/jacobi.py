"""Division by the diagonal."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.collectives.agreement import agreed
from onesided.sparse.matrix import DistMatrix
from onesided.sparse.preconditioners.preconditioner import OfMatrix


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
    >>> A = diags(comm, [-1, 2, -1], [-1, 0, 1], shape=(8, 8))
    >>> b = A @ np.ones(A.col_range[1] - A.col_range[0])
    >>> np.allclose(cg(A, b, M=Jacobi(A), rtol=1e-8).x, 1, atol=1e-3)
    True
    >>> A.Free()
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
