"""Broadcasts by stores on a node and Puts between nodes: linear, down a tree of nodes, in segments.

*On a node.* Where long data of the root are in memory from ``empty`` that its node sees, the others
copy them straight out of its buffer. Else they go through a ring (:mod:`.board`).

*Between nodes.* The parent Puts a segment into the child's ring, flushes, and Accumulates the
number of segments that have come into the child's ``arrived``. The child copies it into its own
buffer, lets its node take it out of the same ring, and passes it on. That a slot may be overwritten
is told by an empty message, because a Put or Accumulate might wait until its target enters MPI, and
the parent may be anywhere: one message a segment, once all of the child's node have taken it, or
one a round where the data fit into the ring, for those of the rounds before.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from onesided.collectives.arena import ARRIVED, COUNTERS, FILLED, TAKEN, Control
from onesided.collectives.broadcast.board import Segments, fill, shared_by_root, take
from onesided.collectives.broadcast.operation import Broadcast, BroadcastTransport
from onesided.collectives.context import Resources
from onesided.collectives.pattern import LARGEST_PIECE
from onesided.collectives.steps import Chain, Plan, call, copy, tell, wait_for
from onesided.collectives.transport import Cell
from onesided.collectives.trees import Place, in_binomial_tree, in_chain, leaders, ranks_from

#: Between nodes: bytes up to which data are in a ring four times, and most bytes of a segment; data
#: between the two are in it twice.
FOUR_TIMES, MOST = 1 << 16, 1 << 22


# -- between nodes --------------------------------------------------------------------------------


class Links:
    """What one rank receives from its parent on another node, and sends to children there."""

    def __init__(
        self, broadcast: Broadcast, resources: Resources, control: Control, segments: Segments,
        parent: int | None, groups: Sequence[Sequence[int]],
    ) -> None:  # fmt: skip
        """Local. ``groups``: the children, served one group after the other; the ranks of a group
        are sent to at the same time."""
        self.turns = segments.turns
        self.parent, self.groups = parent, [list(group) for group in groups if group]
        self._comm, self._tag, self._me = broadcast.context.comm, broadcast.number, broadcast.rank
        self._nothing, self._farewell = bytearray(0), bytearray(1)
        self._word = np.zeros(1, np.int64)
        self._came = {child: 0 for group in self.groups for child in group}
        self._gone: set[int] = set()  # the children that have said farewell
        self._said, self._status = bytearray(1), MPI.Status()
        self._windows: dict[int, MPI.Win] = {}
        self._message: MPI.Prequest | None = None
        resources.keep.append(self._word)
        resources.on_release(self._end)  # first: its neighbors wait for it, also where this fails
        self._segments, self._memory, self._control = segments, broadcast.memory(), control
        self._round = 0
        self._windows = {child: control.window(child) for child in self._came}
        self._sync = control.window(broadcast.rank).Sync
        if parent is not None:
            self._message = self._comm.Send_init([self._nothing, MPI.BYTE], parent, self._tag)

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
            if child in self._gone or not self._comm.Iprobe(child, self._tag):
                return False
            self._hear(child)
        return True

    def _hear(self, child: int) -> None:
        """Receive a word of a child: an empty one, or its farewell, where its round was given up
        and this rank's has not been yet."""
        self._comm.Recv([self._said, MPI.BYTE], child, self._tag, self._status)
        if self._status.Get_count(MPI.BYTE):
            self._gone.add(child)
        else:
            self._came[child] += 1

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

    def _end(self) -> None:
        """Collective over this rank, its parent and its children. Puts of a round that was given
        up must not come later into memory that others have then. Receive what is under way: the
        last message, the farewell, is the only one that is not empty."""
        for child, window in self._windows.items():
            window.Flush(child)
        if self._message is not None:
            self._message.Wait()
            self._message.Free()
        if self.parent is not None:
            self._comm.Send([self._farewell, MPI.BYTE], self.parent, self._tag)
        for child in self._came:
            while child not in self._gone:
                self._hear(child)


# -- the transports -------------------------------------------------------------------------------


class Binomial(BroadcastTransport):
    """One rank leads each node, the root its own; the leaders form a binomial tree.

    The other ranks of a node take the data out of their leader's ring, or straight out of the
    root's buffer, all at the same time. A leader sends what has come to its children in turn,
    in the order of the info key ``child_order``. On one node nothing is sent. Subclasses say in
    which segments the data travel, and down which tree.
    """

    def __init__(self, operation: Broadcast, resources: Resources) -> None:
        super().__init__(operation, resources)
        root, me = operation.root, operation.rank
        self._leader, self._takers, parent, groups = self.places()
        leads = me == self._leader
        self._address = shared_by_root(operation) if self._leader == root else None
        self._segments = self.on_node() if self._leader == root else self.between_nodes()
        self._turns = 1 if self._address is not None else self._segments.turns
        unread = operation.sends and (self._address is not None or not self._takers)
        room = self._segments.room if leads and not unread else 0
        self._links: Links | None = None
        self._control: Control | None = None
        if operation.ranks == 1 or not operation.nbytes:
            return
        linked = [] if parent is None else [parent]
        linked += [child for group in groups for child in group]
        far = not operation.node.alone
        self._control = Control(operation, resources, room, far, linked)
        if linked:
            between = self.between_nodes()
            self._links = Links(operation, resources, self._control, between, parent, groups)

    def places(self) -> tuple[int, list[int], int | None, Sequence[Sequence[int]]]:
        """Local. The rank of this node that has the data first, and those that take them from it;
        the parent of this rank on another node, and its children there, as :class:`Links` has it.
        """
        node, me = self.operation.node, self.operation.rank
        chosen = leaders(node.firsts, self.operation.root)
        self.place = self.tree(chosen)
        leader = next(rank for rank in chosen if rank in node.rank_of)
        takers = [rank for rank in node.ranks if rank != leader]
        return leader, takers if me == leader else [], self.place.parent, [
            [child] for child in self.place.children]

    def between_nodes(self) -> Segments:
        """Local. In which the data go from node to node, the same on all ranks: as a whole, unless
        they are very long."""
        nbytes = self.operation.nbytes
        return Segments.of(nbytes, min(nbytes, MOST), 4 if nbytes <= FOUR_TIMES else 2)

    def on_node(self) -> Segments:
        """Local. In which the root gives the data to its node."""
        return Segments.on_node(self.operation.nbytes)

    def tree(self, chosen: list[int]) -> Place:
        """Local. This rank's place in the tree of the leaders: parent and children, all of them on
        other nodes."""
        return in_binomial_tree(chosen, self.operation.rank, self.operation.hints.child_order)

    def plans(self) -> list[Plan]:
        control, links = self._control, self._links
        if control is None:
            return [[]]
        turns = self._turns if links is None else max(self._turns, links.turns)
        return [self._plan(control, links, turn) for turn in range(turns)]

    def _plan(self, control: Control, links: Links | None, turn: int) -> Plan:
        """What this rank does in a round."""
        plan: Plan = []
        me = self.operation.rank
        if me != self._leader:
            return self._read(control, turn)
        filled = control.cell(me, FILLED) if self._takers else None
        takers = [control.cell(rank, TAKEN) for rank in self._takers]
        if self.operation.sends and filled is not None:
            if self._address is not None:
                plan.append([tell(filled), *(wait_for(cell) for cell in takers)])
            else:
                source, ring = self.operation.memory(), control.ring(me, self._segments.room)
                plan.append(fill(self._segments, turn, source, ring, filled, takers))
        if links is not None:
            plan += links.chains(turn, filled, takers)
        return plan

    def _read(self, control: Control, turn: int) -> Plan:
        """What the ranks of a node do that do not lead it."""
        target = self.operation.memory()
        filled = control.cell(self._leader, FILLED)
        taken = control.cell(self.operation.rank, TAKEN)
        if self._address is not None:
            return [[wait_for(filled), copy(target, self._address.view(target.size)), tell(taken)]]
        ring = control.ring(self._leader, self._segments.room)
        return take(self._segments, turn, target, ring, filled, taken)

    def waiting_for(self, number: int) -> str:
        if self.operation.rank != self._leader:
            return f"data from rank {self._leader}"
        words = [f"rank {rank}, which has not taken the data" for rank in self._takers]
        return " or ".join(words + ([] if self._links is None else [self._links.waiting_for()]))


class Linear(Binomial):
    """The root sends to every rank off its node itself: the paper's RMABcastLinear, as a persistent
    collective. Puts are flushed together, as the printed algorithm does by unlocking all."""

    def places(self) -> tuple[int, list[int], int | None, Sequence[Sequence[int]]]:
        broadcast, firsts = self.operation, self.operation.node.firsts
        root, me = broadcast.root, broadcast.rank
        if firsts[me] != firsts[root]:
            return me, [], root, []
        others = ranks_from(root, broadcast.ranks)[1:]
        if me != root:
            return root, [], None, []
        near = [rank for rank in others if firsts[rank] == firsts[root]]
        return root, near, None, [[rank for rank in others if firsts[rank] != firsts[root]]]


#: Bounds of a segment between nodes in bytes, where the info key ``segment_bytes`` does not say:
#: each one costs a flush per link, and the last node waits for one segment per node before it.
LEAST_PART, MOST_PART, PARTS = 1 << 19, 1 << 21, 16

#: Most segments, whatever ``segment_bytes`` says: each is a few steps in the program of a round.
MOST_SEGMENTS = 1 << 10

#: Segments that may be on their way to a node.
SLOTS = 4


class Pipelined(Binomial):
    """A leader passes a segment on, and offers it to its node, while later ones are on their way.

    Down a chain where there are at least as many segments as nodes: each link then carries the
    data once, and the last node has them (nodes - 2) segments after the second. Down the binomial
    tree otherwise.
    """

    def _size(self) -> int:
        nbytes, hint = self.operation.nbytes, self.operation.hints.segment_bytes
        own = min(max(-(-nbytes // PARTS), LEAST_PART), MOST_PART)
        return max(min(hint or own, LARGEST_PIECE), -(-nbytes // MOST_SEGMENTS), 1)

    def between_nodes(self) -> Segments:
        return Segments.of(self.operation.nbytes, self._size(), SLOTS)

    def on_node(self) -> Segments:
        return Segments.on_node(self.operation.nbytes, self._size())

    def tree(self, chosen: list[int]) -> Place:
        if -(-self.operation.nbytes // self._size()) >= len(chosen):
            return in_chain(chosen, self.operation.rank)
        return super().tree(chosen)
