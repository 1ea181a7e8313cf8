"""Preconditioners of the solvers: a diagonal, factors of each rank's own block, multigrid."""

from onesided.sparse.preconditioners.amg import AMG
from onesided.sparse.preconditioners.blocks import SSOR, BlockILU, BlockLU, Jacobi
from onesided.sparse.preconditioners.preconditioner import Preconditioner

__all__ = ["AMG", "SSOR", "BlockILU", "BlockLU", "Jacobi", "Preconditioner"]
