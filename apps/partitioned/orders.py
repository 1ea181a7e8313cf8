"""In which order partitions are marked ready, and by which thread: geometry without any MPI.

The loop schemes of section 4.2 of the paper on partitioned communication in Open MPI.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

LEFT_TO_RIGHT = "left-to-right"
RANDOMIZED = "randomized"
NEIGHBOURHOOD = "neighbourhood"


@dataclass(frozen=True)
class Share:
    """The partitions that one thread marks, in its order."""

    indices: list[int]

    @cached_property
    def runs(self) -> list[tuple[int, int]]:
        """Local. The same in as few ranges as keep the order: first and last of each."""
        found: list[tuple[int, int]] = []
        for index in self.indices:
            if found and index == found[-1][1] + 1:
                found[-1] = (found[-1][0], index)
            else:
                found.append((index, index))
        return found


@dataclass(frozen=True)
class Order:
    """A scheme. ``in_runs``: partitions beside each other follow each other, so ranges pay."""

    name: str
    in_runs: bool
    divide: Callable[[int, int, int], list[list[int]]]

    def shares(self, partitions: int, threads: int, seed: int) -> list[Share]:
        """Local. What each thread marks; threads that have nothing to do are left out."""
        return [Share(part) for part in self.divide(partitions, threads, seed) if part]


def left_to_right(partitions: int, threads: int, seed: int) -> list[list[int]]:
    """Local. Every thread has a part of its own, and marks it from its lowest partition on."""
    return _split(list(range(partitions)), threads)


def randomized(partitions: int, threads: int, seed: int) -> list[list[int]]:
    """Local. All partitions in one random order, of which every thread has a part."""
    shuffled: list[int] = np.random.default_rng(seed).permutation(partitions).tolist()
    return _split(shuffled, threads)


def neighbourhood(partitions: int, threads: int, seed: int) -> list[list[int]]:
    """Local. Partitions are the cells of a grid, row by row, and every thread has a tile of it.

    A thread begins with the border of its tile, for which neighbours wait (the first row, the two
    ends of every other row, the last row), and goes on with the rows inside.
    """
    rows, columns = rectangle(partitions)
    down, across = rectangle(threads)
    return [
        [row * columns + column for row, column in _tile(top, bottom, left, right)]
        for top, bottom in _cuts(rows, down)
        for left, right in _cuts(columns, across)
    ]


# one line per order: its name, whether it is made of ranges, and what it is
ORDERS = {
    each.name: each
    for each in (
        Order(LEFT_TO_RIGHT, True, left_to_right),
        Order(RANDOMIZED, False, randomized),
        Order(NEIGHBOURHOOD, True, neighbourhood),
    )
}


def rectangle(cells: int) -> tuple[int, int]:
    """Local. Rows and columns of the grid of so many cells that is closest to a square."""
    rows = next(rows for rows in range(math.isqrt(cells), 0, -1) if cells % rows == 0)
    return rows, cells // rows


def _tile(top: int, bottom: int, left: int, right: int) -> Iterable[tuple[int, int]]:
    """Row and column of every cell, the border first."""
    columns = range(left, right)
    for row in range(top, bottom):
        inner = top < row < bottom - 1
        ends = dict.fromkeys((left, right - 1)) if columns else ()
        yield from ((row, column) for column in (ends if inner else columns))
    for row in range(top + 1, bottom - 1):
        yield from ((row, column) for column in range(left + 1, right - 1))


def _cuts(length: int, parts: int) -> list[tuple[int, int]]:
    ends = [part * length // parts for part in range(parts + 1)]
    return list(pairwise(ends))


def _split(indices: list[int], parts: int) -> list[list[int]]:
    return [indices[start:end] for start, end in _cuts(len(indices), parts)]
