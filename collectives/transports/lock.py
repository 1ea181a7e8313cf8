"""Passive target: one lock on every window, held from initialization to free.

The printed Algorithm 3 re-locks its own window in every round, which returns with data missing,
lets the next round overwrite what is being read, and hangs (``rma-lock-paper`` is the version
made right). The self lock buys nothing, so it is not taken: a rank says *ready* when its receive
buffer may be written (with two slots, *done* of the round before says as much), the others store
or Put, flush, and say *done*. Signals are empty messages between the ranks that exchange data.
"""

from __future__ import annotations

from collections.abc import Iterable

from mpi4py import MPI

from onesided.collectives.context import Resources
from onesided.collectives.exchange import Exchange
from onesided.collectives.schedule import Delivery, OneSided


class Signals:
    """One kind of signal of one request: outgoing to some peers, incoming from others.

    Empty persistent messages with a tag of their own on the private communicator. Those of one
    pair cannot overtake each other, so a signal of the next round is never taken for one of this.
    """

    def __init__(
        self, exchange: Exchange, resources: Resources, to: Iterable[int], come_from: Iterable[int]
    ) -> None:
        """Local, but called in the same order on all ranks."""
        comm, tag = exchange.context.comm, exchange.context.next_tag()
        nothing = bytearray(0)
        self.out = {peer: comm.Send_init([nothing, MPI.BYTE], peer, tag) for peer in to}
        self.into = {peer: comm.Recv_init([nothing, MPI.BYTE], peer, tag) for peer in come_from}
        for message in self.messages():
            resources.on_release(message.Free)

    def messages(self) -> list[MPI.Prequest]:
        """All messages, outgoing and incoming."""
        return [*self.out.values(), *self.into.values()]

    def forget(self) -> None:
        """Local. Drop the handles, which belong to the request's resources."""
        self.out, self.into = {}, {}


class Lock(OneSided):
    """Any order of starts and waits."""

    advances_in_start = False  # a flush may wait for its target

    def __init__(self, operation: Exchange, resources: Resources) -> None:
        super().__init__(operation, resources)
        exchange = self.exchange
        self._asks = self.turns == 1
        targets = self.destinations() if self._asks else list(self.deliveries)
        sources = sorted(self.sources()) if self._asks else list(exchange.peers)
        if self.puts_first:
            targets.sort(key=lambda delivery: delivery.shared)
        peers = [delivery.peer for delivery in targets]
        asked = (sources, peers) if self._asks else ((), ())
        self._ready = Signals(exchange, resources, *asked)
        self._done = Signals(exchange, resources, peers, sources)
        self._targets = targets
        self._messages = self._ready.messages() + self._done.messages()
        self._of_ready = {
            len(self._ready.out) + i: peer for i, peer in enumerate(self._ready.into)
        }
        self._at_start = [*self._ready.into.values(), *self._done.into.values(),
                          *self._ready.out.values()]
        self._pending = 0
        self._unsent: list[Delivery] = []
        self._unflushed: list[Delivery] = []
        self._may_send: set[int] = set()
        self._turn = 0

    def begin(self, slot: int) -> None:
        self._turn = slot
        self._pending = len(self._messages)
        self.sync()
        MPI.Prequest.Startall(self._at_start)
        self._may_send.clear()
        self._unsent, self._unflushed = self._targets, []
        if not self._asks:
            self._send(self._targets)
            self._unsent = []
        for target, source in self.local[slot]:
            target[...] = source
        self._move()

    def advance(self) -> bool:
        if self._unflushed:
            self._flush()
        return self._move()

    def _move(self) -> bool:
        """All but a flush; whether the round is complete."""
        self._take_signals()
        if self._unsent:
            granted = [d for d in self._unsent if d.peer in self._may_send]
            if granted:
                self._unsent = [d for d in self._unsent if d.peer not in self._may_send]
                self._send(granted)
                self._take_signals()
        return not self._pending

    def _take_signals(self) -> None:
        finished = MPI.Request.Testsome(self._messages)
        if finished:
            self._pending -= len(finished)
            for index in finished:
                if index in self._of_ready:
                    self._may_send.add(self._of_ready[index])

    def _send(self, deliveries: list[Delivery]) -> None:
        """To all that are ready: Puts are under way together before the first flush waits."""
        for delivery in deliveries:
            for put in delivery.puts[self._turn]:
                put.issue()
            for target, source in delivery.stores[self._turn]:
                target[...] = source
        self.sync()
        for delivery in deliveries:
            if delivery.puts[self._turn]:
                self._unflushed = [*self._unflushed, delivery]
            else:
                self._done.out[delivery.peer].Start()

    def _flush(self) -> None:
        unflushed, self._unflushed = self._unflushed, []
        for delivery in unflushed:
            if delivery.window is not None:
                delivery.window.Flush(delivery.peer)
            self._done.out[delivery.peer].Start()

    def waiting_for(self, number: int) -> str:
        unsent = ", ".join(f"rank {d.peer}" for d in self._unsent)
        text = f"{self._pending} signals from or to {self.exchange.peers}"
        return text + (f"; data for {unsent} not sent" if unsent else "")

    def forget(self) -> None:
        super().forget()
        self._ready.forget()
        self._done.forget()
        self._messages, self._at_start = [], []
        self._targets, self._unsent, self._unflushed = [], [], []


class LockHierarchy(Lock):
    """As :class:`Lock`, in the order of Algorithm 2: off-node Puts are issued first."""

    puts_first = True
