"""Data, then a counter at the target: each rank waits on its own counters, nobody on everybody.

Every pair of ranks that exchanges data has a counter on both sides, in control memory: the number
of the last round whose data have come. A counter is written after the data and read before them;
``Win.Sync`` on both sides orders the accesses.

*Two slots.* ``Start`` stores the blocks and raises the counters, and waits for nothing. A rank may
overwrite slot k % 2 in round k because it has seen the peer's counter of round k - 1, which the
peer raised after it had given up the slot of round k - 2. That holds only between ranks that
notify each other, so a pair with data in one direction exchanges empty notifications the other way.

*One slot*, or the caller's receive buffer: a second counter, the *credit*, runs the other way. A
receiver grants it when it starts a round; a sender whose credit has not come sends from Wait or
Test.

*Off the node* ``Start`` only Puts. Wait and Test flush, then Accumulate the counter (a word that
alternates by round, so that it is not overwritten while it travels), then flush again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from onesided.collectives.context import Resources
from onesided.collectives.copies import Copy
from onesided.collectives.exchange import Exchange
from onesided.collectives.memory import ALIGNMENT
from onesided.collectives.schedule import Delivery, Put
from onesided.collectives.transports.rma import OneSided

#: Offset of the credit from the counter of arrivals, in bytes: a cache line of its own.
CREDIT = ALIGNMENT // 2


class Notify(OneSided):
    """Notified stores and Puts; any order of starts and waits, the fastest method on a node."""

    cells = 1

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
        self._arrivals = [mine[peer][0] for peer in exchange.peers if peer in sources]
        self._from = [peer for peer in exchange.peers if peer in sources]
        self._credits = {d.peer: mine[d.peer][1] for d in targets}
        self._grants = [d for d in self.schedule.deliveries if d.peer in sources]
        self._grants = self._grants if self._credited else []
        self._split(targets)
        self._next = 0
        self._late: list[Delivery] = []
        self._ungranted: list[Delivery] = []

    def _split(self, targets: list[Delivery]) -> None:
        """What can leave at ``Start``: stores and their counters, without any flush."""
        turns = range(self.exchange.slots)
        self._stores: list[list[Copy]] = [[c for d in targets for c in d.stores[t]] for t in turns]
        self._puts: list[list[Put]] = [[p for d in targets for p in d.puts[t]] for t in turns]
        self._signals = {d.peer: self._theirs(d) for d in self.schedule.deliveries if d.shared}
        prompt = [d for d in targets if d.shared and not any(d.puts)]
        self._prompt = [self._signals[d.peer][0] for d in prompt]
        self._slow = [d for d in targets if d not in prompt]
        self._targets = targets

    def _theirs(self, delivery: Delivery) -> tuple[memoryview, memoryview]:
        node_rank = self.exchange.node.rank_of[delivery.peer]
        return _cell(self.schedule.control.segment(node_rank), delivery.cell)

    # -- a round -----------------------------------------------------------------------------------

    def begin(self, slot: int) -> None:
        self._round = number = self._round + 1
        self._next = 0
        if self._credited:
            self._begin_credited(slot)
            return
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

    def advance(self) -> bool:
        if self._late or self._ungranted:
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
        """Grant and send what could not leave at ``Start``: flushes may wait for the target."""
        while self._ungranted:
            self._signal(self._ungranted.pop(), CREDIT)
        if self._credited:
            self._late = [d for d in self._late if not self._deliver(d, flush=True)]
            return
        late, self._late = self._late, []
        for delivery in late:
            self._flush(delivery)
            self._signal(delivery, 0)

    def _begin_credited(self, slot: int) -> None:
        number = self._round
        self._turn = slot
        for sync in self._syncs:
            sync()
        self._ungranted = [d for d in self._grants if not d.shared]
        for delivery in self._grants:
            if delivery.shared:
                self._signals[delivery.peer][1][0] = number
        self._late = [d for d in self._targets if not self._deliver(d, flush=False)]
        for target, source in self._local[slot]:
            target[:] = source

    def _deliver(self, delivery: Delivery, flush: bool) -> bool:
        """Send one peer its blocks if it has granted the credit; false where it must wait."""
        if self._credits[delivery.peer][0] < self._round:
            return False
        puts = delivery.puts[self._turn]
        prompt = delivery.shared and not puts
        if not (prompt or flush):
            return False
        for sync in self._syncs:
            sync()
        for put in puts:
            put.issue()
        for target, source in delivery.stores[self._turn]:
            target[:] = source
        if puts:
            self._flush(delivery)
        for sync in self._syncs:
            sync()
        self._signal(delivery, 0)
        return True

    # -- signals -----------------------------------------------------------------------------------

    def _flush(self, delivery: Delivery) -> None:
        for window in self.windows:
            window.Flush(delivery.peer)

    def _signal(self, delivery: Delivery, offset: int) -> None:
        """Raise the peer's counter (offset 0) or credit to the number of this round."""
        number = self._round
        if delivery.shared:
            self._signals[delivery.peer][1 if offset else 0][0] = number
            return
        window = self.schedule.windows[0]
        if window is None:
            return
        word = self._words[number % 2 : number % 2 + 1]
        word[0] = number
        place = [delivery.cell + offset, 1, MPI.INT64_T]
        window.Accumulate([word, 1, MPI.INT64_T], delivery.peer, place, MPI.REPLACE)
        window.Flush(delivery.peer)

    def waiting_for(self) -> str:
        missing = [
            f"data from rank {peer} (has sent {cell[0]} of {self._round} rounds)"
            for peer, cell in zip(self._from, self._arrivals, strict=True)
            if cell[0] < self._round
        ]
        blocked = [
            f"credit of rank {d.peer} (has granted {self._credits[d.peer][0]})" for d in self._late
        ]
        return ", ".join(missing + blocked)

    def forget(self) -> None:
        super().forget()
        self._arrivals, self._credits, self._signals, self._prompt = [], {}, {}, []
        self._stores, self._puts, self._targets, self._slow = [], [], [], []
        self._grants, self._late, self._ungranted = [], [], []


def _cell(memory: memoryview, offset: int) -> tuple[memoryview, memoryview]:
    """Counter and credit at an offset in control memory, as aligned 64-bit integers."""
    counter = memory[offset : offset + 8].cast("q")
    return counter, memory[offset + CREDIT : offset + CREDIT + 8].cast("q")
