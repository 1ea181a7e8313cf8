"""Blocks of a grid with their halos, and what they must show."""

from __future__ import annotations

import numpy as np
from halo_data import World, same

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
