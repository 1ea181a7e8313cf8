"""Broadcasts by messages: MPI's own, called anew at every start (the baseline) or persistent, and
persistent point-to-point messages down a binomial tree, which work on every MPI."""

from __future__ import annotations

from functools import partial
from typing import Any

from mpi4py import MPI

from onesided.collectives.broadcast.operation import Broadcast, BroadcastTransport
from onesided.collectives.context import Resources
from onesided.collectives.program import Chain, Plan, call
from onesided.collectives.trees import in_binomial_tree, ranks_from


class Bcast(BroadcastTransport):
    """``MPI_Bcast`` in ``Start``. Strictly ordered: the call may wait for the other ranks."""

    def needs_mpi_thread(self) -> bool:
        return False

    def plans(self) -> list[Plan]:
        broadcast = self.broadcast
        bcast = broadcast.context.comm.Bcast
        return [[[call(partial(bcast, piece, broadcast.root)) for piece in broadcast.pieces()]]]


class PersistentBcast(BroadcastTransport):
    """``MPI_Bcast_init`` once per piece, or ``MPI_Ibcast`` at every start.

    MPI progresses both by itself. The nonblocking form is matched by the order of the calls, so it
    runs on a communicator of the request's own.
    """

    def __init__(self, operation: Broadcast, resources: Resources) -> None:
        super().__init__(operation, resources)
        self._pieces = operation.pieces()
        self._handles: list[MPI.Prequest] = []
        self._open: list[MPI.Request] = []
        self._comm: MPI.Intracomm = operation.context.comm
        if not all([self._initialize(piece) for piece in self._pieces]):
            self._comm = operation.context.comm.Dup()
            resources.on_release(self._comm.Free)

    def _initialize(self, piece: Any) -> bool:
        try:
            handle = self._comm.Bcast_init(piece, self.broadcast.root)
        except NotImplementedError:
            return False
        self._handles.append(handle)
        self.resources.on_release(handle.Free)
        return True

    def needs_mpi_thread(self) -> bool:
        return False

    def plans(self) -> list[Plan]:
        if self._handles or not self._pieces:  # MPICH 5.0 refuses persistent ones in MPI_Testall
            return [[[call(each.Start), call(each.Test, False)] for each in self._handles]]
        return [[[call(partial(self.begin, 0)), call(self.advance, False)]]]

    def begin(self, slot: int) -> None:
        self._open = [self._comm.Ibcast(piece, self.broadcast.root) for piece in self._pieces]

    def advance(self) -> bool:
        return MPI.Request.Testall(self._open)

    def waiting_for(self, number: int) -> str:
        return "MPI's own collective"

    def forget(self) -> None:
        super().forget()
        self._pieces, self._handles, self._open = [], [], []


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

    def needs_mpi_thread(self) -> bool:
        return bool(self._into and self._out)

    def plans(self) -> list[Plan]:
        chain: Chain = []
        if self._into:
            chain.append(call(partial(MPI.Prequest.Startall, self._into)))
            chain.append(call(partial(MPI.Prequest.Testall, self._into), serves=False))
        if self._out:
            chain.append(call(partial(MPI.Prequest.Startall, self._out)))
            chain.append(call(partial(MPI.Prequest.Testall, self._out), serves=False))
        return [[chain]] if chain else [[]]

    def waiting_for(self, number: int) -> str:
        above = [] if self.place.parent is None else [f"data from rank {self.place.parent}"]
        below = [f"a message to rank {child}" for child in self.place.children]
        return ", then ".join(above + [", ".join(below)] * bool(below))

    def forget(self) -> None:
        super().forget()
        self._into, self._out = [], []
