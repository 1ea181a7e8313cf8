"""Distributed matrices as SciPy's LinearOperator, of whole vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator

from onesided.sparse.linear import Linear
from onesided.sparse.moving import everywhere


class WholeOperator(LinearOperator):
    """A distributed matrix that multiplies whole vectors, the same on every rank.

    Every rank keeps x and y whole, multiplies its rows, and gathers the blocks of y from all
    ranks: the matrix and its products are distributed, the vectors are not. All ranks call a
    solver together, with equal arguments, and each gets the whole solution.

    Every solver of ``scipy.sparse.linalg`` that takes a LinearOperator is right with it, as the
    dot products of a rank are those of the whole vectors: ``cg``, ``minres``, ``gmres``,
    ``bicgstab``, ``lsqr``, ``lsmr``, ``eigsh``, ``svds``, ``expm_multiply`` ... Ranks must make the
    same decisions, so they need the same start: give ``eigsh``, ``eigs`` and ``svds`` a ``v0``,
    ``lobpcg`` its block, and seed what draws random numbers. Ranks whose processors round in
    different ways may stop after different numbers of iterations, and wait for ever.
    """

    def __init__(self, matrix: Linear) -> None:
        """Local. Every use is Collective."""
        super().__init__(matrix.dtype, matrix.shape)  # type: ignore[call-arg]
        self.matrix = matrix

    def _matvec(self, x: NDArray[Any]) -> NDArray[Any]:
        return self._matmat(np.asarray(x).reshape(-1))

    def _matmat(self, x: NDArray[Any]) -> NDArray[Any]:
        """Collective. All of A x on every rank."""
        matrix = self.matrix
        block = matrix.dot(np.asarray(x)[slice(*matrix.col_range)])
        return everywhere(matrix.comm, matrix.row_partition, block)

    def _adjoint(self) -> WholeOperator:
        return WholeOperator(self.matrix.H)

    def _transpose(self) -> WholeOperator:
        return WholeOperator(self.matrix.T)
