"""Preconditioners of the solvers: a diagonal, and factors of each rank's own block."""

from onesided.sparse.preconditioners.ilu import BlockILU
from onesided.sparse.preconditioners.jacobi import Jacobi
from onesided.sparse.preconditioners.preconditioner import Preconditioner
from onesided.sparse.preconditioners.ssor import SSOR

__all__ = ["SSOR", "BlockILU", "Jacobi", "Preconditioner"]
