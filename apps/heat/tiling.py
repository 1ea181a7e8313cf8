"""Cutting a block into tiles that fit the cache, those at its faces apart: pure geometry.

Tiles at faces with neighbors are thin, so that the faces are ready early: while they travel, the
rest is computed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil, prod

from onesided.apps.heat.decomposition import HIGH, SIDES, Box, Face, cut, extent

POINTS = 32768  # of a tile, nearly: with its neighbors it fits the second-level cache
THIN = 2048  # points of a tile at a face at least, where the block is thick enough
RUN = 32  # points along the last axis, which is contiguous, that are worth a loop


@dataclass(frozen=True)
class Tiling:
    """Boxes of the own points in the local array: those at faces, and all others.

    ``parts``: the number of those at one face, the largest of all faces.
    """

    outer: tuple[Box, ...]
    inner: tuple[Box, ...]
    parts: int

    @property
    def boxes(self) -> tuple[Box, ...]:
        """Local. All, those at faces first."""
        return self.outer + self.inner


def tiling(own: Box, faces: Sequence[Face], least: int) -> Tiling:
    """Local. Cut the own points of a block: into ``least`` tiles at each face, if it is so long."""
    rest = list(own)
    outer: list[Box] = []
    most = 1
    touched = {(face.axis, face.side) for face in faces}
    for axis, side in product(range(len(own)), SIDES):
        start, stop = rest[axis].start, rest[axis].stop
        if (axis, side) not in touched or start == stop:
            continue
        depth = min(stop - start, _depth(tuple(rest), axis, least))
        middle = stop - depth if side == HIGH else start + depth
        parts = slice(start, middle), slice(middle, stop)
        slab = list(rest)
        slab[axis], rest[axis] = parts[side], parts[1 - side]
        pieces = _pieces(tuple(slab), least, {axis})
        most = max(most, len(pieces))
        outer += pieces
    return Tiling(tuple(outer), tuple(_pieces(tuple(rest), least, ())), most)


def _depth(box: Box, axis: int, least: int) -> int:
    """Layers of the tiles at a face across ``axis``: an eighth of the block at most."""
    lengths = extent(box)
    layer = prod(lengths) // lengths[axis]
    wanted = ceil(least * THIN / max(layer, 1))
    if axis == len(box) - 1:
        wanted = max(wanted, RUN)
    return max(1, min(wanted, lengths[axis] // 8))


def _pieces(box: Box, least: int, whole: Collection[int]) -> list[Box]:
    """Tiles of a box, ``least`` or more where it has the points; axes in ``whole`` are not cut."""
    lengths = extent(box)
    if not prod(lengths):
        return []
    wanted = max(least, ceil(prod(lengths) / POINTS))
    counts = []
    for axis, length in enumerate(lengths):
        longest = length // RUN if axis == len(lengths) - 1 else length
        count = 1 if axis in whole else max(1, min(wanted, longest))
        wanted = ceil(wanted / count)
        counts.append(count)
    return [
        tuple(
            slice(part.start + piece.start, part.start + piece.stop)
            for part, piece in zip(box, pieces, strict=True)
        )
        for pieces in product(
            *(
                [cut(length, count, number) for number in range(count)]
                for length, count in zip(lengths, counts, strict=True)
            )
        )
    ]
