"""The heat equation u_t = alpha laplace(u) and its explicit difference scheme, without MPI.

A grid of the same spacing h along all axes; its longest edge has the length 1. Along a periodic
axis n points have n spacings, between walls n + 1: the walls are points of temperature 0 that are
not counted. The Euler step with second-order differences

    u' = u + r (sum of the 2 d neighbors - 2 d u),    r = alpha dt / h**2,

is computed as r ((1/r - 2 d) u + neighbors), added axis by axis, the lower neighbor first: in this
order at every point, however the grid is cut, so that all cuts give the same bytes. It is stable
for r <= 1 / (2 d).

The scheme is NumPy calls that are bound to their arrays once. Every call writes into an array that
exists and releases the interpreter lock while it computes, so that threads compute at the same
time.
"""

from __future__ import annotations

import itertools
import os
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from itertools import product
from math import ceil, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.apps.bench.team import Team
from onesided.collectives.halo.faces import Face, common, extents, is_empty
from onesided.pencilfft import block

PERIODIC = "periodic"
FRACTION = 0.9  # of the largest stable time step
#: Hot spots: the place as a part of every edge, the width, and the temperature of the middle. The
#: wide one keeps all others from numbers so small that processors are slow with them.
SPOTS = (
    ((0.50, 0.50, 0.50), 0.300, 0.15),
    ((0.25, 0.30, 0.50), 0.050, 1.00),
    ((0.70, 0.65, 0.45), 0.080, 0.85),
    ((0.30, 0.75, 0.60), 0.030, 0.95),
    ((0.75, 0.20, 0.35), 0.040, 0.70),
    ((0.02, 0.50, 0.50), 0.060, 0.60),
    ((0.52, 0.98, 0.52), 0.055, 0.90),
)


@dataclass(frozen=True)
class Problem:
    """A grid with its boundaries, the numbers of the scheme, and the state at the start.

    ``periodic`` has an entry per axis. ``dt`` None: nine tenths of the largest stable one.
    """

    shape: tuple[int, ...]
    periodic: tuple[bool, ...]
    dtype: np.dtype[Any]
    alpha: float = 1.0
    peak: float = 1.0
    dt: float | None = None

    @property
    def spacing(self) -> float:
        """Local. Between two points."""
        pairs = zip(self.shape, self.periodic, strict=True)
        return 1.0 / max(count if around else count + 1 for count, around in pairs)

    @property
    def stable_dt(self) -> float:
        """Local. The largest stable time step."""
        return self.spacing**2 / (2 * len(self.shape) * self.alpha)

    @property
    def step(self) -> float:
        """Local. The time step."""
        return FRACTION * self.stable_dt if self.dt is None else self.dt

    @property
    def weights(self) -> tuple[Any, Any]:
        """Local. 1/r - 2 d and r, as numbers of the dtype."""
        r = self.alpha * self.step / self.spacing**2
        return self.dtype.type(1.0 / r - 2 * len(self.shape)), self.dtype.type(r)

    @property
    def lengths(self) -> tuple[float, ...]:
        """Local. Of the edges."""
        pairs = zip(self.shape, self.periodic, strict=True)
        return tuple((n if around else n + 1) * self.spacing for n, around in pairs)

    def initial(self, box: Sequence[slice]) -> NDArray[Any]:
        """Local. The state at the start of the points in ``box``, with a layer of ghosts around.

        ``box`` counts the points without ghosts. Ghosts are the points across a periodic
        boundary, or 0.
        """
        state = np.zeros([part.stop - part.start + 2 for part in box], self.dtype)
        for place, width, height in SPOTS:
            factors = [
                self._bell(axis, place[axis], width)[part.start : part.stop + 2]
                for axis, part in enumerate(box)
            ]
            factors[0] = factors[0] * (height * self.peak)
            with np.errstate(over="ignore", under="ignore"):
                state += reduce(np.multiply.outer, factors).astype(self.dtype)
        return state

    def _bell(self, axis: int, place: float, width: float) -> NDArray[Any]:
        """A spot along one axis, for all its points and a ghost at both ends."""
        count, length = self.shape[axis], self.lengths[axis]
        if self.periodic[axis]:
            x = np.arange(count) * self.spacing - place * length
            x -= length * np.round(x / length)
            bell: NDArray[Any] = np.exp(-((x / width) ** 2))
            return bell.take(range(-1, count + 1), mode="wrap")
        x = np.arange(1, count + 1) * self.spacing - place * length
        return np.pad(np.exp(-((x / width) ** 2)), 1)


Box = tuple[slice, ...]


def shifted(box: Box, axis: int, offset: int) -> Box:
    """Local. A box moved along one axis."""
    part = box[axis]
    moved = slice(part.start + offset, part.stop + offset)
    return (*box[:axis], moved, *box[axis + 1 :])


def meet(one: Box, other: Box) -> bool:
    """Local. Whether two boxes have a point in common."""
    return not is_empty(common(one, other))


def beside(box: Box, ghosts: Box) -> bool:
    """Local. Whether a point of a box has a neighbor among these ghosts."""
    return any(
        meet(shifted(box, axis, offset), ghosts) for axis in range(len(box)) for offset in (-1, 1)
    )


# Cutting a block into tiles that fit the cache, those at its faces apart: pure geometry.
#
# Tiles at faces with neighbors are thin, so that the faces are ready early: while they travel, the
# rest is computed.

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
    touched = {tuple(face.offset) for face in faces}
    for axis, high in product(range(len(own)), (False, True)):
        start, stop = rest[axis].start, rest[axis].stop
        offset = [0] * len(own)
        offset[axis] = 1 if high else -1
        if tuple(offset) not in touched or start == stop:
            continue
        depth = min(stop - start, _depth(tuple(rest), axis, least))
        middle = stop - depth if high else start + depth
        parts = slice(start, middle), slice(middle, stop)
        slab = list(rest)
        slab[axis], rest[axis] = parts[high], parts[not high]
        pieces = _pieces(tuple(slab), least, {axis})
        most = max(most, len(pieces))
        outer += pieces
    return Tiling(tuple(outer), tuple(_pieces(tuple(rest), least, ())), most)


def _depth(box: Box, axis: int, least: int) -> int:
    """Layers of the tiles at a face across ``axis``: an eighth of the block at most."""
    lengths = extents(box)
    layer = prod(lengths) // lengths[axis]
    wanted = ceil(least * THIN / max(layer, 1))
    if axis == len(box) - 1:
        wanted = max(wanted, RUN)
    return max(1, min(wanted, lengths[axis] // 8))


def _pieces(box: Box, least: int, whole: Collection[int]) -> list[Box]:
    """Tiles of a box, ``least`` or more where it has the points; axes in ``whole`` are not cut."""
    lengths = extents(box)
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
                [slice(*block(length, count, number)) for number in range(count)]
                for length, count in zip(lengths, counts, strict=True)
            )
        )
    ]


#: A function and its arguments, the last of which is the array that it writes.
Call = tuple[Callable[..., object], tuple[Any, ...]]

#: NumPy collects rows of an array in a buffer of this many elements before it computes with them,
#: where rows do not follow each other in memory. Rows longer than the buffer are not copied, which
#: makes a step three times as fast.
BUFFER = 16


@contextmanager
def settings() -> Iterator[None]:
    """Local. NumPy's settings for the calls of a step, of this thread."""
    with np.errstate(all="ignore"):
        before = np.setbufsize(BUFFER)
        try:
            yield
        finally:
            np.setbufsize(before)


def update(problem: Problem, old: NDArray[Any], new: NDArray[Any], box: Box) -> list[Call]:
    """Local. What computes the points in ``box`` of ``new``, one time step after ``old``."""
    target = new[box]
    center, factor = problem.weights
    calls: list[Call] = [(np.multiply, (old[box], center, target))]
    for axis in range(len(box)):
        for offset in (-1, 1):
            calls.append((np.add, (target, old[shifted(box, axis, offset)], target)))
    calls.append((np.multiply, (target, factor, target)))
    return calls


# The tiles of a step, given out one by one to the threads that ask.


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
