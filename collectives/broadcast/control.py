"""Control memory of a one-sided broadcast: counters, and room for data on their way.

Every rank has a segment that its node sees: [arrived | filled | taken | credits | room]. Counters
are aligned 64-bit integers in cache lines of their own. They only grow, from round to round, so
none is ever reset while somebody looks at it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from onesided.collectives.broadcast.operation import Broadcast
from onesided.collectives.context import Resources
from onesided.collectives.memory import ALIGNMENT, Region, find_region, region_with_key

#: Offsets in bytes: what has come from the parent; what a leader offers; what a reader has read.
ARRIVED, FILLED, TAKEN, CREDITS = 0, ALIGNMENT, 2 * ALIGNMENT, 3 * ALIGNMENT


class Control:
    """The control memory of one request on one rank, and what it sees of its node's."""

    def __init__(self, broadcast: Broadcast, resources: Resources, room: int) -> None:
        """Collective. ``room``: bytes for data in this rank's segment."""
        self.node = broadcast.node
        self.start = CREDITS + len(self.node.ranks) * ALIGNMENT
        self.region = Region(broadcast.context, self.node, self.start + room)
        resources.on_release(self.region.retire)
        root: Any = self.region.take_root()
        root[: self.start] = 0
        self.mine = memoryview(root)
        self.data = find_region(broadcast.array)
        self.syncs = [self.region.window.Sync]
        if self.data is not None:
            self.data.users += 1
            resources.on_release(self._leave)
            self.syncs.append(self.data.window.Sync)

    def _leave(self) -> None:
        if self.data is not None:
            self.data.users -= 1
            self.data = None

    def sync(self) -> None:
        """Local. What was written before is there before what is written, or read, after."""
        for call in self.syncs:
            call()

    def counter(self, offset: int) -> memoryview:
        """Local. A counter of this rank."""
        return self.mine[offset : offset + 8].cast("q")

    def counter_of(self, rank: int, offset: int) -> memoryview:
        """Local. A counter of a rank of this node."""
        return self.segment(rank)[offset : offset + 8].cast("q")

    def credit_from(self, rank: int) -> memoryview:
        """Local. The counter with which a rank of this node says that this one may write."""
        return self.counter(CREDITS + self.node.rank_of[rank] * ALIGNMENT)

    def credit_at(self, rank: int) -> memoryview:
        """Local. This rank's counter of that kind at another rank of the node."""
        mine = self.node.comm.rank
        return self.counter_of(rank, CREDITS + mine * ALIGNMENT)

    def segment(self, rank: int) -> memoryview:
        """Local. The control memory of a rank of this node."""
        if self.node.rank_of[rank] == self.node.comm.rank:
            return self.mine
        return self.region.segment(self.node.rank_of[rank])

    def room(self, rank: int) -> memoryview:
        """Local. The room for data at a rank of this node."""
        return self.segment(rank)[self.start :]

    def forget(self) -> None:
        """Local. Drop every view of the memory."""
        self.mine = memoryview(b"")


@dataclass(frozen=True)
class Address:
    """Where a rank's buffer is in window memory, for its peers on the node."""

    key: str
    node_rank: int
    offset: int
    nbytes: int

    @classmethod
    def of(cls, broadcast: Broadcast) -> Address | None:
        """Local. The address of this rank's buffer, None where it is plain memory."""
        region = find_region(broadcast.array)
        if region is None:
            return None
        offset = broadcast.array.ctypes.data - region.address
        return cls(region.key, region.node.comm.rank, offset, broadcast.nbytes)

    def region(self) -> Region | None:
        """Local. The region, where this rank has a part of it, and so sees the buffer."""
        return region_with_key(self.key)

    def view(self) -> memoryview:
        """Local. The buffer, mapped as long as this view of it lives."""
        region = self.region()
        if region is None:
            raise ValueError("this rank does not see the buffer")
        part: Any = region.part(self.node_rank)[self.offset : self.offset + self.nbytes]
        return memoryview(part)
