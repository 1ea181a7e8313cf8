"""Solvers on distributed matrices; all work on blocks of vectors and on DistVector alike."""

from onesided.sparse.solvers.bicgstab import bicgstab
from onesided.sparse.solvers.cg import cg, pipelined_cg
from onesided.sparse.solvers.chebyshev import chebyshev, eigenvalue_bounds
from onesided.sparse.solvers.eigen import lobpcg, power_iteration
from onesided.sparse.solvers.gmres import fgmres, gmres, inner
from onesided.sparse.solvers.lsqr import lsmr, lsqr
from onesided.sparse.solvers.minres import minres
from onesided.sparse.solvers.pagerank import pagerank
from onesided.sparse.solvers.solution import Eigenpairs, Solution

__all__ = [
    "Eigenpairs", "Solution", "bicgstab", "cg", "chebyshev", "eigenvalue_bounds", "fgmres", "gmres",
    "inner", "lobpcg", "lsmr", "lsqr", "minres", "pagerank", "pipelined_cg", "power_iteration",
]  # fmt: skip
