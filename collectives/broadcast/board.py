"""One copy of the data on a node, out of which all its other ranks read at the same time.

The *leader* of a node (the root, or the rank that receives from another node) offers the data in
segments and counts them in ``filled``; each reader copies what is offered into its own buffer and
counts in ``taken``. All counters go on from round to round; ``Win.Sync`` on both sides orders the
accesses. Where the data lie:

*in the leader's buffer*, if that is window memory and the data are long: nothing is copied but by
the readers. The leader waits until they have all taken everything, and so its buffer is its own
again when the round is over.

*in a ring* in the leader's control memory else. The leader copies segment after segment into the
next slot, which is free when all readers have taken what was there before; readers follow while
the segment is in the cache. Short data leave at once: the leader waits for nobody.

A reader that is late, or starts late, is the only one who moves its ``taken``, so nothing that it
still reads is overwritten; one that is early finds ``filled`` unchanged and waits.
"""

from __future__ import annotations

import os

from onesided.collectives.broadcast.control import FILLED, TAKEN, Address, Control
from onesided.collectives.broadcast.operation import Broadcast
from onesided.collectives.context import Resources
from onesided.collectives.memory import aligned

#: Data of so many bytes or fewer always go through the ring, so that their leader need not wait:
#: where every rank may have a core, and on a node with more ranks than cores, where each wait
#: costs time slices.
SHORT, SHORT_IF_CROWDED = 1 << 15, 1 << 20

#: Slots of a ring, and bounds of a segment in bytes. What lies in the ring stays in the caches;
#: short data are in it twice, so that their leader may be a round ahead.
SLOTS, LEAST_SEGMENT, MOST_SEGMENT = 16, 1 << 15, 1 << 17


def segment_of(nbytes: int) -> int:
    """Local. Bytes that are offered at once; readers copy them while the next ones are put up."""
    return min(max(aligned(-(-2 * nbytes // SLOTS)), LEAST_SEGMENT), MOST_SEGMENT)


def short(broadcast: Broadcast) -> int:
    """Local. Most bytes that always go through the ring, by this rank's node."""
    ranks = len(broadcast.context.node().ranks)
    return SHORT_IF_CROWDED if ranks > (os.cpu_count() or ranks) else SHORT


class Board:
    """The part of one rank in what its node does; a part of a request."""

    def __init__(
        self, broadcast: Broadcast, resources: Resources, leader: int, segment: int
    ) -> None:
        """Collective. ``leader`` is the rank that offers the data on this rank's node, in segments
        of so many bytes."""
        self.nbytes = broadcast.nbytes
        self.segment = segment = max(1, min(segment, self.nbytes))
        self.count = -(-self.nbytes // segment)
        self.leads = broadcast.rank == leader
        self._memory = broadcast.memory()
        buffer = self._common(broadcast, leader)
        self.direct = buffer is not None
        step = aligned(segment)
        room = SLOTS * step if self.leads and not self.direct else 0
        self.control = control = Control(broadcast, resources, room)
        self._source = memoryview(b"")
        self._ring: list[memoryview] = []
        if buffer is not None:
            self._source = buffer.view()
            region = buffer.region()
            if region is not None and region is not control.data:
                control.syncs.append(region.window.Sync)
        else:
            ring = control.room(leader)
            self._ring = [ring[i * step : i * step + segment] for i in range(SLOTS)]
        self._filled = control.counter_of(leader, FILLED)
        self._taken = control.counter(TAKEN)
        self._readers = [rank for rank in control.node.ranks if rank != leader]
        self._takers = [control.counter_of(rank, TAKEN) for rank in self._readers]
        self._done = 0  # segments that this rank has offered, or taken
        self._slowest = 0  # segments that every reader is known to have taken
        self._first = 0  # number of this round's first segment

    def _common(self, broadcast: Broadcast, leader: int) -> Address | None:
        """Collective over the node. The leader's buffer, where every reader sees it."""
        node = broadcast.node
        long = self.nbytes > short(broadcast)
        mine = Address.of(broadcast) if self.leads and long else None
        address: Address | None = node.comm.bcast(mine, node.rank_of[leader])
        seen = node.comm.allgather(address is not None and address.region() is not None)
        return address if all(seen) else None

    # -- a round -----------------------------------------------------------------------------------

    def begin(self, round_number: int) -> None:
        """Local. Rounds are numbered from 0."""
        self._first = round_number * self.count

    def offer(self, have: int) -> bool:
        """Local, by the leader. Offer what is there: the first ``have`` bytes of its buffer.

        True where the round is over: everything is offered, and nobody reads the buffer any more.
        """
        whole = have == self.nbytes
        last = self._first + (self.count if whole else have // self.segment)
        end = self._first + self.count
        if self._done < last:
            self._offer(last)
        if not self.direct:
            return self._done == end
        return self._done == end and self._all_have(end)

    def _offer(self, last: int) -> None:
        if self.direct or not self._takers:
            self._done = last
            self._tell(self._filled)
            return
        while self._done < last:
            if not self._all_have(self._done + 1 - SLOTS):
                return
            i = self._done - self._first
            data = self._memory[i * self.segment : (i + 1) * self.segment]
            self._ring[self._done % SLOTS][: len(data)] = data
            self._done += 1
            self._tell(self._filled)

    def take(self) -> bool:
        """Local, by a reader. Copy what is offered; true where this rank has everything."""
        end = self._first + self.count
        offered = min(self._filled[0], end)
        if self._done < offered:
            self.control.sync()
            if self.direct:
                part = slice((self._done - self._first) * self.segment,
                             (offered - self._first) * self.segment)
                self._memory[part] = self._source[part]
                self._done = offered
                self._tell(self._taken)
            while self._done < offered:
                i = self._done - self._first
                part = slice(i * self.segment, min((i + 1) * self.segment, self.nbytes))
                slot = self._ring[self._done % SLOTS]
                self._memory[part] = slot[: part.stop - part.start]
                self._done += 1
                self._tell(self._taken)
        return self._done == end

    def _tell(self, counter: memoryview) -> None:
        """What has been copied is complete before the counter says so."""
        self.control.sync()
        counter[0] = self._done

    def _all_have(self, number: int) -> bool:
        """Whether every reader has taken so many segments."""
        if self._slowest < number and self._takers:
            self._slowest = min(cell[0] for cell in self._takers)
            self.control.sync()
        return self._slowest >= number or not self._takers

    def late(self) -> list[int]:
        """Local. The readers that have not taken all that is offered."""
        pairs = zip(self._readers, self._takers, strict=True)
        return [rank for rank, cell in pairs if cell[0] < self._done]

    def forget(self) -> None:
        """Local. Drop every view of the memory."""
        self._ring, self._takers, self._readers = [], [], []
        self._memory = self._source = self._filled = self._taken = memoryview(b"")
        self.control.forget()
