"""Sparse matrices over MPI ranks: read, distribute, multiply with persistent halos."""

if __name__ == "sparse":  # imported from the source folder, not from the package
    raise ImportError("import onesided.sparse, not sparse", name="sparse")

from onesided.sparse.errors import MatrixMarketError
from onesided.sparse.generators import stencil27
from onesided.sparse.halo import Halo
from onesided.sparse.matrix import DistMatrix
from onesided.sparse.partition import Partition
from onesided.sparse.readers import read
from onesided.sparse.scatter import from_rows, from_scipy

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
