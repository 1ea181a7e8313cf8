"""Programs on grids beside the same with mpi4py and NumPy alone: items that migrate, V-cycles."""

from __future__ import annotations

import math
from contextlib import ExitStack
from itertools import product
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.by_hand import ByHand, at_once, cart_of
from onesided.apps.bench.sweep import Labels, Make
from onesided.apps.bench.timing import Variant
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
        """Local."""
        rng, count = np.random.default_rng(seed), math.prod(grid.local_shape)
        low = np.array([part.start for part in grid.box], float)
        self.low, self.high = low, low + grid.local_shape
        self.positions = self.low + rng.random((count, len(low))) * grid.local_shape
        self.number = np.arange(count) + count * grid.comm.rank
        self.velocity = rng.random((count, 2))
        self.before = self.sums(grid.comm)

    def drift(self) -> None:
        """Local. The first ones, which have been here longest, go."""
        count = max(1, len(self.number) // LEAVE)
        self.positions[:count, 0] += self.high[0] - self.low[0]

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
        """Collective."""
        self._grid, self._comm, self._items = grid, grid.comm, items
        self._ends = np.array(grid.shape, float)
        self._width = 8 * (3 + items.positions.shape[1])
        self._request: Any = None
        if room:
            most = grid.comm.allreduce(int(SPARE * len(items.number)), op=MPI.MAX)
            self._rooms = [most * self._width * (rank != grid.comm.rank)
                           for rank in range(grid.comm.size)]
            self._out = np.zeros(sum(self._rooms), np.uint8)
            self._request = Alltoallv_init(grid.comm, [self._out, self._rooms], None,
                                           method="rma-p2p")  # fmt: skip

    def move(self) -> None:
        """Collective."""
        items, comm = self._items, self._comm
        x = items.positions
        leaves = np.flatnonzero(((x < items.low) | (x >= items.high)).any(axis=1))
        rows = x[leaves] % self._ends
        x[leaves] = rows
        edges = self._grid.starts
        places = [np.searchsorted(edge, rows[:, axis], side="right") - 1
                  for axis, edge in enumerate(edges)]
        owners = np.ravel_multi_index(places, self._grid.dims)
        order = np.argsort(owners, kind="stable")
        leaves, owners = leaves[order], owners[order]
        away = owners != comm.rank
        leaves, owners = leaves[away], owners[away]
        counts = np.bincount(owners, minlength=comm.size)
        coming = np.zeros_like(counts)
        comm.Alltoall(counts, coming)
        records = np.empty((len(leaves), self._width // 8))
        records[:, 0] = items.number[leaves].view(float)
        records[:, 1:3] = items.velocity[leaves]
        records[:, 3:] = x[leaves]
        came = self._exchange(records, counts, coming)
        stays = np.ones(len(x), bool)
        stays[leaves] = False
        items.number = np.concatenate([items.number[stays],
                                       np.ascontiguousarray(came[:, 0]).view(np.int64)])
        items.velocity = np.concatenate([items.velocity[stays], came[:, 1:3]])
        items.positions = np.concatenate([x[stays], came[:, 3:]])

    def _exchange(
        self, records: NDArray[Any], counts: NDArray[Any], coming: NDArray[Any]
    ) -> NDArray[Any]:
        """Collective."""
        if self._request is None:
            came = np.empty((int(coming.sum()), records.shape[1]))
            width = records.shape[1]
            self._comm.Alltoallv([records, counts * width], [came, coming * width])
            return came
        start = 0
        for at, count in zip(np.cumsum([0, *self._rooms]), counts, strict=False):
            part = records[start : start + count].view(np.uint8).reshape(-1)
            self._out[at : at + len(part)] = part
            start += count
        self._request.Start()
        got, found, at = self._request.Wait(), [records[:0]], 0
        for count, room in zip(coming.tolist(), self._rooms, strict=True):  # they are all alike
            part = got[at : at + count * self._width].view(float)
            found.append(part.reshape(count, self._width // 8))
            at += room
        return np.concatenate(found)

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
        hand = None if name == OURS else HandWritten(grid, items, name == ROOM)

        def call() -> None:
            items.drift()
            if hand is not None:
                hand.move()
                return
            arrays = [items.number, items.velocity]
            (items.number, items.velocity), items.positions = grid.migrate(arrays, items.positions)

        def free() -> None:
            if hand is not None:
                hand.free()

        return Variant(call, lambda: Verdict(items.wrong(comm), 0.0), free=free, set_up=False)

    return make


# -- multigrid ------------------------------------------------------------------------------------

#: Levels whose blocks have so few cells along an axis are one rank's.
FEWEST = 8
SMOOTHINGS = 2
COARSEST = 20  # of the last level


class Level:
    """-Laplace(u) = f, u = 0 at the walls, in cells of width 1 on the finest grid.

    ``cells`` are those of this array; ``walls``: by axis, whether the grid ends there.
    """

    def __init__(self, u: NDArray[Any], f: NDArray[Any], h: float, walls: Any) -> None:
        """Local."""
        self.u, self.f, self.r, self._walls = u, f, np.zeros_like(u), walls
        self.own = (slice(1, -1),) * u.ndim
        self._sum, self._h = np.zeros(u[self.own].shape), h
        moved = {-1: slice(None, -2), 0: slice(1, -1), 1: slice(2, None)}
        self._beside = [
            u[tuple(moved[s * (a == axis)] for a in range(u.ndim))]
            for axis in range(u.ndim) for s in (-1, 1)
        ]  # fmt: skip

    def ghosts(self) -> None:
        """Local. Beyond the walls."""
        for axis, ends in enumerate(self._walls):
            layers = np.moveaxis(self.u, axis, 0)
            if ends[0]:
                np.negative(layers[1], out=layers[0])
            if ends[1]:
                np.negative(layers[-2], out=layers[-1])

    def defect(self) -> NDArray[Any]:
        """Local. f + Laplace(u), when all ghosts are there."""
        total: NDArray[Any] = np.multiply(self.u[self.own], -2 * self.u.ndim, out=self._sum)
        for beside in self._beside:
            total += beside
        total /= self._h**2
        total += self.f[self.own]
        return total

    def smooth(self) -> None:
        """Local. A damped step of Jacobi's method."""
        self.u[self.own] += (0.8 * self._h**2 / (2 * self.u.ndim)) * self.defect()


def parts(array: NDArray[Any]) -> list[NDArray[Any]]:
    """Local. Of an array without ghosts, by corner of the coarse cells, the fine ones there."""
    return [array[tuple(slice(s, None, 2) for s in start)]
            for start in product((0, 1), repeat=array.ndim)]


def mean_of(fine: NDArray[Any], coarse: NDArray[Any]) -> None:
    """Local. A coarse cell is the mean of its parts."""
    first, *others = parts(fine)
    np.copyto(coarse, first)
    for each in others:
        coarse += each
    coarse *= 0.5**fine.ndim


class Cycle:
    """V-cycles over levels that all ranks share, then over levels of rank 0 alone."""

    def __init__(self, comm: MPI.Intracomm, shape: tuple[int, ...], ours: bool) -> None:
        """Collective."""
        self._comm, self._ours = comm, ours
        self._grids: list[Grid] = []
        self._hands: list[ByHand] = []
        self.levels: list[Level] = []
        dims, h = None, 1.0
        while not self._grids or all(n % (2 * d) == 0 and n // d >= 2 * FEWEST
                                     for n, d in zip(shape, dims or shape, strict=True)):
            if self._grids:
                shape, h = tuple(n // 2 for n in shape), 2 * h
            grid = Grid(comm, shape, boundary="antireflect", ghosts="faces", dims=dims,
                        reorder=False)  # fmt: skip
            dims = grid.dims
            if not self._grids:
                self._cart = cart_of(grid)
            self._grids.append(grid)
            walls = [(at == 0, at == n - 1) for at, n in zip(grid.coords, dims, strict=True)]
            u, f = (grid.zeros() if ours else np.zeros_like(grid.zeros()) for _ in range(2))
            self.levels.append(Level(u, f, h, walls))
            if not ours:
                self._hands.append(ByHand(self._cart, u, at_once(len(dims), 1)))
        rng = np.random.default_rng(1)
        self.levels[0].f[self.levels[0].own] = rng.random(self._grids[0].shape)[self._grids[0].box]
        self._root = Grid(
            comm, shape, sizes=[[shape[0]] + [0] * (comm.size - 1), *([n] for n in shape[1:])])
        walls = [(True, True)] * len(shape)
        u, f = (self._root.zeros() if ours else np.zeros([n + 2 for n in shape]) for _ in range(2))
        self.levels.append(Level(u, f, h, walls))
        while comm.rank == 0 and all(n % 2 == 0 and n >= 4 for n in shape):
            shape, h = tuple(n // 2 for n in shape), 2 * h
            u, f = (np.zeros([n + 2 for n in shape]) for _ in range(2))
            self.levels.append(Level(u, f, h, walls))
        #: By rank, its block of the coarsest grid, and where that is in the array of rank 0.
        self._blocks: list[tuple[NDArray[Any], Any]] = []
        self._there: list[MPI.Prequest] = []
        self._back: list[MPI.Prequest] = []
        if not ours:
            self._connect_root(grid)

    def _connect_root(self, grid: Grid) -> None:
        """Local. Persistent messages of blocks to rank 0, and back."""
        comm = self._comm
        for rank in range(comm.size) if comm.rank == 0 else [comm.rank]:
            box = grid.part(rank, grid.shape)
            block = np.zeros([part.stop - part.start for part in box])
            self._blocks.append((block, tuple(slice(p.start + 1, p.stop + 1) for p in box)))
            if rank:
                from_root = comm.rank == 0
                peer = rank if from_root else 0
                sends, receives = ((self._back, self._there) if from_root
                                   else (self._there, self._back))
                sends.append(comm.Send_init(block, peer, 7))
                receives.append(comm.Recv_init(block, peer, 7))

    def run(self) -> None:
        """Collective in the sense of MPI. A cycle."""
        self._down(0)

    def _down(self, number: int) -> None:
        """Collective over the ranks that have this level."""
        level, shared = self.levels[number], len(self._grids)
        if number == len(self.levels) - 1:
            self._smooth(number, COARSEST)
            return
        self._smooth(number, SMOOTHINGS)
        self._update(number)
        level.r[level.own] = level.defect()
        below = self.levels[number + 1]
        if number == shared - 1:
            self._to_root(level, below)
        elif number < shared and self._ours:
            grid, other = self._grids[number : number + 2]
            grid.coarsen(level.r, other, below.f)
        else:
            mean_of(level.r[level.own], below.f[below.own])
        below.u[...] = 0
        if number != shared - 1 or self._comm.rank == 0:
            self._down(number + 1)
        if number == shared - 1:
            self._from_root(level, below)
            level.u[level.own] += level.r[level.own]
        elif number < shared and self._ours:
            other.refine(below.u, grid, level.r, order=0)
            level.u[level.own] += level.r[level.own]
        else:
            for part in parts(level.u[level.own]):
                part += below.u[below.own]
        self._smooth(number, SMOOTHINGS)

    def _smooth(self, number: int, times: int) -> None:
        for _ in range(times):
            self._update(number)
            self.levels[number].smooth()

    def _update(self, number: int) -> None:
        """Ghosts of other ranks, and beyond the walls."""
        level, shared = self.levels[number], number < len(self._grids)
        if shared and self._ours:
            self._grids[number].update(level.u)
            return
        if shared:
            self._hands[number].exchange()
        level.ghosts()

    def _to_root(self, level: Level, below: Level) -> None:
        """Collective. The defect goes to rank 0."""
        if self._ours:
            self._grids[-1].redistribute(level.r, self._root, below.f)
            return
        self._blocks[0][0][...] = level.r[level.own]
        MPI.Prequest.Startall(self._there)
        MPI.Request.Waitall(self._there)
        if self._comm.rank == 0:
            for block, there in self._blocks:
                below.f[there] = block

    def _from_root(self, level: Level, below: Level) -> None:
        """Collective. Rank 0 answers with what is to be added."""
        if self._ours:
            self._root.redistribute(below.u, self._grids[-1], level.r)
            return
        if self._comm.rank == 0:
            for block, there in self._blocks:
                block[...] = below.u[there]
        MPI.Prequest.Startall(self._back)
        MPI.Request.Waitall(self._back)
        level.r[level.own] = self._blocks[0][0]

    def norm(self) -> float:
        """Collective. Of the defect on the finest grid."""
        self._update(0)
        return math.sqrt(self._comm.allreduce(float((self.levels[0].defect() ** 2).sum())))

    def restart(self) -> None:
        """Local."""
        self.levels[0].u[...] = 0

    def free(self) -> None:
        """Collective."""
        for hand in self._hands:
            hand.Free()
        for request in (*self._there, *self._back):
            request.Free()
        self._root.Free()
        for grid in reversed(self._grids):
            grid.Free()
        self._cart.Free()


def multigrid(shape: tuple[int, ...], comm: MPI.Intracomm, stack: ExitStack) -> Make:
    """Collective. What makes V-cycles on a grid of this shape."""
    expected: list[float] = []

    def make(labels: Labels) -> Variant:
        cycle = Cycle(comm, shape, labels["method"] == OURS)

        def check() -> Verdict:
            """From the beginning: cycles leave little of the defect, and all ways the same."""
            cycle.restart()
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
