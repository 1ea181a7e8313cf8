"""A tree of nodes by Put and notification, and one copy of the data into each node."""

from __future__ import annotations

from onesided.collectives.arena import FILLED, TAKEN, Control
from onesided.collectives.broadcast.board import Segments, addresses, fill, take
from onesided.collectives.broadcast.linear import off_node
from onesided.collectives.broadcast.links import Links
from onesided.collectives.broadcast.operation import Broadcast, BroadcastTransport
from onesided.collectives.context import Resources
from onesided.collectives.program import Plan, copy, tell, wait_for
from onesided.collectives.trees import Place, in_binomial_tree, in_chain, leaders


class Binomial(BroadcastTransport):
    """One rank leads each node, the root its own; the leaders form a binomial tree.

    The ranks of a node take the data out of their leader's ring all at the same time, or, on the
    root's node, long data straight out of the root's buffer where that is window memory; then
    the root's round is over when all have them. A leader sends what has come to its children, one
    after the other, in the order of the info key ``child_order``. On one node nothing is sent.
    Subclasses say in which segments the data travel, and down which tree.
    """

    def __init__(self, operation: Broadcast, resources: Resources) -> None:
        super().__init__(operation, resources)
        broadcast, node, me = operation, operation.node, operation.rank
        chosen = leaders(node.firsts, broadcast.root)
        self.place = self.tree(chosen)
        self._leader = leader = next(rank for rank in chosen if rank in node.rank_of)
        self._readers = [rank for rank in node.ranks if rank != leader]
        at = addresses(broadcast)
        self._address = at[leader] if leader == broadcast.root else None
        between, inside = self.between_nodes(), self.on_node()
        self._segments = inside if leader == broadcast.root else between
        self._links: Links | None = None
        self._control: Control | None = None
        if broadcast.ranks == 1 or not broadcast.nbytes:
            return
        far, direct = len(chosen) > 1, self._address is not None
        unread = broadcast.sends and (direct or not self._readers)
        room = 0 if me != leader or unread else self._segments.room
        place = self.place
        linked = [] if place.parent is None else [place.parent]
        linked += place.children
        self._control = control = Control(broadcast, resources, room, far, linked)
        if far and me == leader:
            groups = [[child] for child in self.place.children]
            self._links = Links(
                broadcast, resources, control, between, self.place.parent, groups
            )

    def between_nodes(self) -> Segments:
        """Local. In which the data go from node to node, the same on all ranks."""
        return off_node(self.broadcast.nbytes)

    def on_node(self) -> Segments:
        """Local. In which the root gives the data to its node."""
        return Segments.on_node(self.broadcast.nbytes)

    def tree(self, chosen: list[int]) -> Place:
        """Local. This rank's place in the tree of the leaders: parent and children, all of them on
        other nodes."""
        return in_binomial_tree(chosen, self.broadcast.rank, self.broadcast.hints.child_order)

    def plans(self) -> list[Plan]:
        control, links = self._control, self._links
        if control is None:
            return [[]]
        turns = 1 if self._address is not None else self._segments.turns
        if links is not None:
            turns = max(turns, links.turns)
        return [self._plan(control, links, turn) for turn in range(turns)]

    def _plan(self, control: Control, links: Links | None, turn: int) -> Plan:
        plan: Plan = []
        me = self.broadcast.rank
        if me != self._leader:
            return self._read(control, turn)
        filled = control.cell(me, FILLED) if self._readers else None
        takers = [control.cell(rank, TAKEN) for rank in self._readers]
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

    def waiting_for(self, number: int) -> str:
        if self.broadcast.rank != self._leader:
            return f"data from rank {self._leader}"
        words = [f"rank {rank}, which has not taken the data" for rank in self._readers]
        return " or ".join(words + ([] if self._links is None else [self._links.waiting_for()]))

    def forget(self) -> None:
        super().forget()
        if self._links is not None:
            self._links.forget()


#: Bounds of a segment between nodes in bytes, where the info key ``segment_bytes`` does not say:
#: each one costs a flush per link, and the last node waits for one segment per node before it.
LEAST, MOST, PARTS = 1 << 19, 1 << 21, 16

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
        own = min(max(-(-nbytes // PARTS), LEAST), MOST)
        return max(hint or own, -(-nbytes // MOST_SEGMENTS), 1)

    def between_nodes(self) -> Segments:
        return Segments.of(self.broadcast.nbytes, self._size(), SLOTS)

    def on_node(self) -> Segments:
        return Segments.on_node(self.broadcast.nbytes, self._size())

    def tree(self, chosen: list[int]) -> Place:
        if -(-self.broadcast.nbytes // self._size()) >= len(chosen):
            return in_chain(chosen, self.broadcast.rank)
        return super().tree(chosen)
