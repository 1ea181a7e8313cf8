"""Persistent point-to-point messages down a binomial tree: works on every MPI."""

from __future__ import annotations

from mpi4py import MPI

from onesided.collectives.broadcast.operation import Broadcast
from onesided.collectives.broadcast.places import in_binomial_tree, ranks_from
from onesided.collectives.broadcast.request import BroadcastRequest
from onesided.collectives.context import Resources


class PointToPoint(BroadcastRequest):
    """``Recv_init`` from the parent, then ``Send_init`` to every child in the tree of all ranks.

    Sends are started when all has come. Messages carry a tag of the request's own; those of one
    pair cannot overtake each other, so a faster parent may be a round ahead.
    """

    def __init__(self, broadcast: Broadcast, resources: Resources) -> None:
        super().__init__(broadcast, resources)
        comm, tag = broadcast.context.comm, broadcast.number
        ranks = ranks_from(broadcast.root, broadcast.ranks)
        self._place = in_binomial_tree(ranks, broadcast.rank, broadcast.hints.child_order)
        pieces = [[piece, len(piece), MPI.BYTE] for piece in broadcast.pieces()]
        parent, children = self._place.parent, self._place.children
        self._into = [comm.Recv_init(p, parent, tag) for p in pieces if parent is not None]
        self._out = [comm.Send_init(p, child, tag) for child in children for p in pieces]
        for message in (*self._into, *self._out):
            resources.on_release(message.Free)
        self._has_data = False

    def begin(self, slot: int) -> None:
        self._has_data = not self._into
        MPI.Prequest.Startall(self._into or self._out)

    def advance(self) -> bool:
        if not self._has_data:
            if not MPI.Prequest.Testall(self._into):
                return False
            self._has_data = True
            MPI.Prequest.Startall(self._out)
        return MPI.Prequest.Testall(self._out)

    def waiting_for(self) -> str:
        if not self._has_data:
            return f"data from rank {self._place.parent}"
        return "messages to " + ", ".join(f"rank {child}" for child in self._place.children)

    def forget(self) -> None:
        self._into, self._out = [], []
