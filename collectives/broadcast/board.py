"""Data from one rank to others through memory that they share: who fills it, and who takes it.

The data travel in *segments*, each through a slot of a *ring* in the control memory of some rank.
Whoever fills the ring counts the segments in ``filled``, whoever takes them copies them into its
own buffer and counts in ``taken``; both go on from round to round, and none is ever reset.

*Where the data fit* into the ring more than once, a rank says at its next ``Start`` that it has
taken those of the rounds before, and only the round that is to overwrite them waits for that. So
the one that fills runs ahead, nobody waits for a slower rank of the same round, and there is
nothing left that another rank would need before ``Wait``. *Where they do not*, every segment is
counted as it is taken, and who is slow holds up the others.

*Long data of the root in memory from* ``empty`` need no ring: they are copied once, between the two
buffers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onesided.collectives.broadcast.operation import Broadcast
from onesided.collectives.context import Node
from onesided.collectives.hardware import usable_cores
from onesided.collectives.memory import aligned, find_region, region_with_key
from onesided.collectives.steps import Chain, Plan, copy, tell, wait_for
from onesided.collectives.transport import Cell

Bytes = NDArray[np.uint8]

#: Data of so many bytes or fewer always go through a ring, so that who fills it need not wait:
#: where every rank may have a core, and on a node with more ranks than cores, where each wait
#: costs time slices.
SHORT, SHORT_IF_CROWDED = 1 << 15, 1 << 20

#: Most bytes that are in a ring twice, and the segments and slots of longer ones: what lies in a
#: ring stays in the caches.
TWICE, LEAST_SEGMENT, MOST_SEGMENT, SLOTS = 1 << 20, 1 << 17, 1 << 20, 8

#: Segments in which data are cut, roughly, while they are taken as they are filled.
PARTS, MOST_PARTS = 8, 64


@dataclass(frozen=True)
class Segments:
    """How data are cut, and where a segment lies: ``count`` of ``size`` bytes (the last ones may
    be shorter, or empty) in a ring of ``slots``, for which a round has ``turns`` forms."""

    nbytes: int
    size: int
    count: int
    slots: int
    turns: int

    @classmethod
    def of(cls, nbytes: int, size: int, slots: int, unit: int = 1) -> Segments:
        """Segments of about ``size`` bytes, a multiple of ``unit``; one at least. A whole number of
        rounds fills the ring, or the other way round, so that each segment has the same slot in
        every ``turns``-th round."""
        unit = unit if nbytes else 1
        size = unit * max(1, -(-min(size, nbytes) // unit))
        count = max(1, -(-nbytes // size))
        if 2 * count <= slots:
            turns = 4 if 4 * count <= slots else 2
            return cls(nbytes, size, count, turns * count, turns)
        count = -(-count // slots) * slots
        return cls(nbytes, unit * max(1, -(-nbytes // (count * unit))), count, slots, 1)

    @classmethod
    def on_node(cls, nbytes: int, most: int = 0, unit: int = 1) -> Segments:
        """Those of a ring on a node, of at most ``most`` bytes each where that is not 0."""
        if nbytes <= SHORT:
            size, slots = nbytes, 4
        elif nbytes <= TWICE:
            size = max(aligned(-(-nbytes // PARTS)), SHORT)
            slots = 2 * -(-nbytes // size)
        else:
            size, slots = max(aligned(-(-nbytes // MOST_PARTS)), LEAST_SEGMENT), SLOTS
            size = min(size, MOST_SEGMENT)
        return cls.of(nbytes, min(size, most or size), slots, unit)

    @property
    def fit(self) -> bool:
        """The data of a round are in the ring as a whole, beside those of the round before."""
        return self.turns > 1

    @property
    def room(self) -> int:
        """Bytes of the ring."""
        return self.slots * aligned(self.size)

    def part(self, i: int) -> slice:
        """Segment ``i`` in the data."""
        start = min(i * self.size, self.nbytes)
        return slice(start, min(start + self.size, self.nbytes))

    def place(self, turn: int, i: int) -> int:
        """Where segment ``i`` lies in the ring, in bytes."""
        return (turn * self.count + i) % self.slots * aligned(self.size)

    def slot(self, ring: Bytes, turn: int, i: int) -> Bytes:
        """The memory of segment ``i`` in a ring."""
        part, start = self.part(i), self.place(turn, i)
        return ring[start : start + part.stop - part.start]


def fill(
    segments: Segments, turn: int, source: Bytes, ring: Bytes, filled: Cell, taken: list[Cell]
) -> Chain:
    """Local. The steps of a rank that copies its data into a ring, for the owners of ``taken``."""
    chain: Chain = []
    count, slots = segments.count, segments.slots
    if segments.fit:
        chain += [wait_for(cell, count, -slots) for cell in taken]
    for i in range(count):
        if not segments.fit:
            chain += [wait_for(cell, count, i + 1 - count - slots) for cell in taken]
        chain.append(copy(segments.slot(ring, turn, i), source[segments.part(i)]))
        chain.append(tell(filled, count, i + 1 - count))
    return chain


def take(
    segments: Segments, turn: int, target: Bytes, ring: Bytes, filled: Cell, taken: Cell
) -> Plan:
    """Local. The steps of a rank that copies what is in a ring into its own buffer."""
    count = segments.count
    chain: Chain = []
    for i in range(count):
        chain.append(wait_for(filled, count, i + 1 - count))
        chain.append(copy(target[segments.part(i)], segments.slot(ring, turn, i)))
        if not segments.fit:
            chain.append(tell(taken, count, i + 1 - count))
    return [[tell(taken, count, -count)], chain] if segments.fit else [chain]


# -- memory ----------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Address:
    """Where the root's buffer is in window memory, for its peers on the node."""

    key: str
    node_rank: int
    offset: int

    @classmethod
    def of(cls, broadcast: Broadcast) -> Address | None:
        """Local. That of this rank, where every rank of its node sees its data; else None."""
        region, array = find_region(broadcast.array), broadcast.array
        if region is None or not all(region.seen_by(broadcast.context, rank)
                                     for rank in broadcast.node.ranks):
            return None
        return cls(region.key, region.node.comm.rank, array.ctypes.data - region.address)

    def view(self, nbytes: int) -> Bytes:
        """Local. The buffer, by a rank that sees it; mapped as long as this view of it lives."""
        region = region_with_key(self.key)
        if region is None:
            raise ValueError("this rank does not see the buffer")
        return region.part(self.node_rank)[self.offset : self.offset + nbytes]


def _is_crowded(node: Node) -> bool:
    """Collective on the node. Whether it has more ranks than cores that any of them may use."""
    cores: set[int] = set().union(*node.comm.allgather(usable_cores()))
    return len(node.ranks) > len(cores)


def shared_by_root(broadcast: Broadcast) -> Address | None:
    """Collective on the root's node. Where the buffer of the root is, for its node; None where the
    data are short, too."""
    node, root = broadcast.node, broadcast.root
    if broadcast.nbytes <= SHORT or (broadcast.nbytes <= SHORT_IF_CROWDED and _is_crowded(node)):
        return None
    mine = Address.of(broadcast) if broadcast.sends else None
    found: Address | None = node.comm.bcast(mine, node.rank_of[root])
    return found
