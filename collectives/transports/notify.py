"""Data, then a counter at the target: each rank waits on its own counters, nobody on everybody.

Every pair of ranks that exchanges data has a counter on both sides, in control memory: the number
of the last round whose data have come. A counter is written after the data and read before them.

*Two slots* (memory of the request's own, and staging areas). ``Start`` stores the blocks and raises
the counters, and waits for nothing. A rank may overwrite slot k % 2 in round k because it has seen
the peer's counter of round k - 1, which the peer raised after it had given up the slot of round
k - 2. That holds only between ranks that notify each other, so a pair with data in one direction
exchanges empty notifications the other way.

*One memory*, a single slot or the caller's. Where peers see it (memory from ``empty``), long blocks
are stored straight into it, and a *credit* runs the other way (:class:`~..transport.Credit`). A
receiver grants it when it releases its memory or starts a round; a block whose credit has not come
leaves when it does, from Wait, Test or the progress thread. Short blocks, and any into plain
memory, go into two staging slots like the request's own, out of which Wait copies.

*Off the node*, what carries the data is one of two classes below, and nothing else differs:
:class:`Notify` Puts into slots or staging areas, flushes, Accumulates the counter, and flushes
again before the word that it comes from is written anew; :class:`StoreAndSend` sends persistent
messages, which MPI moves by itself.

*A filled round* is opened when all credits are there (with two slots, always). The caller stores
on the node; Puts and messages are issued chunk by chunk. When all chunks are ready the counters are
raised.
"""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from onesided.collectives.context import Resources
from onesided.collectives.exchange import Exchange
from onesided.collectives.program import fence
from onesided.collectives.schedule import STORE, Delivery, Filling, OneSided
from onesided.collectives.steps import AWAIT, Chain, Plan, call, tell, wait_for
from onesided.collectives.transport import Cell, Credit
from onesided.collectives.transports.p2p import Messages

#: Bytes between two ranks up to which blocks into one memory are staged: a copy costs less than
#: waiting for a credit.
SPARE = 1 << 10


class Stored(OneSided):
    """Stores and counters on the node; the rest is the subclass's."""

    counts = True
    direct = True
    spare = SPARE

    def __init__(self, operation: Exchange, resources: Resources) -> None:
        super().__init__(operation, resources)
        exchange = self.operation
        self._near_by = [d for d in self.deliveries if d.shared]
        self._direct = [d for d in self._near_by if d.direct]
        self._granted = self._grants()
        if self._granted:
            self.credit = Credit()
            self.credit.join(exchange.number, self.creditor())

    def _grants(self) -> list[Delivery]:
        """The peers on the node that store straight into the caller's memory."""
        exchange = self.operation
        if exchange.owned and self.slots > 1:
            return []
        sources = {p for p, paths in self._paths_in.items() if STORE in paths.values()}
        return [d for d in self._near_by if d.peer in sources]

    def creditor(self) -> list[Cell]:
        return [d.grant for d in self._granted if d.grant is not None]

    # -- programs ----------------------------------------------------------------------------------

    def plans(self) -> list[Plan]:
        return [self._plan(turn, None) for turn in range(self.turns)]

    def filled_plans(self) -> list[Plan]:
        return [self._plan(turn, self.filling()) for turn in range(self.turns)]

    def _plan(self, turn: int, filled: Filling | None) -> Plan:
        """What the caller has filled need not be copied."""
        chains: Plan = []
        for delivery in self._near_by:
            chain: Chain = []
            if filled is None:
                if delivery.direct:
                    chain.append(wait_for(self.credits[delivery.peer]))
                chain += delivery.stores[turn]
            if delivery.arrival is not None:
                chain.append(tell(delivery.arrival))
            chains.append(chain)
        chains.sort(key=lambda chain: chain[0][0] == AWAIT)
        far = self.far_chains(turn, filled)
        chains = far + chains if self.puts_first else chains + far
        chains.append(self.local[turn] if filled is None else filled.copies[turn])
        for delivery in self._near_by:
            arrived = wait_for(self.arrivals[delivery.peer])
            chains.append([arrived, *self.unpacks_of(turn, [delivery.peer])])
        return [chain for chain in chains if chain]

    def far_chains(self, turn: int, filled: Filling | None) -> list[Chain]:
        """Local. What is done for ranks off the node."""
        return []

    def may_open(self, rounds: int) -> bool:
        number = rounds + 1 if self.credit is None else self.credit.number + 1
        for delivery in self._direct:
            if self.credits[delivery.peer][0] < number:
                return False
        fence()
        return True

    def waiting_for(self, number: int) -> str:
        missing = [
            f"data from rank {peer} (has sent {cell[0]} of {number} rounds)"
            for peer, cell in self.arrivals.items()
            if cell[0] < number
        ]
        blocked = [
            f"rank {d.peer}, which has not given its memory"
            for d in self._direct
            if self.credits[d.peer][0] < number
        ]
        return ", ".join(missing + blocked)


class Notify(Stored):
    """Notified stores and Puts; any order of starts and waits, the fastest method on a node."""

    def __init__(self, operation: Exchange, resources: Resources) -> None:
        super().__init__(operation, resources)
        self._far = [d for d in self.deliveries if not d.shared]
        self._word = np.zeros(1, np.int64)
        resources.keep.append(self._word)
        self._round = 0

    def far_chains(self, turn: int, filled: Filling | None) -> list[Chain]:
        if not self._far:
            return []
        puts = [step for d in self._far for step in d.steps(turn)]
        if filled is not None:
            puts = filled.rest(turn)
        begin = call(self._begin, once=True)
        chains = [[begin, *puts, call(self._complete, in_start=False, once=True)]]
        for delivery in self._far:
            arrived = wait_for(self.arrivals[delivery.peer])
            chains.append([arrived, *self.come(turn, [delivery.peer])])
        return chains

    def _begin(self) -> None:
        self._round += 1

    def _complete(self) -> None:
        """Data, then counters, each at all peers off the node at the same time.

        A flush may wait until the target enters MPI, so it is not for ``Start``.
        """
        for delivery in self._far:
            if delivery.carries and delivery.window is not None:
                delivery.window.Flush(delivery.peer)
        fence()
        self._word[0] = self._round if self.credit is None else self.credit.number
        for delivery in self._far:
            if delivery.window is not None:
                place = [delivery.cell, 1, MPI.INT64_T]
                origin = [self._word, 1, MPI.INT64_T]
                delivery.window.Accumulate(origin, delivery.peer, place, MPI.REPLACE)
        for delivery in self._far:
            if delivery.window is not None:
                delivery.window.Flush(delivery.peer)


class StoreAndSend(Stored):
    """Stores and counters on the node, persistent messages off it."""

    puts_off_node = False

    def __init__(self, operation: Exchange, resources: Resources) -> None:
        super().__init__(operation, resources)
        self._far = [peer for peer in self.operation.peers if not self._near(peer)]
        self._messages = Messages(self.operation, resources, self.arrays, self._far)
        self.arrivals = {p: cell for p, cell in self.arrivals.items() if self._near(p)}

    def filling(self) -> Filling:
        made = self._filling is None
        filling = super().filling()
        if made:
            for turn in range(self.turns):
                self._messages.lay_outlets(filling, turn)
        return filling

    def far_chains(self, turn: int, filled: Filling | None) -> list[Chain]:
        return self._messages.chains(turn, filled is not None)

    def may_open(self, rounds: int) -> bool:
        if not super().may_open(rounds):
            return False
        self._messages.receive(rounds % self.turns)
        return True

    def send_chunk(self, slot: int, chunk: int) -> bool:
        return self._messages.send_chunk(chunk)

    def sends_chunks(self) -> bool:
        return bool(self._far) or super().sends_chunks()

    def waiting_for(self, number: int) -> str:
        far = ", ".join(f"rank {peer}" for peer in self._far)
        words = [super().waiting_for(number), f"messages from or to {far}" if far else ""]
        return ", ".join(filter(None, words))
