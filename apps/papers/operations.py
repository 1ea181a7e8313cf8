"""The collective operations as one table: their arguments, their data, and what is right.

A size is that of OSU's micro-benchmarks: the bytes of the vector that every rank has (Bcast, the
reductions), or of one block (Gather, Scatter, Allgather, Alltoall and those of neighbors, a block
to every rank that is sent to). Elements are doubles. Data tell the rank and the place, and sums of
them are exact. Neighbors are those of a ring.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.registry import BROADCAST, EXCHANGE, REDUCTION

Array = NDArray[np.float64]
ITEM = 8  # bytes of an element
ROOT = 0
PERIOD = 251  # after which data repeat; no power of two
POISON = -1.0
LATE = 2e-3  # seconds for which a rank is late


def contribution(rank: int, length: int) -> Array:
    """Local. The elements that a rank sends; whole numbers, so that their sums are exact."""
    return np.arange(length, dtype=np.float64) % PERIOD + 1000 * (rank + 1)


@dataclass(frozen=True)
class Place:
    """A rank, how many there are, and the elements of a vector or a block."""

    rank: int
    size: int
    count: int

    @property
    def is_root(self) -> bool:
        return self.rank == ROOT

    @property
    def ranks(self) -> list[int]:
        """Local. All of them."""
        return list(range(self.size))

    @property
    def near(self) -> list[int]:
        """Local. The neighbors on both sides, on two ranks one, alone oneself."""
        return sorted({(self.rank - 1) % self.size, (self.rank + 1) % self.size})

    @property
    def parts(self) -> list[int]:
        """Local. The elements of a vector that is divided among the ranks."""
        return [self.count * (r + 1) // self.size - self.count * r // self.size
                for r in range(self.size)]

    def sums(self, ranks: int) -> Array:
        """Local. The sum of the vectors of the first so many ranks."""
        total: Array = np.sum([contribution(r, self.count) for r in range(ranks)], 0)
        return total

    def blocks(self, ranks: list[int]) -> Array:
        """Local. One after the other what these ranks send to everybody."""
        return np.concatenate([contribution(r, self.count) for r in ranks])

    def own_blocks(self, senders: list[int], receivers: Callable[[int], list[int]]) -> Array:
        """Local. One after the other what these ranks, each of which sends blocks to ``receivers``
        of it, send to this one."""
        found = []
        for sender in senders:
            to = receivers(sender)
            first = to.index(self.rank) * self.count
            found.append(contribution(sender, len(to) * self.count)[first : first + self.count])
        return np.concatenate(found)

    def near_of(self, rank: int) -> list[int]:
        """Local. The neighbors of another rank."""
        return Place(rank, self.size, self.count).near


Spec = Callable[[Array, int], Any]
Count = Callable[[Place], int]
Call = Callable[[], object]


def delivered(
    comm: MPI.Intracomm, call: Call, received: Array, held: Array | None, right: Array
) -> int:
    """Collective. How many elements are wrong after a call, on all ranks; they are poisoned before,
    where the operation does not send what the buffer has."""
    received[:] = POISON if held is None else held
    call()
    return int(comm.allreduce(int(np.count_nonzero(received != right))))


def awaited(
    comm: MPI.Intracomm, call: Call, received: Array, held: Array | None, right: Array
) -> int:
    """Collective. How often a rank is through before all have come, each of them late in turn."""
    early = 0
    for late in range(comm.size):
        began = time.perf_counter()
        comm.Barrier()
        if comm.rank == late:
            time.sleep(LATE)
        call()
        early += time.perf_counter() - began < LATE
    return int(comm.allreduce(early))


def _plain(array: Array, blocks: int) -> Any:
    return array


def _vector(array: Array, blocks: int) -> Any:
    return [array, [array.size // blocks] * blocks]


def _typed(array: Array, blocks: int) -> Any:
    each = array.size // blocks
    starts = [ITEM * each * block for block in range(blocks)]
    return [array, ([each] * blocks, starts), [MPI.DOUBLE] * blocks]


@dataclass(frozen=True)
class Operation:
    """A collective operation.

    ``sent`` and ``received``: elements of the buffers; ``arguments``: those of the MPI's call, from
    these buffers; ``expected``: what is received, ``held``: what the receive buffer has before the
    call where that matters, ``wrong``: how much is not as it should be after a contestant's call.
    ``in_step``: nobody is through before everybody has come, so that
    calls in a row can be timed. ``near``: on a communicator with neighbors.
    """

    name: str
    group: str
    sent: Count
    received: Count
    arguments: Callable[[Place, Array, Array], tuple[Any, ...]]
    expected: Callable[[Place], Array]
    in_step: bool = True
    near: bool = False
    sized: bool = True
    held: Callable[[Place], Array | None] = lambda p: None
    wrong: Callable[[MPI.Intracomm, Call, Array, Array | None, Array], int] = delivered
    count: Callable[[int, int], int] = lambda count, size: count

    def place(self, comm: MPI.Intracomm, nbytes: int) -> Place:
        """Local. This rank with a size of about so many bytes, at least an element."""
        count = self.count(max(1, nbytes // ITEM), comm.size) if self.sized else 0
        return Place(comm.rank, comm.size, count)

    @property
    def nonblocking(self) -> str:
        """Local. What mpi4py calls its nonblocking form."""
        return f"I{self.name.lower()}"

    @property
    def persistent(self) -> str:
        """Local. What initializes its persistent form, in mpi4py and here."""
        return f"{self.name}_init"


def _nothing(p: Place) -> int:
    return 0


def _one(p: Place) -> int:
    return p.count


def _all(p: Place) -> int:
    return p.size * p.count


def _near(p: Place) -> int:
    return len(p.near) * p.count


def _at_root(count: Count) -> Count:
    return lambda p: count(p) if p.is_root else 0


def _where(condition: bool, spec: Any) -> Any:
    return spec if condition else None


def _gather(name: str, spec: Spec) -> Operation:
    return Operation(
        name, EXCHANGE, _one, _at_root(_all),
        lambda p, out, into: (out, _where(p.is_root, spec(into, p.size)), ROOT),
        lambda p: p.blocks(p.ranks) if p.is_root else np.empty(0),
        in_step=False,
    )  # fmt: skip


def _scatter(name: str, spec: Spec) -> Operation:
    return Operation(
        name, EXCHANGE, _at_root(_all), _one,
        lambda p, out, into: (_where(p.is_root, spec(out, p.size)), into, ROOT),
        lambda p: p.own_blocks([ROOT], lambda r: p.ranks), in_step=False,
    )  # fmt: skip


def _allgather(name: str, spec: Spec) -> Operation:
    return Operation(
        name, EXCHANGE, _one, _all, lambda p, out, into: (out, spec(into, p.size)),
        lambda p: p.blocks(p.ranks),
    )  # fmt: skip


def _alltoall(name: str, spec: Spec) -> Operation:
    return Operation(
        name, EXCHANGE, _all, _all,
        lambda p, out, into: (spec(out, p.size), spec(into, p.size)),
        lambda p: p.own_blocks(p.ranks, lambda r: p.ranks),
    )  # fmt: skip


def _neighbor_allgather(name: str, spec: Spec) -> Operation:
    return Operation(
        name, EXCHANGE, _one, _near, lambda p, out, into: (out, spec(into, len(p.near))),
        lambda p: p.blocks(p.near), near=True,
    )  # fmt: skip


def _neighbor_alltoall(name: str, spec: Spec) -> Operation:
    return Operation(
        name, EXCHANGE, _near, _near,
        lambda p, out, into: (spec(out, len(p.near)), spec(into, len(p.near))),
        lambda p: p.own_blocks(p.near, p.near_of), near=True,
    )  # fmt: skip


def _everybody(p: Place) -> Array:
    return p.sums(p.size)


def _prefix(p: Place, ranks: int) -> Array:
    return p.sums(ranks) if ranks else np.full(p.count, POISON)


def _summed(p: Place, out: Array, into: Array) -> tuple[Any, ...]:
    return out, into, MPI.SUM


def _own_part(p: Place) -> Array:
    start = [0, *accumulate(p.parts)][p.rank]
    return p.sums(p.size)[start : start + p.parts[p.rank]]


OPERATIONS = {operation.name: operation for operation in (
    Operation("Barrier", REDUCTION, _nothing, _nothing, lambda p, out, into: (),
              lambda p: np.empty(0), sized=False, wrong=awaited),
    Operation("Bcast", BROADCAST, _nothing, _one, lambda p, out, into: (into, ROOT),
              lambda p: contribution(ROOT, p.count), in_step=False,
              held=lambda p: contribution(ROOT, p.count) if p.is_root else None),
    _gather("Gather", _plain),
    _gather("Gatherv", _vector),
    _scatter("Scatter", _plain),
    _scatter("Scatterv", _vector),
    _allgather("Allgather", _plain),
    _allgather("Allgatherv", _vector),
    _alltoall("Alltoall", _plain),
    _alltoall("Alltoallv", _vector),
    _alltoall("Alltoallw", _typed),
    Operation("Reduce", REDUCTION, _one, _at_root(_one),
              lambda p, out, into: (out, _where(p.is_root, into), MPI.SUM, ROOT),
              lambda p: _everybody(p) if p.is_root else np.empty(0), in_step=False),
    Operation("Allreduce", REDUCTION, _one, _one, _summed, _everybody),
    Operation("Reduce_scatter", REDUCTION, _one, lambda p: p.parts[p.rank],
              lambda p, out, into: (out, into, p.parts, MPI.SUM), _own_part),
    Operation("Reduce_scatter_block", REDUCTION, _one, lambda p: p.parts[p.rank], _summed,
              _own_part, count=lambda count, size: -(-count // size) * size),
    Operation("Scan", REDUCTION, _one, _one, _summed, lambda p: _prefix(p, p.rank + 1),
              in_step=False),
    Operation("Exscan", REDUCTION, _one, _one, _summed, lambda p: _prefix(p, p.rank),
              in_step=False),
    _neighbor_allgather("Neighbor_allgather", _plain),
    _neighbor_allgather("Neighbor_allgatherv", _vector),
    _neighbor_alltoall("Neighbor_alltoall", _plain),
    _neighbor_alltoall("Neighbor_alltoallv", _vector),
    _neighbor_alltoall("Neighbor_alltoallw", _typed),
)}  # fmt: skip


def ring(comm: MPI.Intracomm) -> MPI.Distgraphcomm:
    """Collective. A communicator on which every rank has its neighbors of a ring."""
    near = Place(comm.rank, comm.size, 0).near
    return comm.Create_dist_graph_adjacent(near, near)
