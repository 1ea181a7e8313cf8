"""Halos: random grids and graphs, every transport, dtype and way to lie in memory."""

from __future__ import annotations

import time

import numpy as np
from cases import parameters
from halo_data import GUARD, World, same
from subjects import WAYS, by

from onesided.collectives import HaloExchange, empty, free

DTYPES = ["u1", "?", ">i2", "f4", "f8", "c16", "S5", "V3", "M8[s]", "i4,(2,)f8"]
MEMORY = ["C", "F", "strided", "reversed", "shared", "shared F"]
TURNS = 3


def array_like(comm, shape, dtype, memory):
    """An array of this shape, and what has to be freed."""
    if memory == "F":
        return np.zeros(shape, dtype, order="F"), None
    if memory == "strided":
        return np.zeros([2 * extent + 1 for extent in shape], dtype)[
            tuple(slice(1, None, 2) for _ in shape)], None
    if memory == "reversed":
        return np.zeros(shape, dtype)[tuple(slice(None, None, -1) for _ in shape)], None
    if memory == "shared":
        array = empty(comm, shape, dtype)
        return array, array
    if memory == "shared F":
        array = empty(comm, shape[::-1], dtype)
        return array.T, array
    return np.zeros(shape, dtype), None


class Block:
    """This rank's block of a world, with its halo."""

    def __init__(self, comm, world, memory="C", ghosts="all", **options):
        self.world, self.ghosts = world, ghosts
        self.cart = comm.Create_cart(world.dims, world.periods)
        self.coords = tuple(self.cart.Get_coords(self.cart.rank))
        shape = world.shape(self.coords)
        self.array, self.shared = array_like(comm, shape, world.dtype, memory)
        self.array[...] = world.guard()
        before = self.array.copy()
        self.halo = HaloExchange(self.cart, self.array, world.layers, ghosts=ghosts, **options)
        assert same(self.array, before), "the array was written at initialization"

    def fill(self, turn):
        """Own values; nobody has written the ghost layers."""
        self.array[...] = self.world.before(self.coords, turn)

    def check(self, turn):
        want = self.world.after(self.coords, turn, self.ghosts)
        assert same(self.array, want), (turn, self.halo, np.argwhere(self.array != want)[:4])

    def free(self):
        self.halo.Free()
        if self.shared is not None:
            self.array = None
            free(self.shared)
        self.cart.Free()


def factorizations(size, axes):
    """All grids of so many ranks."""
    if axes == 1:
        return [(size,)]
    return [(first, *rest) for first in range(1, size + 1) if size % first == 0
            for rest in factorizations(size // first, axes - 1)]


def world_of(dims, periods, layers, dtype="i8", more=0, trailing=()):
    """Blocks of different sizes, as large as the layers, plus ``more``."""
    sizes = [tuple(max(max(layers[axis]), 1) + (place + axis) % 2 + more for place in range(extent))
             for axis, extent in enumerate(dims)]
    sizes += [(extent,) for extent in trailing]
    layers = [*layers, *[(0, 0)] * len(trailing)]
    return World(tuple(sizes), tuple(periods), tuple(layers), dtype)


@parameters(trial=range(16))
def case_random_grids(comm, trial, seed):
    """Everything drawn at once; the same on all ranks, but for how arrays lie in memory. Grids
    with one or two ranks along a periodic axis have the same neighbor twice, and themselves."""
    rng = np.random.default_rng([seed, trial])
    axes = int(rng.integers(1, 5))
    choices = factorizations(comm.size, axes)
    dims = choices[rng.integers(len(choices))]
    layers = [tuple(int(n) for n in rng.integers(0, 4, 2)) for _ in dims]
    trailing = tuple(int(n) for n in rng.integers(1, 4, rng.integers(0, 3)))
    world = world_of(dims, [bool(n) for n in rng.integers(0, 2, axes)], layers,
                     DTYPES[rng.integers(len(DTYPES))], int(rng.integers(0, 5)), trailing)
    ghosts = ("faces", "edges", "all")[rng.integers(0, 3)]
    way = sorted(WAYS)[rng.integers(0, 3)]
    memory = MEMORY[rng.integers(len(MEMORY))]
    if "shared" not in memory and trial % 2:
        memory = ("C", "F", "strided", "reversed")[(comm.rank + trial) % 4]
    with by(way) as info:
        block = Block(comm, world, memory, ghosts, info=info)
    made = set(block.halo.method.split(", "))
    alike = memory.startswith("shared") or way != "store"
    assert made <= {way, "message", "copies"} or not alike, made
    for turn in range(TURNS):
        block.fill(turn)
        block.halo.Start()
        while trial % 3 == 0 and not block.halo.Test():
            pass
        assert block.halo.Wait() is block.array
        block.check(turn)
    block.free()


@parameters(graph=range(8), way=WAYS)
def case_random_graphs(comm, graph, way, seed):
    """Any pairs of ranks, any boxes, one way or both ways, matched by tags or by their order;
    those who receive only read slowly."""
    rng = np.random.default_rng([seed, graph])  # the same on all ranks
    edges = [(int(a), int(b), int(n), int(m)) for a, b, n, m in zip(
        rng.integers(0, comm.size, 14), rng.integers(0, comm.size, 14),
        rng.integers(1, 4, 14), rng.integers(1, 5, 14), strict=True)]
    array = empty(comm, (60, 5), np.int32)
    array[...] = GUARD
    entries, expected = [], []
    for number, (source, dest, rows, columns) in enumerate(edges):
        out = (slice(4 * (number % 7), 4 * (number % 7) + rows), slice(0, columns))
        into = (slice(28 + 2 * number, 28 + 2 * number + min(rows, 2)), slice(5 - columns, 5))
        out = (slice(out[0].start, out[0].start + min(rows, 2)), out[1])
        if comm.rank == source == dest:
            entries.append([dest, out, into, number])
        elif comm.rank == source:
            entries.append([dest, out, None, number])
        elif comm.rank == dest:
            entries.append([source, None, into, number])
        if comm.rank == dest:
            expected.append((source, out, into))
    if graph % 2 == 0:  # by order: the sides of a pair must list their entries alike
        entries = [entry[:3] for entry in entries]
    else:
        entries = [entries[i] for i in rng.permutation(len(entries))]
    sends = any(comm.rank == source != dest for source, dest, _, _ in edges)
    with by(way) as info:
        halo = HaloExchange(comm, array, neighbors=entries, info=info)
    for turn in range(8):
        time.sleep(0 if sends else 0.002)
        array[28:] = GUARD
        array[:28] = values(comm.rank, turn)
        halo.exchange()
        want = np.full((60, 5), GUARD, np.int32)
        want[:28] = values(comm.rank, turn)
        for source, out, into in expected:
            want[into] = values(source, turn)[out]
        assert np.array_equal(array, want), (graph, turn)
    halo.Free()
    free(array)


def values(rank, turn):
    return np.arange(140, dtype=np.int32).reshape(28, 5) + 1000 * rank + 100000 * turn
