"""Which part of a global array is meant. Pure: nothing here calls MPI or opens a file.

A global slice has one entry per axis: an index, or a slice of global indices. Blocks are slices
of the global array, as :meth:`PencilGeometry.local_slice` gives them.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from onesided.collectives.errors import PatternError

Box = tuple[slice, ...]


@dataclass(frozen=True)
class Selection:
    """Local. Per axis of a global array of ``shape`` an index, which drops the axis, or a range."""

    shape: tuple[int, ...]
    entries: tuple[int | range, ...]

    @classmethod
    def of(cls, shape: Sequence[int], global_slice: Sequence[Any] | None = None) -> Selection:
        """Local. From a global slice; None is the whole array."""
        shape = tuple(shape)
        if global_slice is None:
            return cls(shape, tuple(range(n) for n in shape))
        if not isinstance(global_slice, list | tuple) or len(global_slice) != len(shape):
            raise PatternError(
                f"the global slice {global_slice!r} needs one entry for each of the {len(shape)} "
                f"axes of {shape}"
            )
        return cls(
            shape, tuple(_entry(part, n) for part, n in zip(global_slice, shape, strict=True))
        )

    @classmethod
    def named(cls, shape: Sequence[int], name: str) -> Selection:
        """Local. From a :attr:`name`; the empty name is the whole array."""
        entries: list[int | slice] = []
        for word in name.split("_") if name else ["slice"] * len(shape):
            if not word.startswith("slice"):
                entries.append(int(word))
                continue
            numbers = [int(number) for number in re.findall(r"\d+", word)]
            entries.append(slice(*numbers) if numbers else slice(None))
        return cls.of(shape, entries)

    @property
    def whole(self) -> bool:
        """Whether this is all of the array."""
        return self.entries == tuple(range(n) for n in self.shape)

    @property
    def axes(self) -> tuple[int, ...]:
        """The axes that are left."""
        return tuple(i for i, part in enumerate(self.entries) if isinstance(part, range))

    @property
    def result(self) -> tuple[int, ...]:
        """Shape of the selected part."""
        return tuple(len(part) for part in self.entries if isinstance(part, range))

    @property
    def name(self) -> str:
        """As mpi4py-fft names it: slice_4_slice; a range that is not whole has its numbers."""
        words = []
        for part, n in zip(self.entries, self.shape, strict=True):
            if not isinstance(part, range):
                words.append(str(part))
            elif part == range(n):
                words.append("slice")
            else:
                words.append(f"slice{part.start}to{part.stop}by{part.step}")
        return "_".join(words)

    def cut(self, block: Box) -> tuple[tuple[int | slice, ...], Box] | None:
        """Local. Where the selected part of ``block`` lies: in the block, and in the result.

        None where the block has nothing of it.
        """
        here: list[int | slice] = []
        there: list[slice] = []
        for part, span in zip(self.entries, block, strict=True):
            if not isinstance(part, range):
                if not span.start <= part < span.stop:
                    return None
                here.append(part - span.start)
                continue
            first = max(0, -((part.start - span.start) // part.step))
            last = min(len(part), -((part.start - span.stop) // part.step))
            if first >= last:
                return None
            start = part[first] - span.start
            here.append(slice(start, part[last - 1] - span.start + 1, part.step))
            there.append(slice(first, last))
        return tuple(here), tuple(there)


def _entry(part: Any, length: int) -> int | range:
    """One entry of a global slice, with what it leaves out filled in."""
    if isinstance(part, slice):
        try:
            chosen = range(*part.indices(length))
        except (TypeError, ValueError) as error:
            raise PatternError(f"{part} is no slice of {length} indices: {error}") from error
        if chosen.step < 0 or not chosen:
            raise PatternError(f"{part} of {length} indices selects nothing, or backwards")
        step = chosen.step if len(chosen) > 1 else 1
        return range(chosen[0], chosen[-1] + 1, step)
    try:
        index = operator.index(part)
    except TypeError as error:
        raise PatternError(f"{part!r} in a global slice is neither a slice nor an index") from error
    if not -length <= index < length:
        raise PatternError(f"index {index} does not exist on an axis of {length}")
    return index % length
