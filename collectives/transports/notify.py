"""Data, then a counter at the target: each rank waits on its own counters, nobody on everybody.

Every pair of ranks that exchanges data has a counter on both sides, in control memory: the number
of the last round whose data have come. A counter is written after the data and read before them;
``Win.Sync`` on both sides orders the accesses.

*Two slots.* ``Start`` stores the blocks and raises the counters, and waits for nothing. A rank may
overwrite slot k % 2 in round k because it has seen the peer's counter of round k - 1, which the
peer raised after it had given up the slot of round k - 2. That holds only between ranks that
notify each other, so a pair with data in one direction exchanges empty notifications the other way.

*One slot*, or the caller's receive buffer: a *credit* runs the other way (:mod:`..alternation`). A
receiver grants it when it releases its memory or starts a round; a sender whose credit has not
come sends from Wait or Test, and cannot open a round that it fills.

*Off the node* ``Start`` only Puts. Wait and Test flush, then Accumulate the counter (a word that
alternates by round, so that it is not overwritten while it travels), then flush again.

*A filled round* is opened when all credits are there (with two slots, always). The caller stores
on the node; Puts are issued chunk by chunk. When all chunks are ready the counters are raised, or
what has to be flushed before is left to Wait and Test.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from onesided.collectives.alternation import Alternation, Creditor
from onesided.collectives.context import Resources
from onesided.collectives.copies import Copy
from onesided.collectives.delivery import Delivery, Put
from onesided.collectives.exchange import Exchange
from onesided.collectives.memory import ALIGNMENT
from onesided.collectives.transports.rma import OneSided

#: Offset of the credit from the counter of arrivals, in bytes: a cache line of its own.
CREDIT = ALIGNMENT // 2


class Notify(OneSided):
    """Notified stores and Puts; any order of starts and waits, the fastest method on a node."""

    cells = 1
    direct = True

    def __init__(self, exchange: Exchange, resources: Resources) -> None:
        super().__init__(exchange, resources)
        self.hold_lock()
        self._round = 0
        self._words = np.zeros(2, np.int64)
        resources.keep.append(self._words)
        root: Any = self.schedule.control.take_root()
        memory = memoryview(root)
        mine = {peer: _cell(memory, i * ALIGNMENT) for i, peer in enumerate(exchange.peers)}
        self._credited = exchange.slots == 1
        sources = self.sources() if self._credited else set(exchange.peers)
        targets = self.destinations() if self._credited else self.schedule.deliveries
        self._from = [peer for peer in exchange.peers if peer in sources]
        self._arrivals = [mine[peer][0] for peer in self._from]
        self._credits = {d.peer: mine[d.peer][1] for d in targets if d.shared}
        self._far = [d.peer for d in targets if not d.shared]
        self._split(targets)
        self._next = 0
        self._late: list[Delivery] = []
        self._filled = False
        if self._credited:
            self.alternate_in(Alternation(exchange.context.comm, exchange.context.next_tag()))

    def creditor(self) -> Creditor:
        if not self._credited:
            return Creditor()
        cells = [self._signals[peer][1] for peer in self._from if peer in self._signals]
        far = [peer for peer in self._from if peer not in self._signals]
        return Creditor(cells, list(self._syncs), far, self._far, not self.exchange.node.alone)

    def _split(self, targets: list[Delivery]) -> None:
        """What can leave at ``Start``: stores and their counters, without any flush."""
        turns = range(self.exchange.slots)
        self._stores: list[list[Copy]] = [[c for d in targets for c in d.stores[t]] for t in turns]
        self._puts: list[list[Put]] = [[p for d in targets for p in d.puts[t]] for t in turns]
        self._signals = {d.peer: self._theirs(d) for d in self.schedule.deliveries if d.shared}
        prompt = [d for d in targets if d.shared and not any(d.puts)]
        self._prompt = [self._signals[d.peer][0] for d in prompt]
        self._slow = [d for d in targets if not d.shared or any(d.puts)]
        self._targets = targets

    def _theirs(self, delivery: Delivery) -> tuple[memoryview, memoryview]:
        node_rank = self.exchange.node.rank_of[delivery.peer]
        return _cell(self.schedule.control.segment(node_rank), delivery.cell)

    # -- a round -----------------------------------------------------------------------------------

    def begin(self, slot: int) -> None:
        self._next = 0
        self._filled = False
        if self._memory is not None:
            self._round = self._memory.number
            self._begin_credited(slot)
            return
        self._round = number = self._round + 1
        for target, source in self._stores[slot]:
            target[:] = source
        for sync in self._syncs:
            sync()
        for cell in self._prompt:
            cell[0] = number
        if self._slow:
            for put in self._puts[slot]:
                put.issue()
            self._late = self._slow
        for target, source in self._local[slot]:
            target[:] = source

    def open(self, slot: int) -> bool:
        memory = self._memory
        number = 1 + (self._round if memory is None else memory.number)
        if memory is not None:
            for cell in self._credits.values():
                if cell[0] < number:
                    return False
            for peer in self._far:
                if not memory.has_come(peer, number):
                    return False
        for sync in self._syncs:
            sync()
        self._round = number
        self._next = 0
        self._filled = True
        return True

    def close(self, slot: int) -> None:
        super().close(slot)
        number = self._round
        for sync in self._syncs:
            sync()
        for cell in self._prompt:
            cell[0] = number
        self._late = self._slow

    def advance(self) -> bool:
        if self._late:
            self._advance_late()
        number, cells, here = self._round, self._arrivals, self._next
        while here < len(cells):
            if cells[here][0] < number:
                self._next = here
                return False
            here += 1
        self._next = here
        return not self._late

    def _advance_late(self) -> None:
        """Send what could not leave at ``Start``: flushes may wait for the targets."""
        late = self._late
        if self._credited and not self._filled:
            granted = [d for d in late if self._may_write(d)]
            if not granted:
                return
            self._late = [d for d in late if all(d is not other for other in granted)]
            late = [d for d in granted if not self._deliver(d)]
            for delivery in late:
                self._send(delivery)
        else:
            self._late = []
        self._complete(late)

    def _begin_credited(self, slot: int) -> None:
        self._turn = slot
        self._late = [d for d in self._targets if not (self._may_write(d) and self._deliver(d))]
        for target, source in self._local[slot]:
            target[:] = source

    def _deliver(self, delivery: Delivery) -> bool:
        """Store a peer its blocks and tell it; false where something has to be flushed before."""
        if not delivery.shared or delivery.puts[self._turn]:
            return False
        self._send(delivery)
        for sync in self._syncs:
            sync()
        self._signal(delivery)
        return True

    def _send(self, delivery: Delivery) -> None:
        for sync in self._syncs:
            sync()
        for put in delivery.puts[self._turn]:
            put.issue()
        for target, source in delivery.stores[self._turn]:
            target[:] = source

    def _may_write(self, delivery: Delivery) -> bool:
        if delivery.shared:
            granted: int = self._credits[delivery.peer][0]
            return granted >= self._round
        return self._memory is not None and self._memory.has_come(delivery.peer, self._round)

    # -- signals -----------------------------------------------------------------------------------

    def _complete(self, sent: list[Delivery]) -> None:
        """Data, then counters, each at all of these peers at the same time."""
        for delivery in sent:
            for window in self.windows:
                window.Flush(delivery.peer)
        for sync in self._syncs:
            sync()
        for delivery in sent:
            self._signal(delivery)
        counters = self.schedule.windows[0]
        for delivery in sent:
            if counters is not None and not delivery.shared:
                counters.Flush(delivery.peer)

    def _signal(self, delivery: Delivery) -> None:
        """Raise the peer's counter of arrivals to the number of this round."""
        number = self._round
        if delivery.shared:
            self._signals[delivery.peer][0][0] = number
            return
        window = self.schedule.windows[0]
        if window is None:
            return
        word = self._words[number % 2 : number % 2 + 1]
        word[0] = number
        place = [delivery.cell, 1, MPI.INT64_T]
        window.Accumulate([word, 1, MPI.INT64_T], delivery.peer, place, MPI.REPLACE)

    def waiting_for(self) -> str:
        missing = [
            f"data from rank {peer} (has sent {cell[0]} of {self._round} rounds)"
            for peer, cell in zip(self._from, self._arrivals, strict=True)
            if cell[0] < self._round
        ]
        blocked = [f"rank {d.peer}, to which the data have not left" for d in self._late]
        return ", ".join(missing + blocked)

    def forget(self) -> None:
        super().forget()
        self._arrivals, self._credits, self._signals, self._prompt = [], {}, {}, []
        self._stores, self._puts, self._targets, self._slow = [], [], [], []
        self._late = []


def _cell(memory: memoryview, offset: int) -> tuple[memoryview, memoryview]:
    """Counter and credit at an offset in control memory, as aligned 64-bit integers."""
    counter = memory[offset : offset + 8].cast("q")
    return counter, memory[offset + CREDIT : offset + CREDIT + 8].cast("q")
