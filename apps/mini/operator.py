"""A distributed matrix whose ghosts are brought by a halo of one's own."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from onesided.sparse import DistMatrix, Linear
from onesided.sparse.halo import Ghosts


class Operator(Linear):
    """Local. Products with the entries, the kernels and the pattern of a matrix, by another halo.

    The matrix is borrowed: it must live as long. Of one vector at a time; the transposes are those
    of the matrix. ``halo`` goes with ``Free``.
    """

    def __init__(self, matrix: DistMatrix, halo: Ghosts) -> None:
        self._lay_out(matrix.comm, matrix.row_partition, matrix.col_partition)
        self.dtype, self.matrix, self.halo = matrix.dtype, matrix, halo
        self._freed = False

    @property
    def freed(self) -> bool:
        """Local. True after ``Free``."""
        return self._freed

    @property
    def T(self) -> Linear:
        """Local. The transpose of the matrix, with halos of its own."""
        return self.matrix.T

    @property
    def H(self) -> Linear:
        """Local. The adjoint of the matrix, with halos of its own."""
        return self.matrix.H

    def multiply(self, x: NDArray[Any], y: NDArray[Any]) -> None:
        """Collective. y = A x for one vector, (n,) or (n, 1); a block goes to the matrix."""
        if x.size != len(x):
            self.matrix.multiply(x, y)
            return
        self.matrix.product(self.halo, x.reshape(-1), y.reshape(-1))

    def Free(self) -> None:
        """Collective. Free the halo; a second time has no effect."""
        self.halo.Free()
        self._freed = True
