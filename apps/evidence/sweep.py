"""What benchmark 1 measures: which numbers of ranks exchange how many bytes, and in which series.

Pure: no MPI call. One place may belong to several series and is measured once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

ITEM = 8  # bytes of an element


@dataclass(frozen=True, order=True)
class Place:
    """So many ranks, each of which sends so many elements to every rank, itself included."""

    ranks: int
    count: int

    @classmethod
    def nearest(cls, ranks: int, nbytes: int) -> Place:
        """Local. Where a rank sends about so many bytes; at least one element to every rank."""
        return cls(ranks, max(1, round(nbytes / ITEM / ranks)))

    @property
    def nbytes(self) -> int:
        """Local. Bytes that each rank sends."""
        return self.count * self.ranks * ITEM


@dataclass(frozen=True)
class Series:
    """Places over the numbers of ranks; ``nbytes`` per rank if weak, of all together if strong."""

    scaling: str
    nbytes: int
    places: tuple[Place, ...]

    def record(self) -> dict[str, Any]:
        """Local. For JSON."""
        return {
            "scaling": self.scaling,
            "bytes": self.nbytes,
            "places": [{"ranks": each.ranks, "bytes": each.nbytes} for each in self.places],
        }


def weak(counts: Sequence[int], nbytes: int) -> Series:
    """Local. The same number of bytes per rank on every number of ranks."""
    return Series("weak", nbytes, tuple(Place.nearest(ranks, nbytes) for ranks in counts))


def strong(counts: Sequence[int], nbytes: int) -> Series:
    """Local. What the smallest number of ranks sends together, ``nbytes`` each, split up.

    Left out: other numbers of ranks among which less than an element per block would be left.
    """
    least = min(counts)
    total = nbytes * least
    enough = [ranks for ranks in counts if ranks == least or total >= ITEM * ranks * ranks]
    return Series("strong", total, tuple(Place.nearest(ranks, total // ranks) for ranks in enough))


SCALINGS = {"weak": weak, "strong": strong}


def series(scalings: Sequence[str], counts: Sequence[int], sizes: Sequence[int]) -> list[Series]:
    """Local. All series that were asked for."""
    return [SCALINGS[name](counts, size) for name in dict.fromkeys(scalings) for size in sizes]


def places(every: Sequence[Series]) -> list[Place]:
    """Local. All different places, by number of ranks and of bytes."""
    return sorted({place for each in every for place in each.places})


def doubling(size: int) -> list[int]:
    """Local. 2, 4, 8 ... and the number itself."""
    counts = [size]
    power = 2
    while power < size:
        counts.append(power)
        power *= 2
    return sorted(counts)
