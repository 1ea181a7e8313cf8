"""The system of one stage: matrix, right hand side, what is read and written for them."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from onesided.apps.failures import user_errors
from onesided.apps.hpccg.grid import DTYPE, Grid, right_side
from onesided.apps.mini.bandwidth import Bandwidth, bandwidth
from onesided.collectives import agreed
from onesided.sparse import DistMatrix, Linear, cg
from onesided.sparse.partition import index_dtype
from onesided.sparse.solvers import Solution

#: Vectors that an iteration has to read and write at least: two for (p, A p), three for the next
#: residual and its square, five for the next x and p.
VECTORS = 10
FLOPS_PER_ROW = 10  # of the vectors in an iteration, as the reference counts: 4 and 6
FLOPS_PER_ENTRY = 2


class System:
    """A x = b on the ranks of ``comm``, which is borrowed.

    ``matrix`` has a halo of its own, which no run uses.
    """

    def __init__(self, comm: MPI.Intracomm, grid: Grid) -> None:
        """Collective. :class:`CommandError` where there is not enough memory."""
        partition = grid.partition(comm.size)
        with user_errors():
            with agreed(comm):
                rows = grid.rows(partition.range(comm.rank))
                self.b = right_side(rows)
            self.matrix = DistMatrix(comm, rows, partition, partition, method="p2p")
        self.comm, self.grid = comm, grid
        self._product_bytes, self._matrix_bytes = _bytes(self.matrix, rows.nnz)

    def bandwidth(self) -> Bandwidth:
        """Collective. That of memory now, with as many bytes as the matrix has.

        :class:`.CommandError` on every rank where one has not the memory for it.
        """
        with user_errors():
            return bandwidth(self.comm, self._matrix_bytes)

    @property
    def unknowns(self) -> int:
        """Local. The points of the grid."""
        return self.grid.points

    def solution(self, operator: Linear, rtol: float, most: int) -> Solution:
        """Collective. By conjugate gradients from x = 0, the products those of ``operator``."""
        return cg(operator, self.b, rtol=rtol, maxiter=most)

    @property
    def flops(self) -> float:
        """Local. Operations of an iteration on all ranks, as the reference counts them."""
        return float(FLOPS_PER_ENTRY * self.matrix.nnz + FLOPS_PER_ROW * self.grid.points)

    def bounds(self, memory: Bandwidth) -> tuple[float, float]:
        """Collective. Seconds that memory needs for a product, and for an iteration."""
        vectors = VECTORS * len(self.b) * DTYPE.itemsize
        own = np.array([self._product_bytes, self._product_bytes + vectors], float)
        self.comm.Allreduce(MPI.IN_PLACE, own, op=MPI.MAX)
        product, iteration = (own / memory.best).tolist()
        return product, iteration

    def free(self) -> None:
        """Collective."""
        self.matrix.Free()


def _bytes(matrix: DistMatrix, entries: int) -> tuple[int, int]:
    """Local. What a product reads and writes at least on this rank, and the matrix in this."""
    pattern, rows = matrix.pattern, matrix.row_range[1] - matrix.row_range[0]
    index = np.dtype(index_dtype(max(pattern.n_local, entries))).itemsize
    stored = entries * (DTYPE.itemsize + index) + (rows + 1) * index
    vectors = (rows + pattern.n_local) * DTYPE.itemsize
    return stored + vectors, stored
