"""Halos: grids of all kinds, every transport, dtype and way to lie in memory."""

from __future__ import annotations

import numpy as np
from cases import parameters
from halo_blocks import (
    DTYPES,
    MEMORY,
    TURNS,
    Block,
    factorizations,
    grids,
    world_of,
)
from mpi4py import MPI
from subjects import WAYS, by


@parameters(grid=grids, ghosts=["all", "edges", "faces"])
def case_grids(comm, grid, ghosts):
    """The same neighbor twice, and oneself, where an axis is periodic and short."""
    dims, periods = grid
    block = Block(comm, world_of(dims, periods, [(1, 2), (2, 1), (1, 1)][: len(dims)]),
                  ghosts=ghosts)
    for turn in range(TURNS):
        block.fill(turn)
        assert block.halo.exchange() is block.array
        block.check(turn)
    block.free()


@parameters(way=WAYS)
def case_ways(comm, way):
    """The way that is wanted is taken; completed by Wait and by Test."""
    world = world_of(MPI.Compute_dims(comm.size, 2), (True, True), [(1, 1), (2, 2)], more=9)
    with by(way) as info:
        block = Block(comm, world, "shared", info=info)
    made = set(block.halo.method.split(", "))
    assert made <= ({way, "message"} if comm.size > 1 else {"copies"}), made
    for turn in range(2 * TURNS):
        block.fill(turn)
        block.halo.Start()
        if turn % 2:
            while not block.halo.Test():
                pass
        block.halo.Wait()
        block.check(turn)
    block.free()


@parameters(memory=MEMORY, layers=[1, 2])
def case_memory_orders(comm, memory, layers):
    """Straight from the array and into it where that is possible, packed elsewhere."""
    dims = MPI.Compute_dims(comm.size, 3)
    block = Block(comm, world_of(dims, (True, True, True), [(layers, layers)] * 3, more=1),
                  memory)
    for turn in range(TURNS):
        block.fill(turn)
        block.halo.exchange()
        block.check(turn)
    block.free()


@parameters(trial=range(8))
def case_random_grids(comm, trial, seed):
    """Everything drawn at once; the same on all ranks, but for how arrays lie in memory."""
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
    for turn in range(TURNS):
        block.fill(turn)
        block.halo.exchange()
        block.check(turn)
    block.free()
