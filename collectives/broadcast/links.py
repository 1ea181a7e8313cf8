"""Data from rank to rank between nodes: Puts into a ring at the child, a counter behind them.

The parent Puts a segment into the child's ring (:mod:`.board`), flushes, and Accumulates the number
of segments that have come into the child's ``arrived``. The child copies it into its own buffer,
lets its node take it out of the same ring, and passes it on. That a slot may be overwritten is told
by an empty message, because a Put or Accumulate might wait until its target enters MPI, and the
parent may be anywhere: one message a segment, once all of the child's node have taken it, or one a
round where the data fit into the ring, for those of the rounds before.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from onesided.collectives.arena import ARRIVED, COUNTERS, TAKEN, Control
from onesided.collectives.broadcast.board import Segments
from onesided.collectives.broadcast.operation import Broadcast
from onesided.collectives.context import Resources
from onesided.collectives.program import Chain, Plan, call, copy, tell, wait_for
from onesided.collectives.transport import Cell


class Links:
    """What one rank receives from its parent on another node, and sends to children there."""

    def __init__(
        self,
        broadcast: Broadcast,
        resources: Resources,
        control: Control,
        segments: Segments,
        parent: int | None,
        groups: Sequence[Sequence[int]],
    ) -> None:
        """Local. ``groups``: the children, served one group after the other; the ranks of a group
        are sent to at the same time."""
        self.turns = segments.turns
        self.parent, self.groups = parent, [list(group) for group in groups if group]
        self._segments, self._memory, self._control = segments, broadcast.memory(), control
        self._comm, self._tag = broadcast.context.comm, broadcast.number
        self._me = broadcast.rank
        self._round = 0
        self._nothing, self._farewell = bytearray(0), bytearray(1)
        self._word = np.zeros(1, np.int64)
        self._came = {child: 0 for group in self.groups for child in group}
        self._windows = {child: control.window(child) for child in self._came}
        self._sync = control.window(broadcast.rank).Sync
        self._message: MPI.Prequest | None = None
        if parent is not None:
            self._message = self._comm.Send_init([self._nothing, MPI.BYTE], parent, self._tag)
        resources.keep.append(self._word)
        resources.on_release(self._end)

    # -- programs ----------------------------------------------------------------------------------

    def chains(self, turn: int, filled: Cell | None, takers: list[Cell]) -> Plan:
        """Local. The steps of a round; ``takers``: the counters of the ranks of this node that
        take out of this rank's ring, and ``filled`` where they look."""
        plan: Plan = [[call(self._begin, False, once=True)]]
        if self.parent is not None:
            plan.append(self._arrivals(turn, filled))
            plan.append(self._acknowledgements(takers))
        if self.groups:
            plan.append(self._relay(turn))
        return plan

    def _arrivals(self, turn: int, filled: Cell | None) -> Chain:
        """What has come is told to the node, then copied."""
        segments, count, control = self._segments, self._segments.count, self._control
        arrived, mine = control.cell(self._me, ARRIVED), control.cell(self._me, TAKEN)
        ring = control.ring(self._me, segments.room)
        chain: Chain = []
        for i in range(count):
            chain += [wait_for(arrived, count, i + 1 - count), call(self._sync, False, once=True)]
            if filled is not None:
                chain.append(tell(filled, count, i + 1 - count))
            chain.append(copy(self._memory[segments.part(i)], segments.slot(ring, turn, i)))
            if self.groups or not segments.fit:
                chain.append(tell(mine, count, i + 1 - count))
        return chain

    def _acknowledgements(self, takers: list[Cell]) -> Chain:
        count = self._segments.count
        if self._segments.fit:
            return [*(wait_for(cell, count, -count) for cell in takers),
                    call(self._acknowledge, once=True)]
        mine = self._control.cell(self._me, TAKEN)
        chain: Chain = []
        for i in range(count):
            chain += [wait_for(cell, count, i + 1 - count) for cell in (mine, *takers)]
            chain.append(call(self._acknowledge, once=True))
        return chain

    def _relay(self, turn: int) -> Chain:
        segments, count = self._segments, self._segments.count
        mine = self._control.cell(self._me, TAKEN)
        chain: Chain = []
        for i in range(count):
            if self.parent is not None:
                chain.append(wait_for(mine, count, i + 1 - count))
            part = self._memory[segments.part(i)]
            for group in self.groups:
                puts = []
                for child in group:
                    place = self._control.start(child) + COUNTERS + segments.place(turn, i)
                    put = self._windows[child].Put
                    origin, target = [part, part.size, MPI.BYTE], [place, part.size, MPI.BYTE]
                    if part.size:
                        puts.append(partial(put, origin, child, target))
                chain.append(call(partial(self._put, group, i, puts)))
                complete = partial(self._complete, group, i)
                chain.append(call(complete, in_start=False, once=True))
        return chain

    # -- what the steps call -----------------------------------------------------------------------

    def _begin(self) -> None:
        self._round += 1

    def _acknowledge(self) -> None:
        if self._message is not None:
            self._message.Wait()  # the one before: it is empty, and every MPI buffers it
            self._message.Start()

    def _put(self, group: list[int], i: int, puts: list[Any]) -> bool:
        """False where a child has not given the slots."""
        segments = self._segments
        if segments.fit:
            needed = self._round - segments.turns + 1
        else:
            needed = (self._round - 1) * segments.count + i + 1 - segments.slots
        if not all([self._has_come(child, needed) for child in group]):
            return False
        for put in puts:
            put()
        return True

    def _has_come(self, child: int, needed: int) -> bool:
        while self._came[child] < needed:
            if not self._comm.Iprobe(child, self._tag):
                return False
            self._comm.Recv([self._nothing, MPI.BYTE], child, self._tag)
            self._came[child] += 1
        return True

    def _complete(self, group: list[int], i: int) -> None:
        """Data, then counters, each at all ranks of a group at the same time.

        A flush may wait until the target enters MPI, so it is not for ``Start``.
        """
        for child in group:
            self._windows[child].Flush(child)
        self._word[0] = (self._round - 1) * self._segments.count + i + 1
        for child in group:
            place = [self._control.start(child) + ARRIVED, 1, MPI.INT64_T]
            self._windows[child].Accumulate(
                [self._word, 1, MPI.INT64_T], child, place, MPI.REPLACE
            )
        for child in group:
            self._windows[child].Flush(child)

    # -- the end -----------------------------------------------------------------------------------

    def waiting_for(self) -> str:
        """Local. In words, for the watchdog."""
        words = [f"the slots of rank {child}" for child in self._came]
        words += [] if self.parent is None else [f"data from rank {self.parent}"]
        return " or ".join(words)

    def forget(self) -> None:
        """Local. Drop every view of the memory."""
        self._memory = np.empty(0, np.uint8)

    def _end(self) -> None:
        """Collective over this rank, its parent and its children. Puts of a round that was given
        up must not come later into memory that others have then. Receive what is under way: the
        last message, the farewell, is the only one that is not empty."""
        for child, window in self._windows.items():
            window.Flush(child)
        if self._message is not None and self.parent is not None:
            self._message.Wait()
            self._message.Free()
            self._comm.Send([self._farewell, MPI.BYTE], self.parent, self._tag)
        status = MPI.Status()
        for child in self._came:
            status.Set_elements(MPI.BYTE, 0)
            while not status.Get_count(MPI.BYTE):
                self._comm.Recv([self._farewell, MPI.BYTE], child, self._tag, status)
