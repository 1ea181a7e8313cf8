"""A tree of nodes by Put and notification, and one copy of the data on each node."""

from __future__ import annotations

from onesided.collectives.alternation import Alternation, Creditor
from onesided.collectives.broadcast.board import Board, segment_of
from onesided.collectives.broadcast.links import Links, credits_of_links
from onesided.collectives.broadcast.operation import Broadcast
from onesided.collectives.broadcast.places import Place, in_binomial_tree, leaders
from onesided.collectives.broadcast.request import BroadcastRequest
from onesided.collectives.context import Resources


class Binomial(BroadcastRequest):
    """One rank leads each node, the root its own; the leaders form a binomial tree.

    A leader whose data have come offers them to its node and sends them to its children, one
    after the other, in the order of the info key ``child_order``. On one node nothing is sent.
    Subclasses say in which segments the data travel, and down which tree.
    """

    def __init__(self, broadcast: Broadcast, resources: Resources) -> None:
        super().__init__(broadcast, resources)
        node, context = broadcast.node, broadcast.context
        chosen = leaders(context.comm.allgather(node.ranks[0]), broadcast.root)
        leader = next(rank for rank in chosen if rank in node.rank_of)
        self._place = self.place(chosen)
        self._leads = broadcast.rank == leader
        self._board = Board(broadcast, resources, leader, self.board_segment())
        self._links: Links | None = None
        self._number = -1
        self._here = 0  # bytes of this round that are in the buffer
        self._behind: list[int] = []  # children that lack segments of this round
        self._sent = dict.fromkeys(self._place.children, 0)
        if not node.alone:
            control, segment = self._board.control, self.segment()
            self._links = Links(broadcast, resources, control, self._place, segment)
            self.alternate_in(Alternation(context.comm, context.next_tag()))

    def segment(self) -> int:
        """Local. Bytes that are sent as one, the same on all ranks."""
        return max(1, self.broadcast.nbytes)

    def board_segment(self) -> int:
        """Local. Bytes that are offered as one on a node."""
        return segment_of(self.broadcast.nbytes)

    def place(self, chosen: list[int]) -> Place:
        """Local. This rank's place in the tree of the leaders."""
        return in_binomial_tree(chosen, self.broadcast.rank, self.broadcast.hints.child_order)

    def creditor(self) -> Creditor:
        return credits_of_links(self._place)

    @property
    def links(self) -> Place:
        """Local. Parent and children of this rank, all of them on other nodes."""
        return self._place

    # -- a round -----------------------------------------------------------------------------------

    def begin(self, slot: int) -> None:
        self._number += 1
        self._board.begin(self._number)
        if not self._leads:
            return
        self._here = self.broadcast.nbytes if self.broadcast.sends else 0
        self._behind = list(self._place.children) if self.broadcast.nbytes else []
        for child in self._behind:
            self._sent[child] = 0
        if self.broadcast.sends:
            self._board.offer(self._here)

    def advance(self) -> bool:
        if not self._leads:
            return self._board.take()
        links = self._links
        if links is not None and self._here < self.broadcast.nbytes:
            came = links.arrived(self._number) * links.segment
            if came > self._here:
                self._board.control.sync()
                self._here = min(came, self.broadcast.nbytes)
        over = self._board.offer(self._here)
        if links is not None and self._behind:
            self._relay(links)
        return over and not self._behind and self._here == self.broadcast.nbytes

    def _relay(self, links: Links) -> None:
        """Send the children that have given their credit what they lack, segment by segment."""
        there, sent = -(-self._here // links.segment), self._sent
        ready = [c for c in self._behind if sent[c] < there and self._may_write(c)]
        while ready:
            for child in ready:
                first = sent[child]
                links.put(child, first, first + 1)
                links.flush(child)
                links.tell(child, self._number, first + 1)
                sent[child] = first + 1
            ready = [child for child in ready if sent[child] < there]
        for child in self._behind:
            if sent[child] == links.count:
                links.settle(child)
        self._behind = [child for child in self._behind if sent[child] < links.count]

    def _may_write(self, child: int) -> bool:
        return self._memory is not None and self._memory.has_come(child, self._number + 1)

    def complete(self) -> None:
        self._board.control.sync()

    def waiting_for(self) -> str:
        if not self._leads:
            return "data on its node"
        words = [f"rank {child}, to which the data have not left" for child in self._behind]
        words += [f"rank {rank}, which has not read the data" for rank in self._board.late()]
        if self._here < self.broadcast.nbytes:
            words.append(f"data from rank {self._place.parent}")
        return ", ".join(words)

    def forget(self) -> None:
        self._board.forget()
        if self._links is not None:
            self._links.forget()
