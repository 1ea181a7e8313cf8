"""Halos: late ranks, listed neighbors, other requests beside them."""

from __future__ import annotations

import time

import numpy as np
from cases import parameters, ranks
from halo_blocks import TURNS, Block, world_of
from halo_data import GUARD, World, same
from mpi4py import MPI
from subjects import WAYS, by

from onesided.collectives import (
    HaloExchange,
    Precv_init,
    Psend_init,
    Startall,
    Waitall,
    empty,
    free,
)


@parameters(way=WAYS)
def case_many_neighbors(comm, way):
    """Every rank exchanges with every rank three times."""
    here = comm.rank
    array = np.full((2, comm.size, 3, 10), GUARD, np.int64)
    neighbors = [(peer, (slice(0, 1), slice(peer, peer + 1), slice(n, n + 1)),
                  (slice(1, 2), slice(peer, peer + 1), slice(n, n + 1)))
                 for n in range(3) for peer in np.roll(range(comm.size), -here)]
    with by(way) as info, HaloExchange(
        comm, array, neighbors=neighbors, info=info
    ) as halo:
        for turn in range(TURNS):
            numbers = np.arange(comm.size * 30).reshape(comm.size, 3, 10) + 1000 * turn
            array[0] = numbers + 10000 * here
            array[1] = GUARD
            halo.exchange()
            for peer in range(comm.size):
                assert np.array_equal(array[1, peer], numbers[here] + 10000 * peer), (turn, peer)
            assert np.array_equal(array[0], numbers + 10000 * here)


@parameters(graph=range(6))
def case_random_graphs(comm, graph, seed):
    """Any pairs of ranks, any boxes, one way or both ways, matched by tags or by their order."""
    rng = np.random.default_rng([seed, graph])  # the same on all ranks
    edges = [(int(a), int(b), int(n), int(m)) for a, b, n, m in zip(
        rng.integers(0, comm.size, 14), rng.integers(0, comm.size, 14),
        rng.integers(1, 4, 14), rng.integers(1, 5, 14), strict=True)]
    array = np.full((60, 5), GUARD, np.int32)
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
    halo = HaloExchange(comm, array, neighbors=entries)
    for turn in range(TURNS):
        array[28:] = GUARD
        array[:28] = values(comm.rank, turn)
        halo.exchange()
        want = np.full((60, 5), GUARD, np.int32)
        want[:28] = values(comm.rank, turn)
        for source, out, into in expected:
            want[into] = values(source, turn)[out]
        assert np.array_equal(array, want), (graph, turn)
    halo.Free()


def values(rank, turn):
    return np.arange(140, dtype=np.int32).reshape(28, 5) + 1000 * rank + 100000 * turn


def case_beside_others(comm):
    """With other requests in one Startall and Waitall, and messages of the caller's own."""
    block = Block(comm, world_of((comm.size,), (True,), [(1, 1)], more=4))
    other = HaloExchange(block.cart, mirror := np.zeros(6), 1)
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    source, target = np.zeros(8), np.zeros(8)
    send, receive = Psend_init(comm, source, 2, right), Precv_init(comm, target, 2, left)
    for turn in range(TURNS):
        block.fill(turn)
        source[:], mirror[1:-1] = turn + comm.rank, 10 * turn + comm.rank
        word, got = np.array([turn, comm.rank]), np.zeros(2, np.int64)
        message = block.cart.Irecv([got, MPI.INT64_T], MPI.ANY_SOURCE, MPI.ANY_TAG)
        requests = [receive, block.halo, send, other]
        Startall(requests[:: 1 if comm.rank % 2 else -1])
        send.Pready_range(0, 1)
        answers = Waitall(requests[:: 1 if comm.rank % 2 else -1])
        assert answers[1 if comm.rank % 2 else 2] is block.array
        block.cart.Send([word, MPI.INT64_T], right, 3)
        message.Wait()
        assert got.tolist() == [turn, left]
        block.check(turn)
        assert (target == turn + left).all()
        assert (mirror[0], mirror[-1]) == (10 * turn + left, 10 * turn + right)
        comm.Barrier()
    send.Free()
    receive.Free()
    other.Free()
    block.free()


@parameters(way=WAYS)
@ranks(at_least=2)
def case_one_way(comm, way):
    """Data in one direction only: a fast sender does not overtake a slow reader."""
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    array = empty(comm, (2, 50), np.int64)
    neighbors = []
    if comm.rank:
        neighbors.append((left, None, slice(1, 2)))
    if right:
        neighbors.append((right, slice(0, 1), None))
    with by(way) as info:
        halo = HaloExchange(comm, array, neighbors=neighbors, info=info)
    for turn in range(20):
        array[0] = np.arange(50) + 100 * comm.rank + 1000 * turn
        halo.Start()
        time.sleep(0.002 * (comm.rank % 2 and turn % 3 == 0))
        halo.Wait()
        time.sleep(0.002 * (comm.rank % 2 and turn % 3 == 1))
        assert not comm.rank or (array[1] == np.arange(50) + 100 * left + 1000 * turn).all()
    halo.Free()
    free(array)


@parameters(way=WAYS)
def case_several_fields(comm, way):
    """Of different dtypes and shapes, and such that take turns, in one message per neighbor."""
    world = world_of((comm.size, 1), (True, False), [(1, 1), (1, 1)], more=6)
    blocks = [Block(comm, World(world.sizes, world.periods, world.layers, dtype), "shared")
              for dtype in ("f8", "i4", "c16", "f8")]
    u, v, w, u_new = (block.array for block in blocks)
    with by(way) as info:
        halo = HaloExchange(blocks[0].cart, [(u, u_new), v, w], world.layers, info=info)
    for turn in range(2 * TURNS):
        moved = [blocks[0 if turn % 2 == 0 else 3], blocks[1], blocks[2]]
        for block in blocks:
            block.fill(turn)
        given = halo.exchange()
        assert all(array is block.array for array, block in zip(given, moved, strict=True))
        for block in moved:
            block.check(turn)
        still = blocks[3 if turn % 2 == 0 else 0]
        assert same(still.array, still.world.before(still.coords, turn))
    halo.Free()
    for block in blocks:
        block.free()
