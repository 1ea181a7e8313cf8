"""Fence synchronization: Algorithms 1 and 2 on memory that MPI allocated.

``MPI_Win_fence`` is a barrier on every MPI there is, so these methods are strictly ordered: ranks
start their requests in the same order (MPI-4.1 section 7.13, info key
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
from onesided.collectives.program import Plan, call, copy
from onesided.collectives.schedule import OneSided, merged


class Fence(OneSided):
    """Algorithm 1: store on the node, Put off it, between fences.

    Every fence takes assertion 0, but for NOPRECEDE at initialization and NOSUCCEED at the end:
    each closes one round and opens the next, and stores through shared memory need the barrier
    that a NOPRECEDE fence does not promise.
    """

    direct = True
    own_windows = True
    overlay = True

    def __init__(self, operation: Exchange, resources: Resources) -> None:
        super().__init__(operation, resources)
        windows = self.own()
        self._fences = [window.Fence for window in windows]
        self._opens = self.turns == 1
        self._fresh = False
        for window in windows:
            window.Fence(MPI.MODE_NOPRECEDE)
            resources.on_release(partial(window.Fence, MPI.MODE_NOSUCCEED), in_step=True)

    def needs_mpi_thread(self) -> bool:
        return False

    def plans(self) -> list[Plan]:
        return [self._plan(turn) for turn in range(self.turns)]

    def _plan(self, turn: int) -> Plan:
        chain = [call(self._open)] if self._opens else []
        for puts, stores in merged(self.stages(turn)):
            chain += [call(put.issue) for put in puts]
            chain += [copy(target, source) for target, source in stores]
        chain += [*self.copies_of(turn), call(self._started)]
        return [[*chain, call(self._close, False), call(partial(self.finish, turn), False)]]

    def filled_plans(self) -> list[Plan]:
        filling = self.filling()
        plans = []
        for turn in range(self.turns):
            chain = [call(put.issue) for put in filling.last[turn]]
            chain += [copy(target, source) for target, source in filling.copies[turn]]
            chain += [call(self._started), call(self._close, False)]
            plans.append([[*chain, call(partial(self.finish, turn), False)]])
        return plans

    def _open(self) -> None:
        self.sync()
        for fence in self._fences:
            fence()

    def _started(self) -> None:
        self._fresh = True

    def _close(self) -> bool:
        """The fence of Wait and Test; ``Start`` leaves it to them."""
        if self._fresh:
            self._fresh = False
            return False
        self._open()
        return True

    def may_open(self, rounds: int) -> bool:
        if self._opens:
            self._open()
        return True

    def waiting_for(self, number: int) -> str:
        return "all ranks in the fence"

    def forget(self) -> None:
        super().forget()
        self._fences = []


class FenceHierarchy(Fence):
    """Algorithm 2: off-node Puts are all issued first and travel while the node is served."""

    puts_first = True
