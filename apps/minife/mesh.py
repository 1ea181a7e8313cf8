"""A mesh of hexahedra in the unit cube, and which rank has which elements and nodes. No MPI.

A rank has a box of elements. It owns the nodes at their lower corners, and at the upper end of
the cube those of the upper corners too; the other nodes of its elements are owned by ranks above.
Nodes are numbered rank by rank, in each box with the last axis fastest, so that every rank owns a
contiguous range of unknowns.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from onesided.apps.minife.bisection import Box, Triple, bisected
from onesided.sparse import Partition

Values = NDArray[np.float64]

#: How far along each axis inner nodes are moved by a distortion of 1.
_DIRECTION = (1.0, -0.8, 0.6)


@dataclass(frozen=True)
class Mesh:
    """So many elements along each axis, their boxes by rank, and how far inner nodes are moved.

    Nodes of a distorted mesh lie on smooth curves; those of the surface stay where they are.
    """

    elements: Triple
    boxes: tuple[Box, ...]
    distortion: float = 0.0

    @classmethod
    def of(cls, elements: Triple, ranks: int, distortion: float = 0.0) -> Mesh:
        """Local. Bisected for so many ranks; ``ValueError`` where they are too many."""
        return cls(elements, tuple(bisected(Box((0, 0, 0), elements), ranks)), distortion)

    @property
    def points(self) -> Triple:
        """Local. Nodes along each axis."""
        a, b, c = (count + 1 for count in self.elements)
        return a, b, c

    @property
    def nodes(self) -> int:
        """Local. How many there are."""
        return prod(self.points)

    @property
    def spacing(self) -> float:
        """Local. The longest edge of an element that is not distorted."""
        return 1.0 / min(self.elements)

    def corners(self, rank: int) -> Box:
        """Local. All nodes of a rank's elements."""
        box = self.boxes[rank]
        a, b, c = (stop + 1 for stop in box.stop)
        return Box(box.start, (a, b, c))

    def own(self, rank: int) -> Box:
        """Local. The nodes that a rank owns."""
        box = self.boxes[rank]
        a, b, c = (
            stop + (stop == count) for stop, count in zip(box.stop, self.elements, strict=True)
        )
        return Box(box.start, (a, b, c))

    @cached_property
    def partition(self) -> Partition:
        """Local. Who owns which numbers."""
        sizes = [self.own(rank).size for rank in range(len(self.boxes))]
        return Partition.from_lengths(np.array(sizes, np.int64))

    def numbers(self, box: Box) -> NDArray[np.int64]:
        """Local. Of the nodes in a box, as an array of its shape."""
        found = np.empty(box.extent, np.int64)
        for rank in range(len(self.boxes)):
            own = self.own(rank)
            part = own.common(box)
            if part.size:
                start, stop = self.partition.range(rank)
                mine = np.arange(start, stop).reshape(own.extent)
                found[part.within(box)] = mine[part.within(own)]
        return found

    def surface(self, box: Box) -> NDArray[np.bool_]:
        """Local. Which nodes of a box lie on the surface of the cube."""
        marks = np.zeros(box.extent, np.bool_)
        for axis, count in enumerate(self.elements):
            layers = np.moveaxis(marks, axis, 0)
            for place in (0, count):
                if box.start[axis] <= place < box.stop[axis]:
                    layers[place - box.start[axis]] = True
        return marks

    def coordinates(self, box: Box) -> Values:
        """Local. Of the nodes in a box: (3, *its shape)."""
        lines = [
            np.arange(start, stop) / count
            for start, stop, count in zip(box.start, box.stop, self.elements, strict=True)
        ]
        places = np.array(np.meshgrid(*lines, indexing="ij"))
        if self.distortion:
            bumps = [np.where(x % 1.0 == 0.0, 0.0, np.sin(np.pi * x)) for x in lines]
            bump = self.distortion * np.multiply.outer(np.multiply.outer(*bumps[:2]), bumps[2])
            for place, factor in zip(places, _DIRECTION, strict=True):
                place += factor * bump
        return places
