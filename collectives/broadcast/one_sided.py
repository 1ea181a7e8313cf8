"""Broadcasts by stores on a node and Puts between nodes: linear, down a tree of nodes, in segments.

Where long data of a rank, of the root or of one that takes them, are in memory from ``empty`` that
its node sees, they are copied once, between the two buffers, and a rank says in ``Start`` that its
buffer may be written. Else they go through a ring (:mod:`.board`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from onesided.collectives.arena import FILLED, TAKEN, Control
from onesided.collectives.broadcast.board import Segments, addresses, fill, take
from onesided.collectives.broadcast.links import Links
from onesided.collectives.broadcast.operation import Broadcast, BroadcastTransport
from onesided.collectives.context import Resources
from onesided.collectives.program import Chain, Plan, copy, tell, wait_for
from onesided.collectives.trees import Place, in_binomial_tree, in_chain, leaders, ranks_from

#: Between nodes: bytes up to which data are in a ring four times, and most bytes of a segment; data
#: between the two are in it twice.
FOUR_TIMES, MOST = 1 << 16, 1 << 22


class _OneSided(BroadcastTransport, ABC):
    """What the two have in common: memory on the node, and links to other nodes."""

    #: The forms in which a round comes on the node; the rank of this node that has the data first,
    #: where it is another one, and those that take them from this one.
    _turns: int
    _source: int | None
    _takers: list[int]

    def __init__(self, operation: Broadcast, resources: Resources) -> None:
        super().__init__(operation, resources)
        self._addresses = addresses(operation)
        self._links: Links | None = None
        self._control: Control | None = None

    def _connect(
        self, room: int, far: bool, parent: int | None, groups: Sequence[Sequence[int]]
    ) -> None:
        """Collective. ``room``: bytes of this rank's ring; ``far``: there are other nodes;
        ``parent``, ``groups``: those of :class:`Links`, on other nodes."""
        broadcast = self.broadcast
        if broadcast.ranks == 1 or not broadcast.nbytes:
            return
        linked = [] if parent is None else [parent]
        linked += [child for group in groups for child in group]
        self._control = control = Control(broadcast, self.resources, room, far, linked)
        if linked:
            between = self.between_nodes()
            self._links = Links(broadcast, self.resources, control, between, parent, groups)

    def between_nodes(self) -> Segments:
        """Local. In which the data go from node to node, the same on all ranks: as a whole, unless
        they are very long."""
        nbytes = self.broadcast.nbytes
        return Segments.of(nbytes, min(nbytes, MOST), 4 if nbytes <= FOUR_TIMES else 2)

    def plans(self) -> list[Plan]:
        control, links = self._control, self._links
        if control is None:
            return [[]]
        turns = self._turns if links is None else max(self._turns, links.turns)
        return [self._plan(control, links, turn) for turn in range(turns)]

    @abstractmethod
    def _plan(self, control: Control, links: Links | None, turn: int) -> Plan:
        """Local. What this rank does in a round."""

    def waiting_for(self, number: int) -> str:
        if self._source is not None:
            return f"data from rank {self._source}"
        words = [f"rank {rank}, which has not taken the data" for rank in self._takers]
        return " or ".join(words + ([] if self._links is None else [self._links.waiting_for()]))

    def forget(self) -> None:
        super().forget()
        if self._links is not None:
            self._links.forget()


class Linear(_OneSided):
    """The root sends to every rank itself: the paper's RMABcastLinear, as a persistent collective.

    It Puts to the ranks off its node, and stores on it, into the buffer or the ring of each, in the
    order of the ranks. Puts are flushed together, as the printed algorithm does by unlocking all.
    """

    def __init__(self, operation: Broadcast, resources: Resources) -> None:
        super().__init__(operation, resources)
        root, me, firsts = operation.root, operation.rank, operation.node.firsts
        others = ranks_from(root, operation.ranks)[1:]
        self._source = None if operation.sends else root
        self._takers = [rank for rank in others if firsts[rank] == firsts[root]]
        far = [rank for rank in others if firsts[rank] != firsts[root]]
        self._segments = Segments.on_node(operation.nbytes)
        self._turns = self._segments.turns
        room = 0
        if me in self._takers and self._addresses[me] is None:
            room = self._segments.room
        elif me in far:
            room = self.between_nodes().room
        parent = root if me in far else None
        self._connect(room, bool(far), parent, [far] if operation.sends and far else [])

    def _plan(self, control: Control, links: Links | None, turn: int) -> Plan:
        plan: Plan = [] if links is None else links.chains(turn, None, [])
        if self.broadcast.sends:
            return plan + [self._store(control, rank, turn) for rank in self._takers]
        return plan if links is not None else self._load(control, turn)

    def _store(self, control: Control, rank: int, turn: int) -> Chain:
        """What the root does for a rank of its node."""
        source, address = self.broadcast.memory(), self._addresses[rank]
        filled, taken = control.cell(rank, FILLED), control.cell(rank, TAKEN)
        if address is not None:
            return [wait_for(taken), copy(address.view(), source), tell(filled)]
        ring = control.ring(rank, self._segments.room)
        return fill(self._segments, turn, source, ring, filled, [taken])

    def _load(self, control: Control, turn: int) -> Plan:
        """What a rank of the root's node does."""
        me = self.broadcast.rank
        filled, taken = control.cell(me, FILLED), control.cell(me, TAKEN)
        if self._addresses[me] is not None:
            return [[tell(taken), wait_for(filled)]]
        ring = control.ring(me, self._segments.room)
        return take(self._segments, turn, self.broadcast.memory(), ring, filled, taken)


class Binomial(_OneSided):
    """One rank leads each node, the root its own; the leaders form a binomial tree.

    The ranks of a node take the data out of their leader's ring, or straight out of the root's
    buffer, all at the same time. A leader sends what has come to its children, one after the other,
    in the order of the info key ``child_order``. On one node nothing is sent. Subclasses say in
    which segments the data travel, and down which tree.
    """

    def __init__(self, operation: Broadcast, resources: Resources) -> None:
        super().__init__(operation, resources)
        node, me = operation.node, operation.rank
        chosen = leaders(node.firsts, operation.root)
        self.place = self.tree(chosen)
        self._leader = leader = next(rank for rank in chosen if rank in node.rank_of)
        self._source = None if me == leader else leader
        self._takers = [rank for rank in node.ranks if rank != leader]
        self._address = self._addresses[leader] if leader == operation.root else None
        self._segments = self.on_node() if leader == operation.root else self.between_nodes()
        self._turns = 1 if self._address is not None else self._segments.turns
        unread = operation.sends and (self._address is not None or not self._takers)
        room = 0 if me != leader or unread else self._segments.room
        groups = [[child] for child in self.place.children]
        self._connect(room, len(chosen) > 1, self.place.parent, groups)

    def on_node(self) -> Segments:
        """Local. In which the root gives the data to its node."""
        return Segments.on_node(self.broadcast.nbytes)

    def tree(self, chosen: list[int]) -> Place:
        """Local. This rank's place in the tree of the leaders: parent and children, all of them on
        other nodes."""
        return in_binomial_tree(chosen, self.broadcast.rank, self.broadcast.hints.child_order)

    def _plan(self, control: Control, links: Links | None, turn: int) -> Plan:
        plan: Plan = []
        me = self.broadcast.rank
        if me != self._leader:
            return self._read(control, turn)
        filled = control.cell(me, FILLED) if self._takers else None
        takers = [control.cell(rank, TAKEN) for rank in self._takers]
        if self.broadcast.sends and filled is not None:
            if self._address is not None:
                plan.append([tell(filled), *(wait_for(cell) for cell in takers)])
            else:
                source, ring = self.broadcast.memory(), control.ring(me, self._segments.room)
                plan.append(fill(self._segments, turn, source, ring, filled, takers))
        if links is not None:
            plan += links.chains(turn, filled, takers)
        return plan

    def _read(self, control: Control, turn: int) -> Plan:
        """What the ranks of a node do that do not lead it."""
        target = self.broadcast.memory()
        filled = control.cell(self._leader, FILLED)
        taken = control.cell(self.broadcast.rank, TAKEN)
        if self._address is not None:
            return [[wait_for(filled), copy(target, self._address.view()), tell(taken)]]
        ring = control.ring(self._leader, self._segments.room)
        return take(self._segments, turn, target, ring, filled, taken)


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
        nbytes, hint = self.broadcast.nbytes, self.broadcast.hints.segment_bytes
        own = min(max(-(-nbytes // PARTS), LEAST_PART), MOST_PART)
        return max(hint or own, -(-nbytes // MOST_SEGMENTS), 1)

    def between_nodes(self) -> Segments:
        return Segments.of(self.broadcast.nbytes, self._size(), SLOTS)

    def on_node(self) -> Segments:
        return Segments.on_node(self.broadcast.nbytes, self._size())

    def tree(self, chosen: list[int]) -> Place:
        if -(-self.broadcast.nbytes // self._size()) >= len(chosen):
            return in_chain(chosen, self.broadcast.rank)
        return super().tree(chosen)
