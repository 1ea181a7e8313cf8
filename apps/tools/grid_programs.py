"""Programs on grids beside the same with mpi4py and NumPy alone: items that migrate, V-cycles."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.by_hand import ByHand, at_once, cart_of
from onesided.apps.bench.sweep import Labels, Make
from onesided.apps.bench.timing import Variant, nothing
from onesided.apps.cli.statistics import Verdict
from onesided.collectives import Alltoallv_init, Grid

#: The names of variants.
OURS, BY_HAND, ROOM = "grid", "by hand", "room for all"

# -- items ----------------------------------------------------------------------------------------

LEAVE = 1000  # one of so many items leaves in a call
SPARE = 1.5  # times as much room as items


class Items:
    """An item per cell, spread evenly: a number, two velocities, and positions; 48 bytes in three
    dimensions. In each call some go to the next block."""

    def __init__(self, grid: Grid, seed: int) -> None:
        rng, count = np.random.default_rng(seed), math.prod(grid.local_shape)
        self._axis = int(np.argmax(grid.dims))  # along which there is another block, if any
        low = np.array([part.start for part in grid.box], float)
        self.low, self.high = low, low + grid.local_shape
        self.positions = self.low + rng.random((count, len(low))) * grid.local_shape
        self.number = np.arange(count) + count * grid.comm.rank
        self.velocity = rng.random((count, 2))
        self.before = self.sums(grid.comm)

    def drift(self) -> None:
        """Local. The first ones, which have been here longest, go."""
        count = max(1, len(self.number) // LEAVE)
        self.positions[:count, self._axis] += (self.high - self.low)[self._axis]

    def sums(self, comm: MPI.Intracomm) -> list[int]:
        """Collective. How many there are, and what tells whether they are the same ones."""
        mine = [len(self.number), int(self.number.sum()), int((self.number**2 % 9973).sum())]
        return [comm.allreduce(each) for each in mine]

    def wrong(self, comm: MPI.Intracomm) -> float:
        """Collective. The share of items that are not where they belong; 1 where some are lost."""
        if self.sums(comm) != self.before:
            return 1.0
        here = (self.positions >= self.low) & (self.positions < self.high)
        return float(comm.allreduce(1 - here.all(axis=1).mean(), op=MPI.MAX))


class HandWritten:
    """Counts by Alltoall, records of what leaves by Alltoallv; with ``room`` by a persistent
    exchange that has room for all items, as after a call in which all of them left."""

    def __init__(self, grid: Grid, items: Items, room: bool) -> None:
        self._grid, self._comm, self._items = grid, grid.comm, items
        self._ends = np.array(grid.shape, float)
        self._width = 3 + items.positions.shape[1]
        self._request: Any = None
        if room:
            most = grid.comm.allreduce(int(SPARE * len(items.number)), op=MPI.MAX)
            self._rooms = [most * self._width * (rank != grid.comm.rank)
                           for rank in range(grid.comm.size)]
            self._out = np.zeros(sum(self._rooms))
            self._request = Alltoallv_init(grid.comm, [self._out, self._rooms], None,
                                           method="rma-p2p")  # fmt: skip

    def move(self) -> None:
        """Collective."""
        items, comm = self._items, self._comm
        x = items.positions
        leaves = np.flatnonzero(((x < items.low) | (x >= items.high)).any(axis=1))
        rows = x[leaves] % self._ends
        x[leaves] = rows
        places = [np.searchsorted(edge, rows[:, axis], side="right") - 1
                  for axis, edge in enumerate(self._grid.starts)]
        owners = np.ravel_multi_index(places, self._grid.dims)
        order = np.argsort(owners, kind="stable")
        order = order[owners[order] != comm.rank]
        leaves, counts = leaves[order], np.bincount(owners[order], minlength=comm.size)
        coming = np.zeros_like(counts)
        comm.Alltoall(counts, coming)
        records = np.empty((len(leaves), self._width))
        records[:, 0] = items.number[leaves].view(float)
        records[:, 1:3] = items.velocity[leaves]
        records[:, 3:] = x[leaves]
        came = self._exchange(records, counts * self._width, coming * self._width)
        stays = np.ones(len(x), bool)
        stays[leaves] = False
        items.number = np.concatenate([items.number[stays],
                                       np.ascontiguousarray(came[:, 0]).view(np.int64)])
        items.velocity = np.concatenate([items.velocity[stays], came[:, 1:3]])
        items.positions = np.concatenate([x[stays], came[:, 3:]])

    def _exchange(
        self, records: NDArray[Any], counts: NDArray[Any], coming: NDArray[Any]
    ) -> NDArray[Any]:
        """Collective. What comes; the counts are of numbers."""
        if self._request is None:
            came = np.empty(int(coming.sum()))
            self._comm.Alltoallv([records, counts], [came, coming])
            return came.reshape(-1, self._width)
        starts = np.cumsum([0, *self._rooms[:-1]])  # of what goes to a rank, and comes from it
        leaving = np.split(records.reshape(-1), np.cumsum(counts)[:-1])
        for at, part in zip(starts, leaving, strict=True):
            self._out[at : at + len(part)] = part
        self._request.Start()
        got = self._request.Wait()
        parts = [got[at : at + count] for at, count in zip(starts, coming, strict=True)]
        return np.concatenate(parts).reshape(-1, self._width)

    def free(self) -> None:
        """Collective."""
        if self._request is not None:
            self._request.Free()


def migration(shape: tuple[int, ...], comm: MPI.Intracomm, stack: ExitStack) -> Make:
    """Collective. What makes items that move on a periodic grid, a part of them in each call."""
    grid = Grid(comm, shape, periodic=True, reorder=False)
    stack.callback(grid.Free)

    def make(labels: Labels) -> Variant:
        name, items = labels["method"], Items(grid, comm.rank)

        def ours() -> None:
            arrays = [items.number, items.velocity]
            (items.number, items.velocity), items.positions = grid.migrate(arrays, items.positions)

        hand = None if name == OURS else HandWritten(grid, items, name == ROOM)
        move, free = (ours, nothing) if hand is None else (hand.move, hand.free)

        def call() -> None:
            items.drift()
            move()

        def check() -> Verdict:
            """After another call, in which some have come to a rank."""
            before = items.number
            call()
            came = comm.allreduce(int(np.setdiff1d(items.number, before).size))
            return Verdict(items.wrong(comm) if came or comm.size == 1 else 1.0, 0.0)

        return Variant(call, check, free=free, set_up=False)

    return make


# -- multigrid ------------------------------------------------------------------------------------

#: Levels whose blocks have so few cells along an axis are one rank's.
FEWEST = 8
SMOOTHINGS = 2
COARSEST = 20  # of the last level


class Level:
    """-Laplace(u) = f, u = 0 at the walls, in cells of width ``h``, 1 on the finest grid.

    ``walls``: by axis, at which ends ghosts are made here, after ``exchange`` has brought others.
    """

    def __init__(
        self, u: NDArray[Any], f: NDArray[Any], h: float, walls: Any,
        exchange: Callable[[], object] = nothing,
    ) -> None:
        self.u, self.f, self.r, self._walls = u, f, np.zeros_like(u), walls
        self._exchange = exchange
        self.own = (slice(1, -1),) * u.ndim
        self._sum, self._h = np.zeros(u[self.own].shape), h
        moved = {-1: slice(None, -2), 0: slice(1, -1), 1: slice(2, None)}
        self._beside = [
            u[tuple(moved[s * (a == axis)] for a in range(u.ndim))]
            for axis in range(u.ndim) for s in (-1, 1)
        ]  # fmt: skip

    def defect(self) -> NDArray[Any]:
        """Collective over the ranks that have the level. f + Laplace(u), with fresh ghosts."""
        self._exchange()
        for axis, ends in enumerate(self._walls):
            layers = np.moveaxis(self.u, axis, 0)
            if ends[0]:
                np.negative(layers[1], out=layers[0])
            if ends[1]:
                np.negative(layers[-2], out=layers[-1])
        total: NDArray[Any] = np.multiply(self.u[self.own], -2 * self.u.ndim, out=self._sum)
        for beside in self._beside:
            total += beside
        total /= self._h**2
        total += self.f[self.own]
        return total

    def smooth(self, times: int) -> None:
        """Collective over the same. Damped steps of Jacobi's method."""
        for _ in range(times):
            self.u[self.own] += (0.8 * self._h**2 / (2 * self.u.ndim)) * self.defect()


#: What goes from a level to the next coarser one, or back.
Transfer = Callable[[Level, Level], object]


def parts(array: NDArray[Any]) -> list[NDArray[Any]]:
    """Local. Of an array without ghosts, by corner of the coarse cells, the fine ones there."""
    return [array[tuple(slice(s, None, 2) for s in start)]
            for start in product((0, 1), repeat=array.ndim)]


def averaged(level: Level, below: Level) -> None:
    """Local. The defect in a coarse cell is the mean of that in its parts."""
    coarse = below.f[below.own]
    first, *others = parts(level.r[level.own])
    np.copyto(coarse, first)
    for each in others:
        coarse += each
    coarse *= 0.5**coarse.ndim


def spread(level: Level, below: Level) -> None:
    """Local. A coarse cell is added to its parts."""
    for part in parts(level.u[level.own]):
        part += below.u[below.own]


class Ours:
    """Two grids: what is below the one is the other, which may be rank 0's alone."""

    def __init__(self, grid: Grid, below: Grid, halved: bool) -> None:
        self._grid, self._below, self._halved = grid, below, halved

    def down(self, level: Level, below: Level) -> None:
        """Collective."""
        move = self._grid.coarsen if self._halved else self._grid.redistribute
        move(level.r, self._below, below.f)

    def up(self, level: Level, below: Level) -> None:
        """Collective."""
        move = partial(self._below.refine, order=0) if self._halved else self._below.redistribute
        move(below.u, self._grid, level.r)
        level.u[level.own] += level.r[level.own]


class Root:
    """The blocks of a grid on rank 0, and back."""

    def __init__(self, grid: Grid) -> None:
        self._comm = comm = grid.comm
        boxes = [grid.part(rank, grid.shape) for rank in range(comm.size)]
        shapes = [[part.stop - part.start for part in box] for box in boxes]
        self._counts, self._block = list(map(math.prod, shapes)), np.zeros(shapes[comm.rank])
        self._all = np.zeros(sum(self._counts))
        #: By rank, its block, and where that is in the array of rank 0.
        self._blocks = [
            (flat.reshape(shape), tuple(slice(p.start + 1, p.stop + 1) for p in box))
            for flat, shape, box in zip(np.split(self._all, np.cumsum(self._counts)[:-1]), shapes,
                                        boxes, strict=True)
        ]  # fmt: skip

    def down(self, level: Level, below: Level) -> None:
        """Collective. The defect goes to rank 0."""
        self._block[...] = level.r[level.own]
        self._comm.Gatherv(self._block, [self._all, self._counts])
        for block, there in self._blocks if self._comm.rank == 0 else ():
            below.f[there] = block

    def up(self, level: Level, below: Level) -> None:
        """Collective. Rank 0 answers with what is to be added."""
        for block, there in self._blocks if self._comm.rank == 0 else ():
            block[...] = below.u[there]
        self._comm.Scatterv([self._all, self._counts], self._block)
        level.u[level.own] += self._block


class Cycle:
    """V-cycles over levels that all ranks share, then over levels of rank 0 alone."""

    def __init__(self, comm: MPI.Intracomm, shape: tuple[int, ...], ours: bool) -> None:
        """Collective."""
        self._comm = comm
        self.levels: list[Level] = []
        self._transfers: list[tuple[Transfer, Transfer]] = []  # from each level down, and back up
        made = ExitStack()
        self.free = made.close  # Collective
        finer, grid, cart, h = None, None, None, 1.0
        while grid is None or all(n % (2 * d) == 0 and n // d >= 2 * FEWEST
                                  for n, d in zip(shape, grid.dims, strict=True)):
            if grid is not None:
                shape, h = tuple(n // 2 for n in shape), 2 * h
            finer, grid = grid, Grid(comm, shape, boundary="antireflect", ghosts="faces",
                                     dims=None if grid is None else grid.dims, reorder=False)
            made.callback(grid.Free)
            if finer is not None:
                link = Ours(finer, grid, halved=True)
                self._transfers.append((link.down, link.up) if ours else (averaged, spread))
            if ours:
                u, f = grid.zeros(), grid.zeros()
                self.levels.append(Level(u, f, h, (), partial(grid.update, u)))
            else:
                if cart is None:
                    cart = cart_of(grid)
                    made.callback(cart.Free)
                u, f = (np.zeros_like(grid.zeros()) for _ in range(2))
                hand = ByHand(cart, u, at_once(len(shape), 1))
                made.callback(hand.Free)
                ends = zip(grid.coords, grid.dims, strict=True)
                walls = [(at == 0, at == n - 1) for at, n in ends]
                self.levels.append(Level(u, f, h, walls, hand.exchange))
            if finer is None:
                own = self.levels[0].own
                self.levels[0].f[own] = np.random.default_rng(1).random(shape)[grid.box]
        self._shared = len(self.levels)
        if ours:
            root = Grid(comm, shape, sizes=[[shape[0]] + [0] * (comm.size - 1),
                                            *([n] for n in shape[1:])])  # fmt: skip
            made.callback(root.Free)
            u, f = root.zeros(), root.zeros()
            last: Ours | Root = Ours(grid, root, halved=False)
        else:
            u, f = (np.zeros([n + 2 for n in shape]) for _ in range(2))
            last = Root(grid)
        self._transfers.append((last.down, last.up))
        everywhere = [(True, True)] * len(shape)
        self.levels.append(Level(u, f, h, everywhere))
        while comm.rank == 0 and all(n % 2 == 0 and n >= 4 for n in shape):
            shape, h = tuple(n // 2 for n in shape), 2 * h
            u, f = (np.zeros([n + 2 for n in shape]) for _ in range(2))
            self.levels.append(Level(u, f, h, everywhere))
            self._transfers.append((averaged, spread))

    def run(self, number: int = 0) -> None:
        """Collective over the ranks that have this level. A cycle from it down and up again."""
        level = self.levels[number]
        if number == len(self.levels) - 1:
            level.smooth(COARSEST)
            return
        level.smooth(SMOOTHINGS)
        level.r[level.own] = level.defect()
        below, (down, up) = self.levels[number + 1], self._transfers[number]
        down(level, below)
        below.u[...] = 0
        if number < self._shared - 1 or self._comm.rank == 0:
            self.run(number + 1)
        up(level, below)
        level.smooth(SMOOTHINGS)

    def norm(self) -> float:
        """Collective. Of the defect on the finest grid."""
        return math.sqrt(self._comm.allreduce(float((self.levels[0].defect() ** 2).sum())))


def multigrid(shape: tuple[int, ...], comm: MPI.Intracomm, stack: ExitStack) -> Make:
    """Collective. What makes V-cycles on a grid of this shape."""
    expected: list[float] = []

    def make(labels: Labels) -> Variant:
        cycle = Cycle(comm, shape, labels["method"] == OURS)

        def check() -> Verdict:
            """From the beginning: cycles leave little of the defect, and all ways the same."""
            cycle.levels[0].u[...] = 0
            norms = [cycle.norm()]
            for _ in range(4):
                cycle.run()
                norms.append(cycle.norm())
            if not expected:
                expected.extend(norms)
            same = max(abs(a - b) / norms[0] for a, b in zip(norms, expected, strict=True))
            return Verdict(same if norms[-1] < 0.05 * norms[0] else math.inf, 1e-12)

        return Variant(cycle.run, check, free=cycle.free, set_up=False)

    return make
