"""Halos: grids of all kinds, every transport, dtype and way to lie in memory."""

from __future__ import annotations

import numpy as np
from cases import parameters
from halo_blocks import (
    DTYPES,
    MEMORY,
    TURNS,
    WAYS,
    Block,
    by,
    factorizations,
    grids,
    world_of,
)
from mpi4py import MPI


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


@parameters(way=WAYS, partitions=[1, 3, (2, 4)])
def case_ways(comm, way, partitions, seed):
    """Pieces of different sizes, marked one by one and all together."""
    world = world_of(MPI.Compute_dims(comm.size, 2), (True, True), [(1, 1), (2, 2)], more=9)
    with by(way) as info:
        block = Block(comm, world, "shared", partitions=partitions, info=info)
    made = set(block.halo.method.split(", "))
    assert made <= ({way, "message"} if comm.size > 1 else {"copies"}), made
    for turn in range(2 * TURNS):
        block.fill(turn)
        block.halo.Start()
        if turn % 3 == 0:
            block.halo.Pready_all()
        elif turn % 3 == 1:
            block.mark_randomly(turn, seed + comm.rank)
        else:
            for face in reversed(range(len(block.halo.faces))):
                block.halo.Pready(face)
        if turn % 2:
            while not block.halo.Test():
                pass
        block.halo.Wait()
        block.check(turn)
    block.free()


@parameters(dtype=DTYPES)
def case_dtypes(comm, dtype):
    block = Block(comm, world_of((comm.size, 1), (True, False), [(1, 1), (1, 1)], dtype, more=2),
                  partitions=2)
    for turn in range(TURNS):
        block.fill(turn)
        block.halo.exchange()
        block.check(turn)
    block.free()


@parameters(memory=MEMORY, partitions=[None, 2, (2, 1, 3)], layers=[1, 2])
def case_memory_orders(comm, memory, partitions, layers):
    """Straight from the array and into it where that is possible, packed elsewhere."""
    dims = MPI.Compute_dims(comm.size, 3)
    block = Block(comm, world_of(dims, (True, True, True), [(layers, layers)] * 3, more=1),
                  memory, partitions=partitions)
    for turn in range(TURNS):
        block.fill(turn)
        block.halo.exchange()
        block.check(turn)
    block.free()


@parameters(trial=range(6))
def case_random_grids(comm, trial, seed):
    """Everything drawn at once; the same on all ranks, but for how they cut and what they have."""
    rng = np.random.default_rng([seed, trial])
    axes = int(rng.integers(1, 4))
    choices = factorizations(comm.size, axes)
    dims = choices[rng.integers(len(choices))]
    layers = [tuple(int(n) for n in rng.integers(0, 4, 2)) for _ in dims]
    trailing = tuple(int(n) for n in rng.integers(1, 4, rng.integers(0, 2)))
    world = world_of(dims, [bool(n) for n in rng.integers(0, 2, axes)], layers,
                     DTYPES[rng.integers(len(DTYPES))], int(rng.integers(0, 5)), trailing)
    ghosts = ("faces", "edges", "all")[rng.integers(0, 3)]
    way = sorted(WAYS)[rng.integers(0, 3)]
    memory = MEMORY[rng.integers(len(MEMORY))]
    own = np.random.default_rng([seed, trial, comm.rank])
    partitions = tuple(int(n) for n in own.integers(1, 5, axes + len(trailing)))
    if own.integers(0, 3) == 0:
        partitions = None
    with by(way) as info:
        block = Block(comm, world, memory, ghosts, partitions=partitions, info=info)
    for turn in range(TURNS):
        block.fill(turn)
        block.halo.Start()
        if partitions is not None:
            block.mark_randomly(turn, seed + comm.rank)
        block.halo.Wait()
        block.check(turn)
    block.free()


@parameters(memory=["C", "F", "shared"])
def case_every_rank_its_own(comm, memory):
    """Ranks cut their faces in different ways, and their arrays lie differently in memory."""
    mine = memory if comm.rank % 2 else "C"
    world = world_of((1, comm.size), (True, True), [(1, 1), (2, 1)], more=10)
    block = Block(comm, world, mine if memory != "shared" else memory, partitions=1 + comm.rank)
    left = block.halo.faces[next(i for i, f in enumerate(block.halo.faces) if f.offset == (0, -1))]
    neighbor = 1 + (comm.rank - 1) % comm.size
    assert (left.partitions, left.arrivals) == (1 + comm.rank, neighbor)
    for turn in range(TURNS):
        block.fill(turn)
        block.halo.exchange()
        block.check(turn)
    block.free()


def case_axes_of_a_point(comm):
    """A grid of one axis, an array of three: the others are not decomposed."""
    world = world_of((comm.size,), (True,), [(2, 1)], trailing=(3, 2))
    block = Block(comm, world, partitions=(1, 3, 1))
    for turn in range(TURNS):
        block.fill(turn)
        block.halo.exchange()
        block.check(turn)
    block.free()


def case_four_axes(comm):
    dims = (1, *MPI.Compute_dims(comm.size, 3))
    block = Block(comm, world_of(dims, (True, False, True, True), [(1, 1)] * 4))
    for turn in range(TURNS):
        block.fill(turn)
        block.halo.exchange()
        block.check(turn)
    block.free()


@parameters(layers=[[(1, 0), (0, 2)], [(0, 0), (1, 1)], [(0, 0), (0, 0)]])
def case_widths_of_zero(comm, layers):
    block = Block(comm, world_of((comm.size, 1), (True, True), layers, more=1), partitions=1)
    for turn in range(TURNS):
        block.fill(turn)
        block.halo.Start()
        for face, entry in enumerate(block.halo.faces):
            assert (entry.partitions == 0) == (not block.halo.pieces(face))
            block.halo.Pready(face)
        assert block.halo.Wait() is block.array
        block.check(turn)
    block.free()
