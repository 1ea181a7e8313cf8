"""Sparse matrices over MPI ranks: read, distribute, multiply with persistent halos, solve."""

if __name__ == "sparse":  # imported from the source folder, not from the package
    raise ImportError("import onesided.sparse, not sparse", name="sparse")

from onesided.sparse import petsc
from onesided.sparse.assembly import Assembler, from_rows, from_scipy, from_triplets
from onesided.sparse.combined import block_array, diags, kron
from onesided.sparse.errors import HarwellBoeingError, MatrixFileError, MatrixMarketError
from onesided.sparse.files.marketwriter import write_matrixmarket
from onesided.sparse.files.packages import read_vector
from onesided.sparse.files.readers import read
from onesided.sparse.files.store import write
from onesided.sparse.grids import stencil7, stencil27
from onesided.sparse.halo import Halo, HaloPattern
from onesided.sparse.linear import Linear, LinearOperator
from onesided.sparse.matrix import DistMatrix
from onesided.sparse.ordering import Ordering, partitioned
from onesided.sparse.partition import Partition
from onesided.sparse.preconditioners import AMG, SSOR, BlockILU, BlockLU, Jacobi, Preconditioner
from onesided.sparse.report import MatrixReport
from onesided.sparse.solvers import (
    Eigenpairs,
    Solution,
    bicgstab,
    cg,
    chebyshev,
    eigenvalue_bounds,
    fgmres,
    gmres,
    inner,
    lobpcg,
    lsmr,
    lsqr,
    minres,
    pagerank,
    pipelined_cg,
    power_iteration,
)
from onesided.sparse.vector import DistVector

__all__ = [
    "AMG", "SSOR", "Assembler", "BlockILU", "BlockLU", "DistMatrix", "DistVector", "Eigenpairs",
    "Halo", "HaloPattern", "HarwellBoeingError", "Jacobi", "Linear", "LinearOperator",
    "MatrixFileError", "MatrixMarketError", "MatrixReport", "Ordering", "Partition",
    "Preconditioner", "Solution", "bicgstab", "block_array", "cg", "chebyshev", "diags",
    "eigenvalue_bounds", "fgmres", "from_rows", "from_scipy", "from_triplets", "gmres", "inner",
    "kron", "lobpcg", "lsmr", "lsqr", "minres", "pagerank", "partitioned", "petsc", "pipelined_cg",
    "power_iteration", "read", "read_vector", "stencil7", "stencil27", "write",
    "write_matrixmarket",
]  # fmt: skip
