"""MPI-4's persistent broadcast; on older MPIs the nonblocking one with cached arguments."""

from __future__ import annotations

from typing import Any

from mpi4py import MPI

from onesided.collectives.broadcast.operation import Broadcast
from onesided.collectives.broadcast.request import BroadcastRequest
from onesided.collectives.context import Resources


class PersistentBcast(BroadcastRequest):
    """``MPI_Bcast_init`` once per piece, or ``MPI_Ibcast`` at every start.

    The nonblocking form is matched by the order of the calls, so it runs on a communicator of
    the request's own.
    """

    def __init__(self, broadcast: Broadcast, resources: Resources) -> None:
        super().__init__(broadcast, resources)
        self._pieces = [[piece, len(piece), MPI.BYTE] for piece in broadcast.pieces()]
        self._handles: list[MPI.Prequest] = []
        self._open: list[Any] = []
        self._comm: MPI.Intracomm = broadcast.context.comm
        if not all([self._initialize(piece) for piece in self._pieces]):
            self._comm = broadcast.context.comm.Dup()
            resources.on_release(self._comm.Free)

    def _initialize(self, piece: Any) -> bool:
        try:
            handle = self._comm.Bcast_init(piece, self.broadcast.root)
        except NotImplementedError:
            return False
        self._handles.append(handle)
        self.resources.on_release(handle.Free)
        return True

    def begin(self, slot: int) -> None:
        if self._handles:
            for handle in self._handles:
                handle.Start()
            self._open = self._handles
        else:
            self._open = [self._comm.Ibcast(piece, self.broadcast.root) for piece in self._pieces]

    def advance(self) -> bool:
        for handle in self._open:  # MPICH 5.0 refuses persistent collectives in MPI_Testall
            if not handle.Test():
                return False
        return True

    def waiting_for(self) -> str:
        return "MPI's own collective"

    def forget(self) -> None:
        self._pieces, self._handles, self._open = [], [], []
