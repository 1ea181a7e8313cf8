"""Distributed matrices as PETSc's, for PETSc's solvers, and back; needs petsc4py.

A shell multiplies by the matrix; an AIJ matrix has its entries, which PETSc's own multigrid, hypre
and MUMPS need.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI
from scipy import sparse

from onesided.collectives import agreed
from onesided.sparse.assembly import from_rows
from onesided.sparse.matrix import DistMatrix
from onesided.sparse.moving import lengths


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
        self.matrix.multiply(x.array_r, y.array_w)

    def multTranspose(self, _shell: Any, x: Any, y: Any) -> None:
        """Collective. y = A.T x."""
        self.matrix.T.multiply(x.array_r, y.array_w)

    def multHermitian(self, _shell: Any, x: Any, y: Any) -> None:
        """Collective. y = A.H x."""
        self.matrix.H.multiply(x.array_r, y.array_w)

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
    PETSc = _petsc(matrix)
    n_rows, n_cols = (stop - start for start, stop in (matrix.row_range, matrix.col_range))
    sizes = ((n_rows, matrix.shape[0]), (n_cols, matrix.shape[1]))
    made = PETSc.Mat().createPython(sizes, ShellContext(matrix), comm=matrix.comm)
    made.setUp()
    return made


def aij(matrix: DistMatrix) -> Any:
    """Collective. A ``petsc4py.PETSc.Mat`` of type aij with the same rows, entries and partitions.

    The entries are copied; destroy it when you like. Raises the same error on every rank:
    ``ImportError`` and ``TypeError`` as :func:`shell`, ``ValueError`` where PETSc's indices are too
    narrow.
    """
    PETSc = _petsc(matrix)
    kind = np.dtype(PETSc.IntType)
    with agreed(matrix.comm, "a PETSc AIJ matrix"):
        rows = matrix.local_rows()
        most = np.iinfo(kind).max
        if max(*matrix.shape, len(rows.data)) > most:
            raise ValueError(f"PETSc's indices go to {most}; the matrix is {matrix.shape}")
        parts = rows.indptr.astype(kind), rows.indices.astype(kind), rows.data
    n_rows, n_cols = (stop - start for start, stop in (matrix.row_range, matrix.col_range))
    sizes = ((n_rows, matrix.shape[0]), (n_cols, matrix.shape[1]))
    made = PETSc.Mat().createAIJWithArrays(sizes, parts, comm=matrix.comm)
    made.assemble()
    return made


def from_aij(
    mat: Any, comm: MPI.Intracomm | None = None, *, method: str = "auto", kernel: str = "auto"
) -> DistMatrix:
    """Collective. The matrix of a ``petsc4py.PETSc.Mat`` of type aij, with its rows and columns.

    ``comm`` None: that of PETSc, which must live as long as the matrix.
    """
    comm = mat.getComm().tompi4py() if comm is None else comm
    with agreed(comm, "from_aij"):
        indptr, indices, data = mat.getValuesCSR()
        n_rows, n_cols = mat.getLocalSize()
        whole = sparse.csr_array((data, indices, indptr), shape=(n_rows, mat.getSize()[1]))
    columns = lengths(comm, n_cols)
    return from_rows(comm, whole, columns=columns, method=method, kernel=kernel)


def _petsc(matrix: DistMatrix) -> Any:
    """Collective. The module, if its scalars are those of the matrix."""
    with agreed(matrix.comm, "a PETSc matrix"):
        from petsc4py import PETSc  # type: ignore[import-not-found]

        scalar = np.dtype(PETSc.ScalarType)
        if scalar != matrix.dtype:
            raise TypeError(f"the matrix is {matrix.dtype}, PETSc's scalars are {scalar}")
    return PETSc
