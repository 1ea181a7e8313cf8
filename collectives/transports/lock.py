"""Passive target: one lock on every window, held from initialization to free.

The printed Algorithm 3 re-locks its own window in every round, which returns with data missing,
lets the next round overwrite what is being read, and hangs (see :mod:`.paper` for the version
made right). The self lock buys nothing, so it is not taken: a rank says *ready* when its receive
buffer may be written (with two slots, *done* of the round before says as much), the others store
or Put, flush, and say *done*. Signals are empty messages between the ranks that exchange data.
"""

from __future__ import annotations

from mpi4py import MPI

from onesided.collectives.context import Resources
from onesided.collectives.delivery import Delivery
from onesided.collectives.exchange import Exchange
from onesided.collectives.transports.rma import OneSided, merged
from onesided.collectives.transports.signals import Signals


class Lock(OneSided):
    """Any order of starts and waits, while Wait and Test advance all active requests."""

    def __init__(self, exchange: Exchange, resources: Resources) -> None:
        super().__init__(exchange, resources)
        self.hold_lock()
        self._asks = exchange.slots == 1
        targets = self.destinations() if self._asks else list(self.schedule.deliveries)
        sources = sorted(self.sources()) if self._asks else list(exchange.peers)
        if self.puts_first:
            targets.sort(key=lambda delivery: delivery.shared)
        peers = [delivery.peer for delivery in targets]
        asked = (sources, peers) if self._asks else ((), ())
        self._ready = Signals(exchange, resources, *asked)
        self._done_signals = Signals(exchange, resources, peers, sources)
        self._targets = targets
        self._stages = [merged(self.stages(turn)) for turn in range(exchange.slots)]
        self._messages = self._ready.messages() + self._done_signals.messages()
        self._of_ready = {
            len(self._ready.out) + i: peer for i, peer in enumerate(self._ready.into)
        }
        self._at_start = [*self._ready.into.values(), *self._done_signals.into.values(),
                          *self._ready.out.values()]
        self._prompt = [
            self._done_signals.out[d.peer] for d in targets if d.shared and not any(d.puts)
        ]
        self._slow = [d for d in targets if not d.shared or any(d.puts)]
        self._pending = 0
        self._unsent: list[Delivery] = []
        self._may_send: set[int] = set()

    def begin(self, slot: int) -> None:
        self._turn = slot
        self._pending = len(self._messages)
        for sync in self._syncs:
            sync()
        MPI.Prequest.Startall(self._at_start)
        if self._asks:
            self._unsent = self._targets
            self._may_send.clear()
        else:
            for puts, stores in self._stages[slot]:
                for put in puts:
                    put.issue()
                for target, source in stores:
                    target[:] = source
            for sync in self._syncs:
                sync()
            MPI.Prequest.Startall(self._prompt)
            self._unsent = self._slow
        for target, source in self._local[slot]:
            target[:] = source

    def advance(self) -> bool:
        if self._asks:
            self._take_signals()
            if self._unsent:
                self._send_granted()
        elif self._unsent:
            for delivery in self._unsent:
                self._flush(delivery)
                self._done_signals.out[delivery.peer].Start()
            self._unsent = []
        self._take_signals()
        return not self._pending

    def _take_signals(self) -> None:
        finished = MPI.Request.Testsome(self._messages)
        if finished:
            self._pending -= len(finished)
            for index in finished:
                if index in self._of_ready:
                    self._may_send.add(self._of_ready[index])

    def _send_granted(self) -> None:
        """To all that are ready: Puts are under way together before the first flush waits."""
        granted = [d for d in self._unsent if d.peer in self._may_send]
        if not granted:
            return
        self._unsent = [d for d in self._unsent if d.peer not in self._may_send]
        for delivery in granted:
            for put in delivery.puts[self._turn]:
                put.issue()
            for target, source in delivery.stores[self._turn]:
                target[:] = source
            if not delivery.puts[self._turn]:
                self._tell(delivery)
        for delivery in granted:
            if delivery.puts[self._turn]:
                self._flush(delivery)
                self._tell(delivery)

    def _tell(self, delivery: Delivery) -> None:
        for sync in self._syncs:
            sync()
        self._done_signals.out[delivery.peer].Start()

    def _flush(self, delivery: Delivery) -> None:
        if delivery.puts[self._turn]:
            for window in self.windows:
                window.Flush(delivery.peer)

    def waiting_for(self) -> str:
        unsent = ", ".join(f"rank {d.peer}" for d in self._unsent)
        text = f"{self._pending} signals from or to {self.exchange.peers}"
        return text + (f"; data for {unsent} not sent" if unsent else "")

    def forget(self) -> None:
        super().forget()
        self._ready.forget()
        self._done_signals.forget()
        self._stages, self._messages, self._at_start, self._prompt = [], [], [], []
        self._targets, self._slow, self._unsent = [], [], []


class LockHierarchy(Lock):
    """As :class:`Lock`, in the order of Algorithm 2: off-node Puts are issued first."""

    puts_first = True
