"""Fence synchronization: Algorithms 1 and 2 on windows over memory of the node.

``MPI_Win_fence`` is a barrier on every MPI there is, so these methods are strictly ordered: ranks
start their requests in the same order (MPI-4.1 section 7.13, info key
``mpi_assert_strict_persistent_collective_ordering``).

With two receive slots one fence a round suffices: the fence that closes a round tells every rank
that all others have started it, and have thereby given up the slot of the round before, so it
opens the next round as well, and ``Start`` waits for nobody. With the caller's receive buffer, or
one slot, ``Start`` opens with a fence of its own, because the target may still be reading. ``Open``
is that fence alone, so it is always possible, and other ranks may call ``Start`` meanwhile.

Where all ranks are on one node nothing is Put, and what a fence does is done by counters in shared
memory: each rank says that it has come, and waits for all others.
"""

from __future__ import annotations

import os
from functools import partial

from mpi4py import MPI

from onesided.collectives import progress
from onesided.collectives.agreement import agree_once
from onesided.collectives.arena import FILLED, Control
from onesided.collectives.context import Resources
from onesided.collectives.exchange import Exchange
from onesided.collectives.program import fence
from onesided.collectives.schedule import OneSided
from onesided.collectives.steps import Chain, Plan, call, tell, wait_for
from onesided.collectives.transport import Cell
from onesided.collectives.trees import ranks_from


class Fence(OneSided):
    """Algorithm 1: store on the node, Put off it, between fences.

    Every fence takes assertion 0, but for NOPRECEDE at initialization and NOSUCCEED at the end:
    each closes one round and opens the next, and stores through shared memory need the barrier
    that a NOPRECEDE fence does not promise.
    """

    direct = True
    own_windows = True

    def __init__(self, operation: Exchange, resources: Resources) -> None:
        self._stores = self.share and operation.node.alone
        self.overlay = not self._stores
        error: Exception | None = None
        try:
            super().__init__(operation, resources)
        except Exception as problem:
            error = problem
        # the others would wait in a fence
        agree_once(operation.context.comm, error, f"windows of request {operation.number}")
        windows = self.own()
        self._fences = [window.Fence for window in windows]
        self._opens = self.turns == 1
        self.waits_in_start = self._opens and not self._stores
        self._probe = operation.context.comm.Iprobe
        self._cells: list[Cell] = []  # by rank, this one first
        if self._stores:
            control = Control(operation, resources, 0, False)
            ranks = ranks_from(operation.rank, operation.context.comm.size)
            self._cells = [control.cell(rank, FILLED) for rank in ranks]
        for window in windows:
            window.Fence(MPI.MODE_NOPRECEDE)
            resources.on_release(partial(window.Fence, MPI.MODE_NOSUCCEED), in_step=True)

    def plans(self) -> list[Plan]:
        return [self._plan(turn, self._opening(), [*self.to_others(turn), *self.local[turn]])
                for turn in range(self.turns)]

    def filled_plans(self) -> list[Plan]:
        filling = self.filling()
        return [self._plan(turn, [], [*filling.rest(turn), *filling.copies[turn]])
                for turn in range(self.turns)]

    def _fence(self, last: bool) -> Chain:
        """The fence on a node; a round has two where it opens with one."""
        scale, shift = (2, 0 if last else -1) if self._opens else (1, 0)
        first, *others = self._cells
        return [tell(first, scale, shift), *(wait_for(cell, scale, shift) for cell in others)]

    def _opening(self) -> Chain:
        """The fence of Start."""
        if not self._opens:
            return []
        return self._fence(False) if self._stores else [call(self._open, once=True)]

    def _plan(self, turn: int, opening: Chain, issued: Chain) -> Plan:
        if self._stores:
            return [[*opening, *issued, *self._fence(True), *self.unpacks_of(turn, self.peers)]]
        closing = call(self._open, False, blocks=True, once=True)  # in Wait and Test
        return [[*opening, *issued, closing, *self.come(turn, self.peers)]]

    def _open(self) -> None:
        fence()
        for close in self._fences:
            close()

    def may_open(self, rounds: int) -> bool:
        if self._opens and self._stores:
            started = rounds if self.credit is None else self.credit.number
            number = 2 * started + 1  # as :meth:`_fence` counts
            fence()
            self._cells[0][0] = number
            while any(cell[0] < number for cell in self._cells):
                progress.drive(self._probe)
                os.sched_yield()
            fence()
        elif self._opens:
            self._open()
        return True

    def waiting_for(self, number: int) -> str:
        return "all ranks in the fence"


class FenceHierarchy(Fence):
    """Algorithm 2: off-node Puts are all issued first and travel while the node is served."""

    puts_first = True
