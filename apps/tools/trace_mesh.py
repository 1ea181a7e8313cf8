"""The dual graph of a triangulation that is refined along curves, each rank its own rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray
from scipy import sparse

from onesided.collectives import agreed
from onesided.sparse.partition import Partition, index_dtype

LEAST_REACH = 1.25
_CURVES = 4
_CIRCLES = (0.2, 0.2, 0.08), (0.8, 0.8, 0.3)  # the least and the largest centers, and radii

Points = NDArray[np.int32]


@dataclass(frozen=True)
class Refinement:
    """Levels of halving: everywhere up to ``coarse``, and up to ``fine`` near circles in the unit
    square that a ``seed`` has chosen.

    Vertices are integers, 0 to ``extent`` along both axes.
    """

    seed: int
    coarse: int
    fine: int

    def distance(self, x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
        """The distance of points to the nearest circle."""
        random = np.random.Generator(np.random.PCG64(self.seed))
        nearest = np.full(x.shape, np.inf)
        for center_x, center_y, radius in random.uniform(*_CIRCLES, (_CURVES, 3)):
            offset = np.sqrt((x - center_x) ** 2 + (y - center_y) ** 2)
            np.minimum(nearest, np.abs(offset - radius), out=nearest)
        return nearest

    @property
    def extent(self) -> int:
        """The side of the square in integers, so that every middle is one, too."""
        return 1 << (self.fine // 2 + 1)

    def side(self, level: int) -> float:
        """The longest side of a triangle of this level; the square's is 1."""
        return float(2.0 ** (0.5 * (1 - level)))

    def halved(self, level: int, first: Points, second: Points) -> NDArray[np.bool_]:
        """Which triangles of a level are halved; the ends of their longest sides are given."""
        if level < self.coarse:
            return np.ones(len(first), bool)
        middle = (first + second) / (2.0 * self.extent)
        return np.asarray(self.distance(*middle.T) <= LEAST_REACH * self.side(level))


@dataclass(frozen=True, eq=False)
class Triangles:
    """Triangles in the order of a curve that passes through each from ``first`` to ``last``.

    Arrays of shape (n, 2); the side between ``first`` and ``last`` is the longest one. ``root``
    tells for each triangle of which one, of those that were refined, it is a part.
    """

    apex: Points
    first: Points
    last: Points
    root: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.root)

    def __getitem__(self, chosen: slice | NDArray[np.intp]) -> Triangles:
        arrays = self.apex, self.first, self.last, self.root
        return Triangles(*(each[chosen] for each in arrays))

    def edges(self) -> NDArray[np.int64]:
        """A number for each of the three sides of each triangle, the same for a common side."""
        sums = (self.apex + self.first, self.apex + self.last, self.first + self.last)
        return np.stack([ends[:, 0].astype(np.int64) << 32 | ends[:, 1] for ends in sums], axis=1)

    def split(self, chosen: NDArray[np.bool_]) -> Triangles:
        """Halve the chosen ones; the halves take the place of the whole."""
        wide = self[np.repeat(np.arange(len(self)), 1 + chosen)]
        front = (np.cumsum(1 + chosen) - 2)[chosen]
        back = front + 1
        apex, middle = self.apex[chosen], (self.first[chosen] + self.last[chosen]) >> 1
        wide.last[front] = apex
        wide.first[back] = apex
        wide.apex[front] = wide.apex[back] = middle
        return wide


def uniform(refinement: Refinement, level: int) -> Triangles:
    """All triangles of a level up to the coarsest, each its own root; two are of level 0."""
    side = refinement.extent
    corners = np.array([[0, 0], [side, side]], np.int32)
    apex = np.array([[0, side], [side, 0]], np.int32)
    triangles = Triangles(apex, corners, corners[::-1].copy(), np.zeros(2, np.int32))
    for _ in range(level):
        triangles = triangles.split(np.ones(len(triangles), bool))
    return replace(triangles, root=np.arange(len(triangles), dtype=np.int32))


def refined(refinement: Refinement, triangles: Triangles, level: int) -> Triangles:
    """What triangles of one level become."""
    active = np.ones(len(triangles), bool)
    for depth in range(level, refinement.fine):
        asked = np.flatnonzero(active)
        yes = refinement.halved(depth, triangles.first[asked], triangles.last[asked])
        active[asked] = yes
        if not yes.any():
            break
        triangles = triangles.split(active)
        active = np.repeat(active, 1 + active)
    return triangles


_ROOT_LEVEL = 13  # at most 16384 triangles are refined one by one
_LEVELS = 8  # of halving between the largest and the smallest triangles, at most
_BELOW = 6  # by how many levels the first try is too coarse
_AT_ONCE = 1 << 18  # triangles that are made at once, about
_LARGEST = 1 << 31


def trace_mesh(comm: MPI.Intracomm, size: int, seed: int = 0) -> sparse.csr_array:
    """Collective. This rank's rows of the dual graph of ``size`` triangles of a triangulation.

    The triangulation of a square is refined along circles chosen by the seed, and cut off after so
    many triangles of a curve through all of them. A row is a triangle, its entries, all 1.0, are
    the up to three others at its sides; the matrix is symmetric with an empty diagonal. Rows are
    numbered along a space-filling curve and in even blocks (``Partition.even(size, comm.size)``),
    columns are global. The matrix depends on size and seed alone. No rank holds more than its rows
    and some 10^5 triangles.

    Raises the same error on every rank: ``ValueError`` for a size outside 1 to 2^31 or a seed
    below 0, ``MismatchError`` where ranks pass different ones.
    """
    with agreed(comm, f"trace_mesh with size={size}, seed={seed}"):
        if not 1 <= size <= _LARGEST or seed < 0:
            raise ValueError(f"a mesh of {size} triangles with seed {seed}")
    coarse = max(size.bit_length() - _BELOW, 0)
    while True:
        fine = coarse + min(coarse, _LEVELS)
        roots = _Roots.of(comm, Refinement(seed, coarse, fine))
        if roots.starts[-1] >= size:
            break
        coarse += 1
    rows = Partition.even(size, comm.size).range(comm.rank)
    return _rows(roots, size, *rows)


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
        at_once = (_AT_ONCE >> (refinement.coarse - level + 2)) + 1
        for first in range(0, len(share), at_once):
            parts = refined(refinement, triangles[share[first : first + at_once]], level)
            counts += np.bincount(parts.root, minlength=len(counts))
        comm.Allreduce(MPI.IN_PLACE, counts, op=MPI.SUM)
        starts = np.concatenate([[0], np.cumsum(counts)])
        here, there = _pairs(triangles)
        neighbors = np.full((len(triangles), 3), -1, np.int64)
        neighbors[here // 3, here % 3] = there // 3
        return cls(refinement, level, triangles, starts, neighbors)

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
