"""How a face is cut into pieces, and how these lie in its message: pure geometry, no MPI call."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.collectives.errors import PatternError
from onesided.collectives.pattern import Box

#: Pieces per face, or per axis.
Partitions = int | tuple[int, ...]


@dataclass(frozen=True)
class Pieces:
    """A box of ``shape`` cut into ``counts`` pieces per axis, numbered in C order.

    Pieces differ by one layer at most, the larger ones come first. In a message every piece takes
    as many elements as the largest one, and its own are in C order of the axes ``order``: the
    sender's order in memory, the slowest first.
    """

    shape: tuple[int, ...]
    counts: tuple[int, ...]
    order: tuple[int, ...]

    @classmethod
    def of(
        cls, shape: tuple[int, ...], offset: tuple[int, ...], partitions: Partitions,
        order: tuple[int, ...],
    ) -> Pieces:
        """A face in direction ``offset`` is cut along the axes that do not lead to the neighbor.

        With one number, along the first of these in memory that has as many layers, or else the
        longest; with one per axis, along all of them. No piece is empty: there are fewer where
        there are fewer layers.
        """
        steps = offset + (0,) * (len(shape) - len(offset))
        free = [axis for axis in order if not steps[axis]]
        counts = [1] * len(shape)
        if isinstance(partitions, int):
            if free:
                able = [axis for axis in free if shape[axis] >= partitions]
                axis = able[0] if able else max(free, key=lambda axis: shape[axis])
                counts[axis] = min(partitions, shape[axis])
        else:
            for axis in free:
                counts[axis] = min(partitions[axis], shape[axis])
        return cls(shape, tuple(counts), order)

    @property
    def count(self) -> int:
        """The number of pieces."""
        return math.prod(self.counts)

    @cached_property
    def boxes(self) -> tuple[Box, ...]:
        """The pieces as boxes relative to the face."""
        cuts = [
            [slice(*cut(extent, count, part)) for part in range(count)]
            for extent, count in zip(self.shape, self.counts, strict=True)
        ]
        return tuple(itertools.product(*cuts))

    @property
    def stride(self) -> int:
        """Elements from one piece to the next in a message: those of the largest piece."""
        return math.prod(-(-e // c) for e, c in zip(self.shape, self.counts, strict=True))

    @property
    def size(self) -> int:
        """Elements of a message."""
        return self.count * self.stride

    def within(self, box: Box) -> tuple[Box, ...]:
        """The pieces of the face that is ``box`` of an array."""
        return tuple(
            tuple(
                slice(whole.start + part.start, whole.start + part.stop)
                for whole, part in zip(box, piece, strict=True)
            )
            for piece in self.boxes
        )

    def in_memory_order(self, view: NDArray[Any]) -> NDArray[Any]:
        """Local. The view with its axes in the order of a message."""
        return view.transpose(self.order)

    def as_it_lies(self, face: NDArray[Any]) -> bool:
        """Local. True where the memory of a face is a message already: nothing to be packed."""
        if self.size != math.prod(self.shape) or not self._in_one_piece(face):
            return False
        start, step = _address(face), self.stride * face.itemsize
        for number, box in enumerate(self.boxes):
            piece = face[box]
            if not self._in_one_piece(piece) or _address(piece) != start + number * step:
                return False
        return True

    def _in_one_piece(self, view: NDArray[Any]) -> bool:
        return self.in_memory_order(view).flags.c_contiguous

    def places(self, message: NDArray[Any]) -> list[NDArray[Any]]:
        """Local. The pieces in a message, one-dimensional, as arrays of their shapes."""
        found = []
        for number, box in enumerate(self.boxes):
            extents = tuple(part.stop - part.start for part in box)
            start = number * self.stride
            found.append(self._shaped(message[start : start + math.prod(extents)], extents))
        return found

    def whole(self, message: NDArray[Any]) -> NDArray[Any] | None:
        """Local. The message as an array of the face's shape, where it is one."""
        if self.size != math.prod(self.shape):
            return None
        face = self._shaped(message, self.shape)
        return face if self.as_it_lies(face) else None

    def _shaped(self, elements: NDArray[Any], extents: Sequence[int]) -> NDArray[Any]:
        there = elements.reshape([extents[axis] for axis in self.order])
        return there.transpose(np.argsort(self.order))


def cut(extent: int, parts: int, index: int) -> tuple[int, int]:
    """Local. The half-open range of part ``index`` of ``parts``; the first ones are larger."""
    least, more = divmod(extent, parts)
    start = index * least + min(index, more)
    return start, start + least + (index < more)


def memory_order(array: NDArray[Any]) -> tuple[int, ...]:
    """Local. The axes of an array, the one with the longest steps first."""
    return tuple(sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis])))


def read_partitions(partitions: Any, axes: int) -> Partitions:
    """Local. A number of pieces, or one per axis; :class:`PatternError` for anything else."""
    if isinstance(partitions, int | np.integer):
        numbers = [partitions]
    elif isinstance(partitions, Sequence | np.ndarray) and len(partitions) == axes:
        numbers = list(partitions)
    else:
        raise PatternError(
            f"partitions is {partitions!r}, not a number or one for each of the {axes} axes"
        )
    for number in numbers:
        if not isinstance(number, int | np.integer) or number < 1:
            raise PatternError(f"partitions must be at least 1, not {number!r}: {partitions!r}")
    whole = tuple(int(number) for number in numbers)
    return whole[0] if isinstance(partitions, int | np.integer) else whole


def _address(array: NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
