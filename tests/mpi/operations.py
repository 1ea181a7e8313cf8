"""Every operation in one table: who sends and receives how many elements, and what must arrive.

An :class:`Operation` says what a rank has in its send and in its receive buffer, as counts of
blocks, how they are described, and which blocks of which ranks make the result. :class:`Trial` is
one request of it, in any memory, with types that have holes, in place, and at any root. A new
operation is a new row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI

from onesided import collectives
from onesided.collectives import empty, free, methods

GUARD, SCRIBBLE = -7777, -8888
MEMORY = ("plain", "window", "own")

#: How a buffer is described: a block, blocks of one size, with counts, with a type for each.
ONE, EVEN, VECTOR, TYPES = "one", "even", "vector", "types"


@dataclass(frozen=True)
class Operation:
    """A row of the table.

    ``sends(rank, size, root)`` and ``receives(rank, size, root)`` are counts of blocks, None for a
    buffer that the rank does not have. ``result(sent, rank, size, root)`` makes the blocks that a
    rank receives of ``sent``, the blocks of all ranks. ``in_place(rank, size, root)`` says which of
    the blocks to be sent lie where in the other buffer, None where the rank sends or receives as
    always; ``kept`` names the buffer that ``MPI.IN_PLACE`` then stands for. ``learns``: the
    receive buffer may be None.
    """

    name: str
    sends: Callable[..., list[int] | None]
    receives: Callable[..., list[int] | None]
    result: Callable[..., list[Any]]
    forms: tuple[str, str]
    arguments: Callable[..., tuple[Any, ...]] = lambda send, recv, root: (send, recv)
    in_place: Callable[..., dict[int, int] | None] = lambda rank, size, root: None
    kept: str = "send"
    rooted: bool = False
    learns: Callable[..., bool] = lambda rank, root: True
    family: str = "exchange"

    @property
    def on_graph(self) -> bool:
        return self.name.startswith("Neighbor")

    def init(self, comm, send, recv, root, **options):
        function = getattr(collectives, f"{self.name}_init")
        return function(comm, *self.arguments(send, recv, root), **options)


# -- counts and results --------------------------------------------------------------------------


def same(*_):
    return 3


def uneven(one, other=0):
    """The same for a pair of ranks in both directions, so that data can be in place."""
    return (one + other) % 4


def every(count):
    """A block for every rank, everywhere."""
    return lambda rank, size, root: [count(rank, other) for other in range(size)]


def all_of(count):
    """The block of every rank, everywhere."""
    return lambda rank, size, root: [count(other) for other in range(size)]


def mine(count):
    return lambda rank, size, root: [count(rank)]


def at_root(counts):
    return lambda rank, size, root: counts(rank, size, root) if rank == root else None


def targets(rank, size):
    return [(rank + 1) % size, (rank + 2) % size]


def sources(rank, size):
    return [(rank - 1) % size, (rank - 2) % size]


def gathered(sent, rank, size, root):
    return [sent[other][0] for other in range(size)]


def scattered(sent, rank, size, root):
    return [sent[root][rank]]


def exchanged(sent, rank, size, root):
    return [sent[other][rank] for other in range(size)]


def from_neighbors(choose):
    """The n-th edge from a rank is matched by its n-th edge to this one."""

    def result(sent, rank, size, root):
        blocks, seen = [], {}
        for other in sources(rank, size):
            places = [i for i, to in enumerate(targets(other, size)) if to == rank]
            seen[other] = seen.get(other, -1) + 1
            blocks.append(sent[other][choose(places[seen[other]])])
        return blocks

    return result


def edge(count):
    return (lambda rank, size, root: [count(rank, other) for other in targets(rank, size)],
            lambda rank, size, root: [count(rank, other) for other in sources(rank, size)])


def own_block(rank, size, root):
    return {rank: 0}


def own_block_at_root(rank, size, root):
    return {rank: 0} if rank == root else None


def all_blocks(rank, size, root):
    return {place: place for place in range(size)}


def with_root(send, recv, root):
    return send, recv, root


def not_root(rank, root):
    return rank != root


def only_root(rank, root):
    return rank == root


def _gather(name, count, form):
    return Operation(name, mine(count), at_root(all_of(count)), gathered, (ONE, form), with_root,
                     own_block_at_root, rooted=True, learns=only_root)


def _scatter(name, count, form):
    return Operation(name, at_root(all_of(count)), mine(count), scattered, (form, ONE), with_root,
                     own_block_at_root, kept="recv", rooted=True, learns=not_root)


def _allgather(name, count, form):
    return Operation(name, mine(count), all_of(count), gathered, (ONE, form),
                     in_place=own_block)


def _alltoall(name, count, form, **more):
    return Operation(name, every(count), every(count), exchanged, (form, form),
                     in_place=all_blocks, **more)


def never(rank, root):
    return False


OPERATIONS = {operation.name: operation for operation in (
    _gather("Gather", same, EVEN),
    _gather("Gatherv", uneven, VECTOR),
    _scatter("Scatter", same, EVEN),
    _scatter("Scatterv", uneven, VECTOR),
    _allgather("Allgather", same, EVEN),
    _allgather("Allgatherv", uneven, VECTOR),
    _alltoall("Alltoall", same, EVEN),
    _alltoall("Alltoallv", uneven, VECTOR),
    _alltoall("Alltoallw", uneven, TYPES, learns=never),
    Operation("Neighbor_allgather", mine(same), edge(same)[1], from_neighbors(lambda place: 0),
              (ONE, EVEN)),
    Operation("Neighbor_allgatherv", mine(uneven), lambda rank, size, root: [
              uneven(other) for other in sources(rank, size)], from_neighbors(lambda place: 0),
              (ONE, VECTOR)),
    Operation("Neighbor_alltoall", *edge(same), from_neighbors(lambda place: place),
              (EVEN, EVEN)),
    Operation("Neighbor_alltoallv", *edge(uneven), from_neighbors(lambda place: place),
              (VECTOR, VECTOR)),
    Operation("Neighbor_alltoallw", *edge(uneven), from_neighbors(lambda place: place),
              (TYPES, TYPES), learns=never),
    Operation("Bcast", at_root(mine(same)), lambda rank, size, root: None if rank == root else [3],
              lambda sent, rank, size, root: [sent[root][0]], (ONE, ONE),
              lambda send, recv, root: (recv if send is None else send, root), rooted=True,
              learns=never, family="broadcast"),
)}  # fmt: skip


def everything():
    """Every operation by every one of its methods."""
    return [f"{name} by {method}" for name, operation in OPERATIONS.items()
            for method in methods(operation.family)]


# -- requests ------------------------------------------------------------------------------------


class Buffer:
    """Blocks in an array with a gap before each that has a displacement of its own; with ``holes``
    every second element does not belong to the type."""

    def __init__(self, comm, counts, form, memory, holes):
        gap = 1 if form in (VECTOR, TYPES) else 0
        self.counts, self.form, self.step = counts, form, 2 if holes else 1
        self.displs, at = [], 0
        for count in counts:
            self.displs.append(at + gap)
            at += count + gap
        length = self.step * (at + 1)
        self.window = empty(comm, length, np.int64) if memory == "window" else None
        self.array = np.empty(length, np.int64) if self.window is None else self.window
        self.array[:] = GUARD
        self.kind = MPI.INT64_T
        if holes:
            self.kind = MPI.INT64_T.Create_resized(0, 16).Commit()

    def part(self, place):
        start, stop = self.displs[place], self.displs[place] + self.counts[place]
        return self.array[self.step * start : self.step * stop : self.step]

    def spec(self):
        if self.form == VECTOR:
            return [self.array, self.counts, self.displs, self.kind]
        if self.form == TYPES:
            places = [8 * self.step * displ for displ in self.displs]
            return [self.array, self.counts, places, [self.kind] * len(self.counts)]
        return [self.array, self.counts[0] if self.counts else 0, self.kind]

    def rest(self):
        """What belongs to no block."""
        inside = np.zeros(len(self.array), bool)
        for start, count in zip(self.displs, self.counts, strict=True):
            inside[self.step * start : self.step * (start + count) : self.step] = True
        return self.array[~inside]

    def free(self):
        """Collective for memory from empty."""
        if self.step > 1:
            self.kind.Free()
        if self.window is not None:
            free(self.window)


class Trial:
    """One request of an operation."""

    def __init__(self, comm, operation, method, memory="plain", holes=False, in_place=False, root=0,
                 info=None):  # fmt: skip
        self.operation, self.root = operation, root
        self.rank, self.size = rank, size = comm.rank, comm.size
        sends, receives = operation.sends(rank, size, root), operation.receives(rank, size, root)
        self.held = operation.in_place(rank, size, root) if in_place else None
        self.send = self.recv = None
        if sends is not None:
            self.send = Buffer(comm, sends, operation.forms[0], "plain", holes)
        into = "plain" if memory == "own" else memory
        if receives is not None:
            self.recv = Buffer(comm, receives, operation.forms[1], into, holes)
        elif memory == "window":
            self.spare = empty(comm, 0)
        self.memory = memory
        self.owns = memory == "own" and operation.learns(rank, root) and not in_place
        send = None if self.send is None else self.send.spec()
        recv = None if self.recv is None else self.recv.spec()
        if self.owns:
            recv = None
        if self.held is not None:
            send, recv = (MPI.IN_PLACE, recv) if operation.kept == "send" else (send, MPI.IN_PLACE)
        self.comm = comm
        if operation.on_graph:
            self.comm = comm.Create_dist_graph_adjacent(sources(rank, size), targets(rank, size))
        self.request = operation.init(self.comm, send, recv, root, method=method, info=info)

    def blocks(self, turn, rank):
        """What a rank sends in a round."""
        counts = self.operation.sends(rank, self.size, self.root)
        return None if counts is None else [
            ((turn * self.size + rank) * 8 + place) * 1000 + np.arange(count)
            for place, count in enumerate(counts)
        ]

    def fill(self, turn):
        mine = self.blocks(turn, self.rank)
        if self.recv is not None:
            for place in range(len(self.recv.counts)):
                self.recv.part(place)[:] = SCRIBBLE
        if self.held is not None and self.operation.kept == "send":
            for place, which in self.held.items():
                self.recv.part(place)[:] = mine[which]
        elif mine is not None:
            for place, block in enumerate(mine):
                self.send.part(place)[:] = block

    def check(self, turn, got):
        sent = [self.blocks(turn, rank) for rank in range(self.size)]
        if self.send is not None:
            assert np.all(self.send.rest() == GUARD), "the send buffer was written"
        kept = self.held is not None and self.operation.kept == "recv"
        if self.recv is None or kept:
            assert got is None or self.operation.name == "Bcast"
            return
        want = self.operation.result(sent, self.rank, self.size, self.root)
        if self.owns:
            assert got.tolist() == [int(n) for block in want for n in block], f"round {turn}"
            return
        assert got is self.recv.array
        for place, block in enumerate(want):
            found = self.recv.part(place)
            assert found.tolist() == block.tolist(), f"round {turn}, block {place}: {found}"
        assert np.all(self.recv.rest() == GUARD), "bytes outside of the blocks were written"

    def scribble(self):
        """What the caller may do after Wait."""
        if self.send is not None:
            for place in range(len(self.send.counts)):
                self.send.part(place)[:] = SCRIBBLE

    def round(self, turn):
        self.fill(turn)
        self.request.Start()
        self.check(turn, self.request.Wait())
        self.scribble()

    def free(self):
        self.request.Free()
        for buffer in (self.send, self.recv):
            if buffer is not None:
                buffer.free()
        if self.recv is None and self.memory == "window":
            free(self.spare)
        if self.operation.on_graph:
            self.comm.Free()
