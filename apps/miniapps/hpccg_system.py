"""The system of one stage: matrix, right hand side, what is read and written for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray
from scipy import sparse

from onesided.apps.bench.race import Contestant, race, repeats, unchecked
from onesided.apps.cli.failures import CommandError, user_errors
from onesided.collectives import agreed
from onesided.sparse import DistMatrix, Linear, Partition, cg, stencil27
from onesided.sparse.partition import index_dtype
from onesided.sparse.solvers import Solution

# The grid of HPCCG, its matrix and its right hand side: pure geometry, no MPI call.
#
# Every rank has a box of nx x ny x nz points; the boxes are stacked in z, as in the reference of
# the Mantevo suite. A point has 27 on the diagonal of its row and -1 for each of up to 26
# neighbors. The right hand side is that of the solution 1 everywhere: 27 less the number of
# neighbors.
#
# By Gershgorin's circles no eigenvalue is below 1, so an entry of x is off by at most the norm of
# the residual.

DIAGONAL = 27.0
DTYPE = np.dtype(np.float64)


@dataclass(frozen=True)
class Grid:
    """``shape`` has the points along z, y and x, the last of which varies fastest."""

    shape: tuple[int, int, int]

    @classmethod
    def stacked(cls, size: tuple[int, int, int], boxes: int) -> Grid:
        """Local. So many boxes of ``size`` points along x, y and z."""
        nx, ny, nz = size
        return cls((nz * boxes, ny, nx))

    @property
    def points(self) -> int:
        """Local. The unknowns."""
        return prod(self.shape)

    @property
    def plane(self) -> int:
        """Local. The points of a plane, which all have the same z."""
        return self.shape[1] * self.shape[2]

    def planes(self, parts: int) -> Partition:
        """Local. Which planes each rank has; :class:`CommandError` for more ranks than planes."""
        if parts > self.shape[0]:
            words = " x ".join(map(str, reversed(self.shape)))
            raise CommandError(
                f"a grid of {words} points has {self.shape[0]} planes along z, too few for "
                f"{parts} ranks"
            )
        return Partition.even(self.shape[0], parts)

    def partition(self, parts: int) -> Partition:
        """Local. Which rows each rank has: those of its planes."""
        return Partition(self.planes(parts).starts * self.plane)

    def rows(self, span: tuple[int, int]) -> sparse.csr_array:
        """Local. The rows in a half-open range, with global columns."""
        rows = stencil27(self.shape, span)
        rows.data[rows.data > 0] = DIAGONAL
        return rows


def right_side(rows: sparse.csr_array) -> NDArray[Any]:
    """Local. The entries of b that belong to these rows."""
    neighbors = np.diff(rows.indptr) - 1
    return np.asarray(DIAGONAL - neighbors, DTYPE)


# The bandwidth of memory, as NumPy reaches it by simple loops over long arrays, on all ranks.
#
# The loops are those of STREAM and some that only read, as most of a product with a matrix is.
# One core does not get all that its memory could give: more streams at a time get more of it, and
# the product of few long rows with a vector, which is BLAS, most of what was tried. So this is a
# measure of what can be expected, and nearly a bound, but no law of nature.
#
# All ranks run at the same time, because they share the memory of a node. The arrays of a loop
# have together as many bytes as what they are compared with, so that they are in the same caches,
# if they are in caches at all; there is a limit, beyond which no cache goes. As in STREAM, bytes
# are those that a loop reads and writes by its text.

ROUNDS = 8
SECONDS = 0.5  # that the probe takes at most, about
REGION = 1e-3  # seconds that a timed region lasts at least
ROWS = 4  # that a product has, beside its vector
LEAST_BYTES, MOST_BYTES = 1 << 16, 1 << 28
ITEM = 8


@dataclass(frozen=True)
class Bandwidth:
    """Bytes per second of one rank while all are at work, by loop; the slowest rank's.

    ``nbytes`` are those of the arrays of one rank.
    """

    loops: dict[str, float]
    nbytes: int

    @property
    def best(self) -> float:
        """Local. That of the fastest loop."""
        return max(self.loops.values())

    def or_faster(self, other: Bandwidth) -> Bandwidth:
        """Local. By loop the faster of two measurements, on a machine whose clocks change."""
        pairs = ((name, max(speed, other.loops[name])) for name, speed in self.loops.items())
        return Bandwidth(dict(pairs), self.nbytes)


def bandwidth(comm: MPI.Intracomm, nbytes: int) -> Bandwidth:
    """Collective. Of all loops, with ``nbytes`` on each rank.

    ``MemoryError`` on every rank where one has not so much memory.
    """
    nbytes = int(comm.allreduce(min(max(nbytes, LEAST_BYTES), MOST_BYTES), op=MPI.MIN))
    with agreed(comm):
        loops = _loops(np.full(nbytes // ITEM, 1.0))
    why = unchecked("loops over memory, whose results nobody reads")
    contestants = [
        Contestant(name, call, why, repeats(comm, call, REGION))
        for name, (call, _) in loops.items()
    ]
    times = race(comm, contestants, iterations=ROUNDS, seconds=SECONDS).times
    speeds = {name: moved / min(times[name]) for name, (_, moved) in loops.items()}
    return Bandwidth(speeds, nbytes)


def _loops(memory: NDArray[np.float64]) -> dict[str, tuple[Callable[[], Any], int]]:
    """Local. By name what is called, and the bytes that it reads and writes."""
    first, second = _parts(memory, 2)
    a, b, c = _parts(memory, 3)
    *_, vector = rows = _parts(memory, ROWS + 1)
    return {
        "copy": (partial(np.copyto, first, second), 2 * first.nbytes),
        "add": (partial(np.add, b, c, a), 3 * a.nbytes),
        "dot": (partial(np.vdot, first, second), 2 * first.nbytes),
        "sum": (partial(np.add.reduce, memory), memory.nbytes),
        "rows": (partial(np.dot, rows[:ROWS], vector, np.empty(ROWS)), rows.nbytes),
    }


def _parts(memory: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Local. So many arrays of one length."""
    return memory[: len(memory) // count * count].reshape(count, -1)


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
