"""MPI-4's persistent collective; on older MPIs the nonblocking one with cached arguments."""

from __future__ import annotations

from typing import Any

from mpi4py import MPI

from onesided.collectives.context import Resources
from onesided.collectives.copies import allocate_slots
from onesided.collectives.exchange import Exchange
from onesided.collectives.request import PersistentRequest
from onesided.collectives.transports.mpi import Call, prepare_call


class PersistentAlltoall(PersistentRequest):
    """``MPI_Alltoallv_init`` once per receive slot, or ``MPI_Ialltoallv`` at every start.

    The nonblocking form is matched by the order of the calls, so it runs on a communicator of
    the request's own: MPI-4.1 section 7.13 asks no less of an implementation.
    """

    def __init__(self, exchange: Exchange, resources: Resources) -> None:
        super().__init__(exchange, resources)
        self.serve(allocate_slots(exchange))
        self._calls = [prepare_call(exchange, array, resources) for array in self.arrays]
        self._handles: list[MPI.Request] = []
        self._open: MPI.Request = MPI.REQUEST_NULL
        self._comm: MPI.Comm = exchange.context.comm
        persistent = all([self._initialize(call) for call in self._calls])
        if not persistent:
            self._comm = exchange.context.comm.Dup()
            resources.on_release(self._comm.Free)

    def _initialize(self, call: Call) -> bool:
        name, arguments = call
        start = getattr(self._comm, f"{name}_init", None)
        if start is None:
            return False
        try:
            handle = start(*arguments)
        except NotImplementedError:
            return False
        self._handles.append(handle)
        self.resources.on_release(handle.Free)
        return True

    def begin(self, slot: int) -> None:
        if self._handles:
            handle: Any = self._handles[slot]
            handle.Start()
            self._open = handle
        else:
            name, arguments = self._calls[slot]
            nonblocking = name.replace("Neighbor_a", "Ineighbor_a").replace("Alltoall", "Ialltoall")
            self._open = getattr(self._comm, nonblocking)(*arguments)

    def advance(self) -> bool:
        return self._open.Test()

    def waiting_for(self) -> str:
        return "MPI's own collective"

    def forget(self) -> None:
        self._calls, self._handles = [], []
