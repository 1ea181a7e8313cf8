"""Passive target: one lock on every window, held from initialization to free.

The printed Algorithm 3 re-locks its own window in every round, which returns with data missing,
lets the next round overwrite what is being read, and hangs (``rma-lock-paper`` is the version
made right). The self lock buys nothing, so it is not taken: a rank says *ready* when its receive
buffer may be written (with two slots, *done* of the round before says as much), the others store
or Put, flush, and say *done*. Signals are empty messages between the ranks that exchange data.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from mpi4py import MPI

from onesided.collectives.context import Resources
from onesided.collectives.exchange import Exchange
from onesided.collectives.schedule import FENCED, Delivery, OneSided
from onesided.collectives.steps import Chain, Plan, call


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


class Lock(OneSided):
    """Any order of starts and waits."""

    def __init__(self, operation: Exchange, resources: Resources) -> None:
        super().__init__(operation, resources)
        exchange = self.operation
        self._asks = self.turns == 1
        self._targets = self.destinations() if self._asks else list(self.deliveries)
        self._sources = sorted(self.sources()) if self._asks else list(exchange.peers)
        if self.puts_first:
            self._targets.sort(key=lambda delivery: delivery.shared)
        peers = [delivery.peer for delivery in self._targets]
        asked = (self._sources, peers) if self._asks else ((), ())
        self._ready = Signals(exchange, resources, *asked)
        self._done = Signals(exchange, resources, peers, self._sources)
        self._looked: set[int] = set()

    def plans(self) -> list[Plan]:
        return [
            [*(self._send(delivery, turn) for delivery in self._targets), self.local[turn],
             *(self._receive(peer, turn) for peer in self._sources)]
            for turn in range(self.turns)
        ]

    def _send(self, delivery: Delivery, turn: int) -> Chain:
        """What is done for a peer."""
        peer = delivery.peer
        chain: Chain = []
        if self._asks:
            ready = self._ready.into[peer]
            chain += [call(ready.Start, once=True), call(ready.Test)]
        chain += [FENCED, *delivery.steps(turn), FENCED]
        if delivery.puts[turn]:  # a flush may wait for its target
            chain.append(call(partial(self._flush, delivery), in_start=False))
        done = self._done.out[peer]
        return [*chain, call(done.Start, once=True), call(done.Test, False)]

    def _receive(self, peer: int, turn: int) -> Chain:
        """What is done when a peer has done its part."""
        done = self._done.into[peer]
        chain = [call(done.Start, once=True)]
        if self._asks:
            ready = self._ready.out[peer]
            chain += [call(ready.Start, once=True), call(ready.Test, False)]
        return [*chain, call(done.Test, False), *self.come(turn, [peer])]

    def _flush(self, delivery: Delivery) -> bool:
        """Not at the first look: the Puts of other chains are to be under way meanwhile."""
        if delivery.peer not in self._looked:
            self._looked.add(delivery.peer)
            return False
        self._looked.remove(delivery.peer)
        if delivery.window is not None:
            delivery.window.Flush(delivery.peer)
        return True

    def waiting_for(self, number: int) -> str:
        return f"signals from or to {self.operation.peers}"


class LockHierarchy(Lock):
    """As :class:`Lock`, in the order of Algorithm 2: off-node Puts are issued first."""

    puts_first = True
