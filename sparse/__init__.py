"""Sparse matrices over MPI ranks: read, distribute, multiply with persistent halos."""

if __name__ == "sparse":  # imported from the source folder, not from the package
    raise ImportError("import onesided.sparse, not sparse", name="sparse")

from .errors import MatrixMarketError
from .generators import stencil27
from .halo import Halo
from .matrix import DistMatrix
from .partition import Partition
from .readers import read
from .scatter import from_rows, from_scipy

__all__ = [
    "DistMatrix",
    "Halo",
    "MatrixMarketError",
    "Partition",
    "from_rows",
    "from_scipy",
    "read",
    "stencil27",
]
