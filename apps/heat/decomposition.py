"""How a grid is cut over the ranks, and what the blocks touch: pure geometry, no MPI call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onesided.collectives.halo import faces

Box = tuple[slice, ...]
LOW, HIGH = 0, 1
SIDES = (LOW, HIGH)


def extent(box: Box) -> tuple[int, ...]:
    """Local. The points of a box along every axis."""
    return tuple(part.stop - part.start for part in box)


def shifted(box: Box, axis: int, offset: int) -> Box:
    """Local. A box moved along one axis."""
    part = box[axis]
    moved = slice(part.start + offset, part.stop + offset)
    return (*box[:axis], moved, *box[axis + 1 :])


def meet(one: Box, other: Box) -> bool:
    """Local. Whether two boxes have a point in common."""
    return all(
        max(a.start, b.start) < min(a.stop, b.stop) for a, b in zip(one, other, strict=True)
    )


def beside(box: Box, ghosts: Box) -> bool:
    """Local. Whether a point of a box has a neighbor among these ghosts."""
    return any(
        meet(shifted(box, axis, offset), ghosts) for axis in range(len(box)) for offset in (-1, 1)
    )


def cut(length: int, parts: int, number: int) -> slice:
    """Local. Part ``number`` of ``length`` points; the first ones have one more than the last."""
    return slice(*faces.cut(length, parts, number))


@dataclass(frozen=True)
class Face:
    """Where a block touches that of a neighbor: boxes of the local array, ghosts included."""

    axis: int
    side: int
    rank: int
    send: Box
    recv: Box

    @property
    def number(self) -> int:
        """Local. Of the side, for a message that leaves over it."""
        return 2 * self.axis + self.side

    @property
    def opposite(self) -> int:
        """Local. The number over which the neighbor sends what comes in here."""
        return 2 * self.axis + 1 - self.side


@dataclass(frozen=True)
class Block:
    """The part of a grid that one rank has: ``box`` in the grid, of ``grid`` blocks.

    ``wraps``: axes along which the block is its own neighbor.
    """

    shape: tuple[int, ...]
    grid: tuple[int, ...]
    box: Box
    wraps: tuple[int, ...] = ()

    @classmethod
    def of(
        cls,
        shape: Sequence[int],
        periodic: Sequence[bool],
        grid: Sequence[int],
        place: Sequence[int],
    ) -> Block:
        """Local. The block in this place of the process grid."""
        box = tuple(map(cut, shape, grid, place))
        pairs = enumerate(zip(grid, periodic, strict=True))
        wraps = tuple(axis for axis, (parts, around) in pairs if around and parts == 1)
        return cls(tuple(shape), tuple(grid), box, wraps)

    @property
    def extent(self) -> tuple[int, ...]:
        """Local. Points along every axis, without ghosts."""
        return extent(self.box)

    @property
    def inner(self) -> Box:
        """Local. The own points as a box of the local array."""
        return tuple(slice(1, length + 1) for length in self.extent)

    def face(self, axis: int, side: int, rank: int) -> Face:
        """Local. The face on one side, with this neighbor."""
        length = self.extent[axis]
        own, ghost = ((1, 0), (length, length + 1))[side]
        send, recv = (
            (*self.inner[:axis], slice(at, at + 1), *self.inner[axis + 1 :]) for at in (own, ghost)
        )
        return Face(axis, side, rank, send, recv)
