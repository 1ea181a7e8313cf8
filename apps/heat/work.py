"""The tiles of a step, given out one by one to the threads that ask."""

from __future__ import annotations

import itertools
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from onesided.apps.heat.stencil import Call
from onesided.apps.team import Team


@dataclass(frozen=True)
class Tile:
    """What computes a tile, what tells whether its ghosts are there, and what hears of it then."""

    calls: Sequence[Call]
    arrived: Sequence[Callable[[], bool]] = ()
    marks: Sequence[Callable[[], object]] = ()

    def ready(self) -> bool:
        """Local. Whether all ghosts are there that the tile needs."""
        return all(arrived() for arrived in self.arrived)


class Queue:
    """Local. A number of tiles, each taken by one of several threads.

    Calling it takes tiles until none is left; every thread does so once a round, and no round
    begins before the last has ended. A tile whose ghosts are not there is put back for later.
    """

    def __init__(self, tiles: Sequence[Tile], team: Team) -> None:
        self._tiles, self._team = tiles, team
        self._draws = len(tiles) + team.threads  # of a round: every thread draws once in vain
        self._draw = itertools.count().__next__  # atomic, unlike a number that is added to
        self._late: deque[Tile] = deque()
        self._spent: list[float] = []

    def __call__(self) -> None:
        """Local in the sense of MPI. Compute tiles, and mark what has become ready."""
        tiles, draws, late, spent = self._tiles, self._draws, self._late, 0.0
        while (number := self._draw() % draws) < len(tiles):
            spent += self._try(tiles[number])
            if late:
                spent += self._retry()
        while late and not self._team.broken:
            spent += self._retry()
            os.sched_yield()
        if spent:
            self._spent.append(spent)

    def communication(self) -> float:
        """Local. Seconds that threads have asked, waited and marked since this was last called."""
        spent = sum(self._spent)
        self._spent.clear()
        return spent

    def _try(self, tile: Tile) -> float:
        """Compute a tile, or put it back; returns the seconds that were not computing."""
        spent = 0.0
        if tile.arrived:
            began = time.perf_counter()
            ready = tile.ready()
            spent = time.perf_counter() - began
            if not ready:
                self._late.append(tile)
                return spent
        for function, arguments in tile.calls:
            function(*arguments)
        if tile.marks:
            began = time.perf_counter()
            for mark in tile.marks:
                mark()
            spent += time.perf_counter() - began
        return spent

    def _retry(self) -> float:
        try:
            tile = self._late.popleft()
        except IndexError:  # another thread has taken it
            return 0.0
        return self._try(tile)


def after(count: int, call: Callable[[], object]) -> Callable[[], object]:
    """Local. What ``count`` tiles call, the last of which makes ``call``; in every round again."""
    if count == 1:
        return call
    draw = itertools.count(1).__next__

    def mark() -> None:
        if draw() % count == 0:
            call()

    return mark
