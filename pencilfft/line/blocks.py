"""Who owns which part of a distributed line. Pure: nothing here calls MPI."""

from __future__ import annotations

from dataclasses import dataclass

from onesided.collectives.errors import PatternError
from onesided.pencilfft.decomposition import block


@dataclass(frozen=True)
class LineBlocks:
    """Local. One rank's part of a one-dimensional array over ``parts`` ranks.

    A block as :func:`~.decomposition.block` cuts them, or, where ``bounds`` are given, the
    elements from ``bounds[index]`` to ``bounds[index + 1]``. The names are those of a
    :class:`~.decomposition.PencilGeometry`.
    """

    length: int
    parts: int
    index: int
    bounds: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.bounds is not None and (
            len(self.bounds) != self.parts + 1
            or self.bounds[0] != 0
            or self.bounds[-1] != self.length
            or list(self.bounds) != sorted(self.bounds)
        ):
            raise PatternError(
                f"bounds {self.bounds} do not cut {self.length} elements into {self.parts} parts"
            )

    def owned(self, index: int) -> tuple[int, int]:
        """Local. The half-open range of the rank with this index."""
        if self.bounds is None:
            return block(self.length, self.parts, index)
        if not 0 <= index < self.parts:
            raise PatternError(f"part {index} of {self.parts} does not exist")
        return self.bounds[index], self.bounds[index + 1]

    @property
    def shape(self) -> tuple[int]:
        """Global shape."""
        return (self.length,)

    @property
    def substart(self) -> tuple[int]:
        """Place of the first element of this rank."""
        return (self.owned(self.index)[0],)

    @property
    def subshape(self) -> tuple[int]:
        """Local shape."""
        start, stop = self.owned(self.index)
        return (stop - start,)

    def local_slice(self) -> tuple[slice]:
        """Local. This rank's part as a slice of the global array."""
        return (slice(*self.owned(self.index)),)
