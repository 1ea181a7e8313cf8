"""Triangulations of the unit square that are refined along curves, made piece by piece.

A triangle is halved by the line from its apex to the middle of its longest side. It is halved
where that middle lies within ``reach * side`` of a curve, and everywhere up to a coarsest level.
Two triangles at a side see the same middle, so both are halved or none is; and with a reach of
1.21 or more a triangle that is halved has parents whose neighbors are halved, too (the distance
of a middle to those of the halves is a part of the side that shrinks by sqrt(2) from level to
level). So no vertex ever lies inside a side, and any piece can be made without its surroundings.

Source of the halving: Mitchell, Adaptive refinement for arbitrary finite-element spaces with
hierarchical bases, J. Comput. Appl. Math. 36 (1991) 65-78 (newest-vertex bisection).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LEAST_REACH = 1.25
_SAMPLES = 512  # points along an edge of the square that measure the area near the curves
_NEAR = 0.02  # distance below which that area is taken as proportional
_CURVES = 4

Points = NDArray[np.int32]


class Curves:
    """Circles in the unit square that a seed has chosen."""

    def __init__(self, seed: int) -> None:
        random = np.random.Generator(np.random.PCG64(seed))
        self._circles = random.uniform((0.2, 0.2, 0.08), (0.8, 0.8, 0.3), (_CURVES, 3))
        middles = (np.arange(_SAMPLES) + 0.5) / _SAMPLES
        x, y = np.meshgrid(middles, middles)
        self._distances = np.sort(self.distance(x.ravel(), y.ravel()))

    def distance(self, x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
        """The distance of points to the nearest curve."""
        nearest = np.full(x.shape, np.inf)
        for center_x, center_y, radius in self._circles:
            offset = np.sqrt((x - center_x) ** 2 + (y - center_y) ** 2)
            np.minimum(nearest, np.abs(offset - radius), out=nearest)
        return nearest

    def area(self, distance: float) -> float:
        """About how much of the square is so near to a curve."""
        near = max(distance, _NEAR)
        part = float(np.searchsorted(self._distances, near)) / len(self._distances)
        return part * min(distance / _NEAR, 1.0)


@dataclass(frozen=True)
class Refinement:
    """Levels of halving: everywhere up to ``coarse``, and up to ``fine`` near the curves.

    Vertices are integers, 0 to ``extent`` along both axes.
    """

    curves: Curves
    coarse: int
    fine: int
    reach: float

    @property
    def extent(self) -> int:
        """The side of the square in integers, so that every middle is one, too."""
        return 1 << (self.fine // 2 + 1)

    def side(self, level: int) -> float:
        """The longest side of a triangle of this level; the square's is 1."""
        return float(2.0 ** (0.5 * (1 - level)))

    def estimate(self) -> float:
        """About how many triangles there are."""
        near = [
            self.curves.area(self.reach * self.side(level)) * 2.0 ** (level + 1)
            for level in range(self.coarse, self.fine)
        ]
        return 2.0 ** (self.coarse + 1) + sum(near)

    def halved(self, level: int, first: Points, second: Points) -> NDArray[np.bool_]:
        """Which triangles of a level are halved; the ends of their longest sides are given."""
        if level < self.coarse:
            return np.ones(len(first), bool)
        middle = (first + second) / (2.0 * self.extent)
        reach = self.reach * self.side(level)
        near: NDArray[np.bool_] = self.curves.distance(middle[:, 0], middle[:, 1]) <= reach
        return near


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
        return Triangles(
            self.apex[chosen], self.first[chosen], self.last[chosen], self.root[chosen]
        )

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


def whole_square(extent: int) -> Triangles:
    """The two triangles of level 0."""
    corners = np.array([[0, 0], [extent, extent]], np.int32)
    apex = np.array([[0, extent], [extent, 0]], np.int32)
    return Triangles(apex, corners, corners[::-1].copy(), np.zeros(2, np.int32))


def uniform(refinement: Refinement, level: int) -> Triangles:
    """All triangles of a level up to the coarsest, each its own root."""
    triangles = whole_square(refinement.extent)
    for _ in range(level):
        triangles = triangles.split(np.ones(len(triangles), bool))
    root = np.arange(len(triangles), dtype=np.int32)
    return Triangles(triangles.apex, triangles.first, triangles.last, root)


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
