"""Broadcasts by messages: MPI's own, called anew at every start (the baseline) or persistent, and
persistent point-to-point messages down a binomial tree, which work on every MPI."""

from __future__ import annotations

from functools import partial

from mpi4py import MPI

from onesided.collectives.broadcast.operation import Broadcast, BroadcastTransport
from onesided.collectives.context import Resources
from onesided.collectives.steps import Chain, Plan, call
from onesided.collectives.transports.mpi import Blocking, Call, Persistent, held
from onesided.collectives.trees import in_binomial_tree, ranks_from


class _Casting(BroadcastTransport):
    """A broadcast by MPI's own, in as many calls as it has pieces: the same number on all ranks.

    Types with holes are MPI's to read where the data are one piece, and are packed elsewhere.
    """

    def own_calls(self) -> list[list[Call]]:
        """Local. The calls of a round."""
        broadcast = self.operation
        native, given = broadcast.side.native, broadcast.pieces()
        self.as_given = len(given) == 1
        if self.as_given and native is not None:
            given = [held(native, self.resources)]
        return [[("Bcast", (piece, broadcast.root)) for piece in given]]


class Bcast(_Casting, Blocking):
    """``MPI_Bcast`` in ``Start``."""


class PersistentBcast(_Casting, Persistent):
    """``MPI_Bcast_init``, or ``MPI_Ibcast`` at every start."""


class PointToPoint(BroadcastTransport):
    """``Recv_init`` from the parent, then ``Send_init`` to every child in the tree of all ranks.

    Sends are started when all has come; that is what a rank between others does for them.
    Messages carry a tag of the request's own; those of one pair cannot overtake each other, so a
    faster parent may be a round ahead.
    """

    def __init__(self, operation: Broadcast, resources: Resources) -> None:
        super().__init__(operation, resources)
        comm, tag = operation.context.comm, operation.number
        ranks = ranks_from(operation.root, operation.ranks)
        self.place = in_binomial_tree(ranks, operation.rank, operation.hints.child_order)
        pieces = operation.pieces()
        parent, children = self.place.parent, self.place.children
        self._into = [comm.Recv_init(p, parent, tag) for p in pieces if parent is not None]
        self._out = [comm.Send_init(p, child, tag) for child in children for p in pieces]
        for message in (*self._into, *self._out):
            resources.on_release(message.Free)

    def plans(self) -> list[Plan]:
        chain: Chain = []
        for messages in (self._into, self._out):
            if messages:
                chain.append(call(partial(MPI.Prequest.Startall, messages), once=True))
                chain.append(call(partial(MPI.Prequest.Testall, messages), serves=False))
        return [[chain]] if chain else [[]]

    def waiting_for(self, number: int) -> str:
        above = [] if self.place.parent is None else [f"data from rank {self.place.parent}"]
        below = [f"a message to rank {child}" for child in self.place.children]
        return ", then ".join(above + [", ".join(below)] * bool(below))
