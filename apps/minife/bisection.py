"""Boxes of elements for the ranks, by recursive coordinate bisection: pure geometry.

M. J. Berger, S. H. Bokhari, A partitioning strategy for nonuniform problems on multiprocessors,
IEEE Transactions on Computers C-36 (1987), 570-580. On a regular grid the bisected set is a box.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

Triple = tuple[int, int, int]


@dataclass(frozen=True)
class Box:
    """A half-open range along each axis."""

    start: Triple
    stop: Triple

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

    def cut(self, axis: int, place: int) -> tuple[Box, Box]:
        """Local. Below and above a place along an axis."""
        low, high = list(self.stop), list(self.start)
        low[axis] = high[axis] = place
        return Box(self.start, _triple(low)), Box(_triple(high), self.stop)


def bisected(box: Box, parts: int) -> list[Box]:
    """Local. The box in so many parts of about the same size, none of them empty.

    The longest axis that allows it is cut, by half the parts each, and then both halves alike.
    ``ValueError`` where the box has too few elements.
    """
    if parts == 1:
        return [box]
    lower = parts // 2
    axes = sorted(range(3), key=lambda axis: -box.extent[axis])
    for axis in axes:
        place = _place(box, axis, lower, parts)
        if place is not None:
            low, high = box.cut(axis, place)
            return bisected(low, lower) + bisected(high, parts - lower)
    raise ValueError(
        f"a box of {' x '.join(map(str, box.extent))} elements cannot be cut for {parts} ranks"
    )


def _place(box: Box, axis: int, lower: int, parts: int) -> int | None:
    """Local. Where to cut along an axis; None where one side would have too few elements."""
    length = box.extent[axis]
    layer = box.size // length if length else 0
    if not layer:
        return None
    least, most = -(-lower // layer), length - -(-(parts - lower) // layer)
    if least > most:
        return None
    wanted = (2 * length * lower + parts) // (2 * parts)  # to the nearest
    return box.start[axis] + min(max(wanted, least), most)


def _triple(numbers: list[int]) -> Triple:
    a, b, c = numbers
    return a, b, c
