"""A mesh of hexahedra in the unit cube, and which rank has which elements and nodes. No MPI.

Elements are the cells of a :class:`~onesided.collectives.Grid`, nodes are staggered along all axes.
A rank owns the nodes at the lower corners of its elements, and at the upper end of the cube those
of the upper corners too; the other nodes of its elements are ghosts, owned by ranks above. Nodes
are numbered rank by rank, in each box with the last axis fastest, so that every rank owns a
contiguous range of unknowns.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from onesided.collectives import PatternError
from onesided.collectives.halo.faces import Blocks, choose_dims
from onesided.sparse import Partition

Values = NDArray[np.float64]
Triple = tuple[int, int, int]

#: Layers of ghosts below and above a block of nodes.
GHOSTS = (0, 1)

#: How far along each axis inner nodes are moved by a distortion of 1.
_DIRECTION = (1.0, -0.8, 0.6)


@dataclass(frozen=True)
class Box:
    """A half-open range along each axis."""

    start: Triple
    stop: Triple

    @classmethod
    def of(cls, ranges: tuple[slice, ...]) -> Box:
        """Local. That of three slices."""
        (a, x), (b, y), (c, z) = ((part.start, part.stop) for part in ranges)
        return cls((a, b, c), (x, y, z))

    @property
    def extent(self) -> Triple:
        """Local. Its lengths; zero where it is empty."""
        a, b, c = (max(0, z - y) for y, z in zip(self.start, self.stop, strict=True))
        return a, b, c

    @property
    def size(self) -> int:
        """Local. How many there are in it."""
        return prod(self.extent)

    def common(self, other: Box) -> Box:
        """Local. What both have; empty where that is nothing."""
        a, b, c = (max(pair) for pair in zip(self.start, other.start, strict=True))
        x, y, z = (min(pair) for pair in zip(self.stop, other.stop, strict=True))
        return Box((a, b, c), (x, y, z))

    def within(self, other: Box) -> tuple[slice, slice, slice]:
        """Local. This box as a part of an array of the other one."""
        a, b, c = (
            slice(start - origin, stop - origin)
            for start, stop, origin in zip(self.start, self.stop, other.start, strict=True)
        )
        return a, b, c


@dataclass(frozen=True)
class Mesh:
    """So many elements along each axis, how they are cut, and how far inner nodes are moved.

    Nodes of a distorted mesh lie on smooth curves; those of the surface stay where they are.
    """

    elements: Triple
    blocks: Blocks
    distortion: float = 0.0

    @classmethod
    def of(cls, elements: Triple, ranks: int, distortion: float = 0.0) -> Mesh:
        """Local. Cut for so many ranks; :class:`PatternError` where they are too many."""
        dims = choose_dims(elements, ranks, [GHOSTS] * 3)
        return cls(elements, Blocks(elements, dims), distortion)

    @property
    def ranks(self) -> int:
        """Local. How many have a part of it."""
        return prod(self.blocks.dims)

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

    def box(self, rank: int) -> Box:
        """Local. The elements of a rank."""
        return Box.of(self.blocks.box(rank))

    def corners(self, rank: int) -> Box:
        """Local. All nodes of a rank's elements."""
        box = self.box(rank)
        a, b, c = (stop + 1 for stop in box.stop)
        return Box(box.start, (a, b, c))

    def own(self, rank: int) -> Box:
        """Local. The nodes that a rank owns."""
        return Box.of(self.blocks.box(rank, (1, 1, 1)))

    @cached_property
    def partition(self) -> Partition:
        """Local. Who owns which numbers."""
        sizes = [self.own(rank).size for rank in range(self.ranks)]
        return Partition.from_lengths(np.array(sizes, np.int64))

    def numbers(self, box: Box) -> NDArray[np.int64]:
        """Local. Of the nodes in a box, as an array of its shape."""
        found = np.empty(box.extent, np.int64)
        for rank in range(self.ranks):
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


def fits(elements: Triple, ranks: int) -> bool:
    """Local. Whether a mesh can be cut for so many ranks."""
    try:
        choose_dims(elements, ranks, [GHOSTS] * 3)
    except PatternError:
        return False
    return True
