"""One neighbor's share of a halo: what goes there, and where what comes from there belongs."""

from __future__ import annotations

from dataclasses import dataclass

from onesided.collectives.pattern import Box


@dataclass(frozen=True)
class Face:
    """What this rank exchanges with one neighbor: a face, an edge or a corner of its block.

    ``send`` and ``recv`` are boxes of the array, ghost layers included; one of them may be empty.
    ``offset`` is the direction in the Cartesian grid, such as (-1, 0), and () where the neighbors
    were listed. ``partitions`` is the number of pieces that this rank marks, ``arrivals`` that of
    the pieces which come, as the neighbor cuts them. The keys tell several messages of a pair of
    ranks apart: ``send_key`` on this side is the neighbor's ``recv_key``.
    """

    rank: int
    send: Box
    recv: Box
    offset: tuple[int, ...] = ()
    send_key: int = 0
    recv_key: int = 0
    partitions: int = 0
    arrivals: int = 0

    @property
    def name(self) -> str:
        """How errors call it."""
        return f"direction {self.offset}" if self.offset else f"tag {self.send_key}"


def extents(box: Box) -> tuple[int, ...]:
    """Local. The shape of a box."""
    return tuple(part.stop - part.start for part in box)


def is_empty(box: Box) -> bool:
    """Local. True where a box has no elements."""
    return any(part.stop <= part.start for part in box)


def text(box: Box) -> str:
    """Local. A box for the words of an error."""
    return "x".join(f"[{part.start}, {part.stop})" for part in box)
