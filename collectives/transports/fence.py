"""Fence synchronization: Algorithms 1 and 2 on memory that MPI allocated.

``MPI_Win_fence`` is a barrier on every MPI there is, so these methods are strictly ordered: ranks
start and complete their requests in the same order (MPI-4.1 section 7.13, info key
``mpi_assert_strict_persistent_collective_ordering``).

With two receive slots one fence a round suffices: the fence that closes a round tells every rank
that all others have started it, and have thereby given up the slot of the round before, so it
opens the next round as well, and ``Start`` waits for nobody. With the caller's receive buffer, or
one slot, ``Start`` opens with a fence of its own, because the target may still be reading. ``Open``
is that fence alone, so it is always possible, and other ranks may call ``Start`` meanwhile.
"""

from __future__ import annotations

from functools import partial

from mpi4py import MPI

from onesided.collectives.context import Resources
from onesided.collectives.exchange import Exchange
from onesided.collectives.transports.rma import OneSided, merged


class Fence(OneSided):
    """Algorithm 1: store on the node, Put off it, between fences.

    Every fence takes assertion 0, but for NOPRECEDE at initialization and NOSUCCEED at the end:
    each closes one round and opens the next, and stores through shared memory need the barrier
    that a NOPRECEDE fence does not promise.
    """

    any_order = False
    direct = True
    overlay = True

    def __init__(self, exchange: Exchange, resources: Resources) -> None:
        super().__init__(exchange, resources)
        self._stages = [merged(self.stages(turn)) for turn in range(exchange.slots)]
        self._fences = [window.Fence for window in self.windows]
        self._opens = exchange.slots == 1
        for window in self.windows:
            window.Fence(MPI.MODE_NOPRECEDE)
            resources.on_release(partial(window.Fence, MPI.MODE_NOSUCCEED))

    def open(self, slot: int) -> bool:
        if self._opens:
            for sync in self._syncs:
                sync()
            for fence in self._fences:
                fence()
        return True

    def begin(self, slot: int) -> None:
        self.open(slot)
        for puts, stores in self._stages[slot]:
            for put in puts:
                put.issue()
            for target, source in stores:
                target[:] = source
        for target, source in self._local[slot]:
            target[:] = source

    def advance(self) -> bool:
        for sync in self._syncs:
            sync()
        for fence in self._fences:
            fence()
        return True

    def waiting_for(self) -> str:
        return "all ranks in the fence"

    def forget(self) -> None:
        super().forget()
        self._stages, self._fences = [], []


class FenceHierarchy(Fence):
    """Algorithm 2: off-node Puts are all issued first and travel while the node is served."""

    puts_first = True
