"""The tiles of a step, given out one by one to the threads that ask."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence

from onesided.apps.heat.stencil import Call

Tile = tuple[Sequence[Call], Sequence[Callable[[], object]]]


class Queue:
    """Local. A number of tiles, each taken by one of several threads.

    Calling it takes tiles until none is left; every thread does so once a round, and no round
    begins before the last has ended.
    """

    def __init__(self, tiles: Sequence[Tile], threads: int) -> None:
        self._tiles = tiles
        self._draws = len(tiles) + threads  # of a round: every thread draws once in vain
        self._draw = itertools.count().__next__  # atomic, unlike a number that is added to
        self._spent = [0.0 for _ in tiles]

    def __call__(self) -> None:
        """Local. Compute tiles, and mark what has become ready."""
        tiles, draws, clock = self._tiles, self._draws, time.perf_counter
        while (number := self._draw() % draws) < len(tiles):
            calls, marks = tiles[number]
            for function, arguments in calls:
                function(*arguments)
            if marks:
                began = clock()
                for mark in marks:
                    mark()
                self._spent[number] += clock() - began

    def marking(self) -> float:
        """Local. Seconds that threads have spent with marks since this was last asked."""
        spent = sum(self._spent)
        self._spent = [0.0 for _ in self._tiles]
        return spent


def after(count: int, call: Callable[[], object]) -> Callable[[], object]:
    """Local. What ``count`` tiles call, the last of which makes ``call``; in every round again."""
    if count == 1:
        return call
    draw = itertools.count(1).__next__

    def mark() -> None:
        if draw() % count == 0:
            call()

    return mark
