"""MPI's own broadcast, called anew at every start: the baseline of every comparison."""

from __future__ import annotations

from mpi4py import MPI

from onesided.collectives.broadcast.operation import Broadcast
from onesided.collectives.broadcast.request import BroadcastRequest
from onesided.collectives.context import Resources


class Bcast(BroadcastRequest):
    """``MPI_Bcast`` in ``Start``. Strictly ordered: the call may wait for the other ranks."""

    any_order = False

    def __init__(self, broadcast: Broadcast, resources: Resources) -> None:
        super().__init__(broadcast, resources)
        self._call = broadcast.context.comm.Bcast
        self._pieces = [[piece, len(piece), MPI.BYTE] for piece in broadcast.pieces()]

    def begin(self, slot: int) -> None:
        for piece in self._pieces:
            self._call(piece, self.broadcast.root)

    def forget(self) -> None:
        self._pieces = []
