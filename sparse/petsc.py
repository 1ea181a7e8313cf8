"""Distributed matrices as PETSc's shell matrix, for PETSc's solvers; needs petsc4py."""

from __future__ import annotations

from typing import Any

import numpy as np

from onesided.collectives import agreed
from onesided.sparse.linear import Linear
from onesided.sparse.matrix import DistMatrix


class ShellContext:
    """What PETSc calls for a matrix of type python: products, and the diagonal.

    PETSc's vectors have the layout of the matrix's partitions, so the arrays of both are the
    ranks' blocks and nothing is copied.
    """

    def __init__(self, matrix: DistMatrix) -> None:
        """Local. Every product is Collective."""
        self.matrix = matrix

    def mult(self, _shell: Any, x: Any, y: Any) -> None:
        """Collective. y = A x."""
        _multiply(self.matrix, x, y)

    def multTranspose(self, _shell: Any, x: Any, y: Any) -> None:
        """Collective. y = A.T x."""
        _multiply(self.matrix.T, x, y)

    def multHermitian(self, _shell: Any, x: Any, y: Any) -> None:
        """Collective. y = A.H x."""
        _multiply(self.matrix.H, x, y)

    def getDiagonal(self, _shell: Any, diagonal: Any) -> None:
        """Local. The diagonal, for PETSc's Jacobi preconditioner."""
        diagonal.array_w[...] = self.matrix.diagonal()


def shell(matrix: DistMatrix) -> Any:
    """Collective. A ``petsc4py.PETSc.Mat`` of type python that multiplies by the matrix.

    It borrows the matrix: destroy it, and PETSc's solvers that have it, before ``matrix.Free()``;
    what is left to the end of the program may crash it there. PETSc must be built for the MPI of
    this program. Raises the same error on every rank: ``ImportError`` where petsc4py is missing,
    ``TypeError`` where PETSc's scalars are not the matrix's dtype.
    """
    with agreed(matrix.comm, "a PETSc shell"):
        from petsc4py import PETSc  # type: ignore[import-not-found]

        scalar = np.dtype(PETSc.ScalarType)
        if scalar != matrix.dtype:
            raise TypeError(f"the matrix is {matrix.dtype}, PETSc's scalars are {scalar}")
    n_rows, n_cols = (stop - start for start, stop in (matrix.row_range, matrix.col_range))
    sizes = ((n_rows, matrix.shape[0]), (n_cols, matrix.shape[1]))
    made = PETSc.Mat().createPython(sizes, ShellContext(matrix), comm=matrix.comm)
    made.setUp()
    return made


def _multiply(matrix: Linear, x: Any, y: Any) -> None:
    """Collective. Multiply PETSc's vector x into y, which PETSc keeps apart."""
    matrix.multiply(x.array_r, y.array_w)
