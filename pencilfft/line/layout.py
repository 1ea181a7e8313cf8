"""A line as a matrix: which blocks and which columns of it a rank has. Pure.

Element k of a line of n elements lies in row ``k // width`` and column ``k % width`` of a matrix
whose last row may be incomplete. *Flat*, a rank has a block of the line; *by columns* it has some
columns of the matrix, all rows. The complete rows of a block are a box of the matrix; what is left
of it at either end, the *edges*, is listed element by element.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from onesided.pencilfft.decomposition import Boxes, block

#: Pairs of slices: these places of a row hold those columns.
Order = tuple[tuple[slice, slice], ...]


def halves(width: int) -> Order:
    """Local. The order 0, 1, width - 1, 2, width - 2, ...: each column beside its mirror image."""
    return (
        (slice(0, 1), slice(0, 1)),
        (slice(1, None, 2), slice(1, width // 2 + 1)),
        (slice(2, None, 2), slice(width - 1, width // 2, -1)),
    )


@dataclass(frozen=True)
class LineLayout:
    """Local. A line of ``length`` elements in rows of ``width``, on rank ``index`` of ``parts``.

    By columns, this rank has the places ``cuts[index]`` of every row, a half-open range. Place
    and column are the same unless ``mirrored``, where the columns of a row lie in the order of
    :func:`halves`.
    """

    length: int
    width: int
    parts: int
    index: int
    cuts: tuple[tuple[int, int], ...]
    mirrored: bool = False

    @property
    def rows(self) -> int:
        """Rows of the matrix, an incomplete last one among them."""
        return -(-self.length // self.width)

    @property
    def columns(self) -> int:
        """Columns that this rank has."""
        start, stop = self.cuts[self.index]
        return stop - start

    @property
    def order(self) -> Order:
        """Where the columns of a row lie."""
        return halves(self.width) if self.mirrored else ((slice(None), slice(None)),)

    def body(self, index: int) -> tuple[int, int]:
        """Local. The complete rows in a rank's block, a half-open range."""
        start, stop = block(self.length, self.parts, index)
        first = -(-start // self.width)
        return first, max(first, stop // self.width)

    def edges(self, index: int) -> tuple[tuple[int, int], ...]:
        """Local. What a rank's block has of incomplete rows: ranges within a row, none empty."""
        start, stop = block(self.length, self.parts, index)
        first, last = self.body(index)
        head = (start, min(stop, first * self.width))
        tail = (min(stop, last * self.width), stop)
        return tuple((low, high) for low, high in (head, tail) if low < high)

    @property
    def has_body(self) -> bool:
        """Whether any rank has a complete row."""
        return any(start < stop for start, stop in map(self.body, range(self.parts)))

    @property
    def has_edges(self) -> bool:
        """Whether any rank has an incomplete row."""
        return any(self.edges(index) for index in range(self.parts))

    def body_boxes(self) -> Boxes:
        """Local. Flat: the box of the complete rows that goes to, or comes from, each rank."""
        start, stop = self.body(self.index)
        return [box((0, stop - start), cut) for cut in self.cuts]

    def column_boxes(self) -> Boxes:
        """Local. By columns: the box that comes from, or goes to, each rank."""
        return [box(self.body(index), (0, self.columns)) for index in range(self.parts)]

    def body_slice(self) -> slice:
        """Local. The complete rows in this rank's block."""
        start, _ = block(self.length, self.parts, self.index)
        first, last = self.body(self.index)
        if first == last:
            return slice(0, 0)
        return slice(first * self.width - start, last * self.width - start)

    @cached_property
    def places(self) -> NDArray[np.int64]:
        """The place of each column."""
        places = np.empty(self.width, np.int64)
        numbers = np.arange(self.width)
        for place, column in self.order:
            places[column] = numbers[place]
        return places

    def flat_edges(self) -> tuple[NDArray[np.int64], list[int]]:
        """Local. Flat: which elements of the block, and how many of them for each rank in turn."""
        start, _ = block(self.length, self.parts, self.index)
        ranges = [np.arange(low, high) for low, high in self.edges(self.index)]
        line = np.concatenate([np.empty(0, np.int64), *ranges])
        ends = np.array([stop for _, stop in self.cuts])
        owners = np.searchsorted(ends, self.places[line % self.width], side="right")
        order = np.argsort(owners, kind="stable")
        counts = np.bincount(owners, minlength=self.parts)
        return line[order] - start, [int(count) for count in counts]

    def column_edges(self) -> tuple[NDArray[np.int64], list[int]]:
        """Local. By columns: which elements of the matrix in C order, and how many per rank."""
        low, high = self.cuts[self.index]
        here = np.flatnonzero((self.places >= low) & (self.places < high))  # columns, ascending
        found: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
        counts = []
        for index in range(self.parts):
            count = 0
            for start, stop in self.edges(index):
                row = start // self.width
                line = here + row * self.width
                columns = here[(line >= start) & (line < stop)]
                found.append(row * self.columns + self.places[columns] - low)
                count += len(columns)
            counts.append(count)
        return np.concatenate(found), counts


def box(rows: tuple[int, int], columns: tuple[int, int]) -> tuple[slice, ...] | None:
    """Local. A box of a matrix, None where it is empty."""
    if rows[0] == rows[1] or columns[0] == columns[1]:
        return None
    return slice(*rows), slice(*columns)
