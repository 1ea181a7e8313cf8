"""The dual graph of a triangulation that is refined along curves, each rank its own rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray
from scipy import sparse

from onesided.apps.tools.triangles import (
    LEAST_REACH,
    Curves,
    Refinement,
    Triangles,
    refined,
    uniform,
)
from onesided.collectives import agreed
from onesided.sparse.partition import Partition, index_dtype

_ROOT_LEVEL = 13  # at most 16384 triangles are refined one by one
_LEVELS = 8  # of halving between the largest and the smallest triangles
_AT_ONCE = 1 << 18  # triangles that are made at once, about
_LARGEST = 1 << 31


def trace_mesh(comm: MPI.Intracomm, size: int, seed: int = 0) -> sparse.csr_array:
    """Collective. This rank's rows of the dual graph of a triangulation with ``size`` triangles.

    The triangulation of a square is refined along circles chosen by the seed. A row is a
    triangle, its entries, all 1.0, are the up to three others at its sides; the matrix is
    symmetric with an empty diagonal. Rows are numbered along a space-filling curve and in even
    blocks (``Partition.even(size, comm.size)``), columns are global. The matrix depends on size
    and seed alone. No rank holds more than its rows and some 10^5 triangles.

    Raises the same error on every rank: ``ValueError`` for a size outside 1 to 2^31 or a seed
    below 0, ``MismatchError`` where ranks pass different ones.
    """
    with agreed(comm, f"trace_mesh with size={size}, seed={seed}"):
        if not 1 <= size <= _LARGEST or seed < 0:
            raise ValueError(f"a mesh of {size} triangles with seed {seed}")
    curves = Curves(seed)
    refinement = _fitting(curves, size)
    while True:
        roots = _Roots.of(comm, refinement)
        if roots.size >= size:
            break
        refinement = _larger(refinement, size * refinement.estimate() / roots.size)
    rows = Partition.even(size, comm.size).range(comm.rank)
    return _rows(roots, size, *rows)


def _fitting(curves: Curves, size: int) -> Refinement:
    """Half of the triangles or less by the coarsest level, the others near the curves."""
    coarse = max(size.bit_length() - 3, 0)
    for levels in range(_LEVELS, 1, -1):
        refinement = Refinement(curves, coarse, coarse + levels, LEAST_REACH)
        if refinement.estimate() <= size:
            break
    return _larger(refinement, size)


def _larger(refinement: Refinement, size: float) -> Refinement:
    """The same levels with a reach, not smaller, for about so many triangles and some more."""
    low, high = refinement.reach, refinement.reach * 1.005
    while replace(refinement, reach=high).estimate() < size and high < 2.0**refinement.fine:
        low, high = high, 2.0 * high
    for _ in range(30):
        middle = 0.5 * (low + high)
        enough = replace(refinement, reach=middle).estimate() >= size
        low, high = (low, middle) if enough else (middle, high)
    return replace(refinement, reach=1.001 * high)


@dataclass(frozen=True, eq=False)
class _Roots:
    """Large triangles that are refined one by one, and the numbers of what they become.

    The parts of root ``r`` have the numbers ``starts[r]:starts[r + 1]``; ``neighbors[r]`` are the
    roots at its sides, -1 at the edge of the square.
    """

    refinement: Refinement
    level: int
    triangles: Triangles
    starts: NDArray[np.int64]
    neighbors: NDArray[np.int64]

    @classmethod
    def of(cls, comm: MPI.Intracomm, refinement: Refinement) -> _Roots:
        """Collective. Each rank counts the parts of its share of the roots."""
        level = min(refinement.coarse, _ROOT_LEVEL)
        triangles = uniform(refinement, level)
        counts = np.zeros(len(triangles), np.int64)
        share = np.arange(comm.rank, len(triangles), comm.size)
        at_once = int(_AT_ONCE * len(triangles) / refinement.estimate()) + 1
        for first in range(0, len(share), at_once):
            parts = refined(refinement, triangles[share[first : first + at_once]], level)
            counts += np.bincount(parts.root, minlength=len(counts))
        comm.Allreduce(MPI.IN_PLACE, counts, op=MPI.SUM)
        starts = np.concatenate([[0], np.cumsum(counts)])
        here, there = _pairs(triangles)
        neighbors = np.full((len(triangles), 3), -1, np.int64)
        neighbors[here // 3, here % 3] = there // 3
        return cls(refinement, level, triangles, starts, neighbors)

    @property
    def size(self) -> int:
        """Number of triangles in all."""
        return int(self.starts[-1])

    def runs(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Half-open ranges of roots, few at once, whose parts make up the range of numbers."""
        root = int(np.searchsorted(self.starts, start, side="right")) - 1
        last = int(np.searchsorted(self.starts, stop, side="left"))
        while root < last:
            after = int(np.searchsorted(self.starts, self.starts[root] + _AT_ONCE, side="right"))
            after = min(max(after - 1, root + 1), last)
            yield root, after
            root = after

    def parts(self, roots: NDArray[np.int64]) -> tuple[Triangles, NDArray[np.int64]]:
        """What these roots, ascending, become, and the numbers of these triangles."""
        parts = refined(self.refinement, self.triangles[roots], self.level)
        counts = np.diff(self.starts)[roots]
        before = self.starts[roots] - (np.cumsum(counts) - counts)
        return parts, np.arange(len(parts)) + np.repeat(before, counts)


def _rows(roots: _Roots, size: int, start: int, stop: int) -> sparse.csr_array:
    """Local. The rows of a range of numbers; those beyond ``size`` are left out."""
    dtype = index_dtype(3 * size)
    counts, indices = [np.zeros(0, dtype)], [np.zeros(0, dtype)]
    for first, last in roots.runs(start, stop) if start < stop else ():
        around = np.unique(np.append(roots.neighbors[first:last], np.arange(first, last)))
        triangles, numbers = roots.parts(around[around >= 0])
        here, there = _pairs(triangles)
        row, col = numbers[here // 3], numbers[there // 3]
        low, high = max(int(roots.starts[first]), start), min(int(roots.starts[last]), stop)
        inside = (row >= low) & (row < high) & (col < size)
        row, col = row[inside], col[inside]
        ascending = np.lexsort((col, row))
        counts.append(np.bincount(row - low, minlength=high - low).astype(dtype))
        indices.append(col[ascending].astype(dtype))
    indptr = np.concatenate([np.zeros(1, dtype), np.cumsum(np.concatenate(counts), dtype=dtype)])
    columns = np.concatenate(indices)
    return sparse.csr_array((np.ones(len(columns)), columns, indptr), shape=(stop - start, size))


def _pairs(triangles: Triangles) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Sides that two triangles have in common, as 3 * triangle + side, from both triangles."""
    edges = triangles.edges().ravel()
    order = np.argsort(edges)
    ascending = edges[order]
    twice = np.flatnonzero(ascending[1:] == ascending[:-1])
    one, other = order[twice], order[twice + 1]
    return np.concatenate([one, other]), np.concatenate([other, one])
