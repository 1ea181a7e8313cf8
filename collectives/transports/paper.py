"""The printed algorithms of the persistent RMA Alltoallv, made right, to repeat its experiments.

Every block, this rank's own included, is Put into a window that is *created* over the receive
buffer, in the order of the ranks. Nothing is stored through shared memory. These methods exist to
be measured against; the others are better everywhere.
"""

from __future__ import annotations

from functools import partial

from mpi4py import MPI

from onesided.collectives.context import Resources
from onesided.collectives.exchange import Exchange
from onesided.collectives.schedule import OneSided


class _Printed(OneSided):
    most_slots = 1
    share = False
    own_windows = True
    overlay = True

    def __init__(self, operation: Exchange, resources: Resources) -> None:
        super().__init__(operation, resources)
        deliveries = sorted(self.deliveries, key=lambda delivery: delivery.peer)
        self._puts = [put for delivery in deliveries for put in delivery.puts[0]]

    def advance(self) -> bool:
        """Local, but for the algorithm's own synchronization, which ``Start`` leaves to Wait."""
        self.close()
        return True

    def close(self) -> None:
        """Collective. The end of the round."""

    def forget(self) -> None:
        super().forget()
        self._puts = []


class FencePaper(_Printed):
    """Algorithm 1 with its assertions, but for NOSTORE at the opening fence.

    NOSTORE promises that nobody has stored into the receive buffer since the last fence, which a
    program that clears its buffer between rounds would break (MPI-4.1 section 12.5.5).
    """

    def begin(self, slot: int) -> None:
        for window in self.own():
            window.Fence(MPI.MODE_NOPRECEDE)
        for put in self._puts:
            put.issue()

    def close(self) -> None:
        for window in self.own():
            window.Fence(MPI.MODE_NOPUT | MPI.MODE_NOSUCCEED)

    def waiting_for(self, number: int) -> str:
        return "all ranks in the fence"


class LockPaper(_Printed):
    """Algorithm 3 with barriers before and after the self lock is taken again.

    As printed, without a barrier, Wait returns with data missing; with the one barrier of the
    text the next round overwrites data that are still being read. Both barriers are needed. MPICH
    5.0 hangs in ``Lock_all`` beside an active ``Ibarrier``, which it does not progress there.
    """

    def __init__(self, operation: Exchange, resources: Resources) -> None:
        super().__init__(operation, resources)
        rank = self.exchange.rank
        for window in self.own():
            window.Lock(rank, MPI.LOCK_EXCLUSIVE)
            resources.on_release(partial(window.Unlock, rank), in_step=True)
        self.exchange.context.comm.Barrier()

    def begin(self, slot: int) -> None:
        for window in self.own():
            window.Unlock(self.exchange.rank)
        for window in self.own():
            window.Lock_all()
        for put in self._puts:
            put.issue()

    def close(self) -> None:
        barrier = self.exchange.context.comm.Barrier
        for window in self.own():
            window.Unlock_all()
        barrier()
        for window in self.own():
            window.Lock(self.exchange.rank, MPI.LOCK_EXCLUSIVE)
        barrier()

    def waiting_for(self, number: int) -> str:
        return "all ranks in the barrier"
