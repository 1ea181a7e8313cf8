"""Halos: grids of all kinds, listed neighbors, threads, early arrivals, late ranks."""

from __future__ import annotations

import itertools
import threading
import time

import numpy as np
from cases import parameters, ranks, skip
from halo_data import GUARD, World, same
from mpi4py import MPI

from onesided.collectives import (
    HaloExchange,
    Precv_init,
    Psend_init,
    Startall,
    UnsupportedError,
    Waitall,
    empty,
    free,
    partitioned_methods,
)
from onesided.collectives.context import Context

METHODS = ["auto", *partitioned_methods()]
DTYPES = ["u1", "?", ">i2", "f4", "f8", "c16", "S5", "V3", "M8[s]", "i4,(2,)f8"]
MEMORY = ["C", "F", "strided", "reversed", "shared", "shared F"]
TURNS = 3


def able(method):
    """Skip where the MPI's own partitioned send is not to be trusted, with its reason."""
    if method == "mpi":
        from onesided.collectives.partitioned.transports.mpi import distrust

        if distrust():
            skip(distrust())


def made(comm, method, make):
    """Skip where rma cannot serve ranks of another node."""
    try:
        return make()
    except UnsupportedError as error:
        if method != "rma" or Context.of(comm).node().alone:
            raise
        skip(f"not between nodes: {error}")


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

    def __init__(self, comm, world, memory="C", corners=True, **options):
        self.world, self.corners = world, corners
        self.cart = comm.Create_cart(world.dims, world.periods)
        self.coords = tuple(self.cart.Get_coords(self.cart.rank))
        shape = world.shape(self.coords)
        self.array, self.shared = array_like(comm, shape, world.dtype, memory)
        self.array[...] = world.guard()
        before = self.array.copy()
        self.halo = made(comm, options.get("method"), lambda: HaloExchange(
            self.cart, self.array, world.layers, corners=corners, **options))
        assert same(self.array, before), "the array was written at initialization"

    def fill(self, turn):
        """Own values; nobody has written the ghost layers."""
        self.array[...] = self.world.before(self.coords, turn)

    def check(self, turn):
        want = self.world.after(self.coords, turn, self.corners)
        assert same(self.array, want), (turn, self.halo, np.argwhere(self.array != want)[:4])

    def check_piece(self, turn, face, piece):
        want = self.world.after(self.coords, turn, self.corners)
        box = self.halo.arrivals(face)[piece]
        assert same(self.array[box], np.ascontiguousarray(want[box])), (turn, face, piece)

    def mark_randomly(self, turn, seed, pause=0.0):
        """Every piece is written and marked in its turn, faces mixed."""
        own, rng = self.world.before(self.coords, turn), np.random.default_rng([seed, turn])
        pieces = [(face, piece) for face, entry in enumerate(self.halo.faces)
                  for piece in range(entry.partitions)]
        for index in rng.permutation(len(pieces)):
            face, piece = pieces[index]
            self.array[self.halo.pieces(face)[piece]] = own[self.halo.pieces(face)[piece]]
            time.sleep(pause)
            self.halo.Pready(face, piece)

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


def grids(comm):
    """Grids in one to three axes, some periodic, some not."""
    found = []
    for axes in (1, 2, 3):
        for number, dims in enumerate(factorizations(comm.size, axes)):
            periods = list(itertools.product((True, False), repeat=axes))
            chosen = periods if axes == 1 else [periods[0], periods[(1 + number) % len(periods)]]
            found += [(dims, chosen_periods) for chosen_periods in chosen]
    return found


def world_of(dims, periods, layers, dtype="i8", more=0, trailing=()):
    """Blocks of different sizes, as large as the layers, plus ``more``."""
    sizes = [tuple(max(max(layers[axis]), 1) + (place + axis) % 2 + more for place in range(extent))
             for axis, extent in enumerate(dims)]
    sizes += [(extent,) for extent in trailing]
    layers = [*layers, *[(0, 0)] * len(trailing)]
    return World(tuple(sizes), tuple(periods), tuple(layers), dtype)


@parameters(grid=grids, corners=[True, False])
def case_grids(comm, grid, corners):
    """The same neighbor twice, and oneself, where an axis is periodic and short."""
    dims, periods = grid
    block = Block(comm, world_of(dims, periods, [(1, 2), (2, 1), (1, 1)][: len(dims)]),
                  corners=corners, partitions=2)
    for turn in range(TURNS):
        block.fill(turn)
        assert block.halo.exchange() is block.array
        block.check(turn)
    block.free()


@parameters(method=METHODS, aggregate=[0, 65536], partitions=[1, 3, (2, 4)])
def case_methods(comm, method, aggregate, partitions, seed):
    """Pieces of different sizes, marked one by one and all together."""
    able(method)
    world = world_of(MPI.Compute_dims(comm.size, 2), (True, True), [(1, 1), (2, 2)], more=9)
    block = Block(comm, world, method=method, aggregate=aggregate, partitions=partitions)
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


@parameters(memory=MEMORY, partitions=[1, 2, (2, 1, 3)], layers=[1, 2])
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
    corners = bool(rng.integers(0, 2))
    memory = MEMORY[rng.integers(len(MEMORY))]
    own = np.random.default_rng([seed, trial, comm.rank])
    partitions = tuple(int(n) for n in own.integers(1, 5, axes + len(trailing)))
    block = Block(comm, world, memory, corners, partitions=partitions,
                  aggregate=int(own.integers(0, 200)))
    for turn in range(TURNS):
        block.fill(turn)
        block.halo.Start()
        block.mark_randomly(turn, seed + comm.rank)
        block.halo.Wait()
        block.check(turn)
    block.free()


@parameters(memory=["C", "F", "shared"])
def case_every_rank_its_own(comm, memory):
    """Ranks cut their faces in different ways, and their arrays lie differently in memory."""
    mine = memory if comm.rank % 2 else "C"
    world = world_of((1, comm.size), (True, True), [(1, 1), (2, 1)], more=10)
    block = Block(comm, world, mine if memory != "shared" else memory, partitions=1 + comm.rank,
                  aggregate=64 * comm.rank)
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
    block = Block(comm, world_of((comm.size, 1), (True, True), layers, more=1))
    for turn in range(TURNS):
        block.fill(turn)
        block.halo.Start()
        for face, entry in enumerate(block.halo.faces):
            assert (entry.partitions == 0) == (not block.halo.pieces(face))
            block.halo.Pready(face)
        assert block.halo.Wait() is block.array
        block.check(turn)
    block.free()


@parameters(method=METHODS)
def case_threads(comm, method, seed, threads=4):
    """Threads mark pieces of the same faces at the same time, others look what arrives.

    Under a thread level below multiple the main thread moves the data in Wait.
    """
    able(method)
    world = world_of((comm.size, 1), (True, True), [(1, 1), (1, 1)], more=20)
    block = Block(comm, world, method=method, partitions=12, aggregate=0)
    halo, errors = block.halo, []
    pieces = [(face, piece) for face, entry in enumerate(halo.faces)
              for piece in range(entry.partitions)]
    coming = [(face, piece) for face, entry in enumerate(halo.faces)
              for piece in range(entry.arrivals)]
    for turn in range(TURNS):
        block.fill(turn)
        halo.Start()
        order = np.random.default_rng([seed, turn, comm.rank]).permutation(len(pieces))

        def mark(some):
            try:
                for index in some:
                    halo.Pready(*pieces[index])
            except Exception as error:
                errors.append(error)

        def look(some, turn=turn):
            try:
                for face, piece in some:
                    while not halo.Parrived(face, piece):
                        time.sleep(0.0001)
                    block.check_piece(turn, face, piece)
            except Exception as error:
                errors.append(error)

        workers = [threading.Thread(target=mark, args=(some,))
                   for some in np.array_split(order, threads)]
        workers += [threading.Thread(target=look, args=(coming[n::2],)) for n in range(2)]
        for worker in workers:
            worker.start()
        halo.Wait()
        for worker in workers:
            worker.join()
        assert not errors, errors
        block.check(turn)
    block.free()


@parameters(method=[method for method in METHODS if method != "mpi"])
def case_arrivals(comm, method):
    """Pieces are there one after the other; those that nobody has marked are not."""
    world = world_of((comm.size,), (True,), [(1, 1)], trailing=(6,))
    block = Block(comm, world, method=method, partitions=(1, 3), aggregate=0)
    halo = block.halo
    assert halo.Parrived(0)  # inactive
    for turn in range(TURNS):
        block.fill(turn)
        halo.Start()
        assert not any(halo.Parrived(f, p) for f in range(2) for p in range(3))
        comm.Barrier()  # nobody marks before all have looked
        halo.Pready(0, 1)
        halo.Pready(1, 2)
        while not (halo.Parrived(1, 1) and halo.Parrived(0, 2)):
            pass
        block.check_piece(turn, 1, 1)
        block.check_piece(turn, 0, 2)
        meet(comm, halo)
        assert not halo.Parrived(0)
        assert not halo.Test()
        assert [[halo.Parrived(f, p) for p in range(3)] for f in range(2)] == [
            [False, False, True], [False, True, False]]
        comm.Barrier()
        for face, piece in [(0, 0), (1, 0), (1, 1), (0, 2)]:
            halo.Pready(face, piece)
        while not (halo.Parrived(0) and halo.Parrived(1)):
            pass
        block.check(turn)
        halo.Wait()
        block.check(turn)
        comm.Barrier()
    block.free()


def meet(comm, halo):
    """A barrier that goes on sending: what gathers leaves while its rank tests."""
    barrier = comm.Ibarrier()
    while not barrier.Test():
        halo.Test()


@parameters(method=METHODS, late=["start", "mark", "wait"])
@ranks(at_least=2)
def case_late_ranks(comm, method, late):
    able(method)
    world = world_of((comm.size, 1), (True, True), [(1, 1), (1, 1)], more=200)
    block = Block(comm, world, method=method, partitions=4)
    for turn in range(TURNS):
        mine = turn % comm.size == comm.rank
        block.fill(turn)
        time.sleep(0.02 * (mine and late == "start"))
        block.halo.Start()
        time.sleep(0.02 * (mine and late == "mark"))
        block.halo.Pready_all()
        time.sleep(0.02 * (mine and late == "wait"))
        block.halo.Wait()
        block.check(turn)
    block.free()


@parameters(method=METHODS)
def case_many_neighbors(comm, method):
    """Every rank exchanges with every rank three times; Open MPI's own sends hang there."""
    able(method)
    here = comm.rank
    array = np.full((2, comm.size, 3, 10), GUARD, np.int64)
    neighbors = [(peer, (slice(0, 1), slice(peer, peer + 1), slice(n, n + 1)),
                  ((1, 2), (peer, peer + 1), (n, n + 1), (0, 10)))
                 for n in range(3) for peer in np.roll(range(comm.size), -here)]
    with HaloExchange(comm, array, None, neighbors=neighbors, partitions=3, method=method) as halo:
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
    partitions = int(rng.integers(1, 4)) if graph % 3 else (2, 2)
    halo = HaloExchange(comm, array, None, neighbors=entries, partitions=partitions)
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
        other.Pready_all()
        send.Pready_range(0, 1)
        block.halo.Pready_all()
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


@ranks(at_least=2)
def case_waits_in_different_orders(comm):
    """Two halos, completed in opposite orders: whoever waits advances both."""
    worlds = [world_of((comm.size,), (True,), [(1, 1)], trailing=(5000,))] * 2
    blocks = [Block(comm, world, method=method)
              for world, method in zip(worlds, ("auto", "p2p"), strict=True)]
    for turn in range(TURNS):
        order = blocks[:: 1 if comm.rank % 2 else -1]
        for block in blocks:
            block.fill(turn)
        Startall([block.halo for block in order])
        for block in order:
            block.halo.Pready_all()
        for block in order:
            block.halo.Wait()
        for block in blocks:
            block.check(turn)
    for block in blocks:
        block.free()


@parameters(method=["auto", "rma"])
@ranks(at_least=2)
def case_more_faces_than_an_array_has_links(comm, method):
    """The memory of a halo has a link for every message, however many there are."""
    count, right, left = 40, (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    array = np.full((2, count), GUARD, np.int64)
    neighbors = [(peer, box, other, n) for n in range(count) for peer, box, other in (
        (right, ((0, 1), (n, n + 1)), None), (left, None, ((1, 2), (n, n + 1))))]
    if comm.size == 2:  # one and the same rank
        neighbors = [(right, ((0, 1), (n, n + 1)), ((1, 2), (n, n + 1)), n) for n in range(count)]
    halo = made(comm, method, lambda: HaloExchange(
        comm, array, None, neighbors=neighbors, method=method))
    for turn in range(TURNS):
        array[0] = np.arange(count) + 100 * comm.rank + 1000 * turn
        halo.exchange()
        assert np.array_equal(array[1], np.arange(count) + 100 * left + 1000 * turn)
    assert "p2p" not in halo.method or not Context.of(comm).node().alone
    halo.Free()
