"""Empty persistent messages with which ranks tell each other "ready" and "done"."""

from __future__ import annotations

from collections.abc import Iterable

from mpi4py import MPI

from onesided.collectives.context import Resources
from onesided.collectives.exchange import Exchange


class Signals:
    """One kind of signal of one request: outgoing to some peers, incoming from others.

    Messages carry a tag of their own on the private communicator. Those of one pair cannot
    overtake each other, so a signal of the next round is never taken for one of this round.
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
