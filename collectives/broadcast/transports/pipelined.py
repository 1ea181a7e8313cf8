"""Long data in segments that follow each other from node to node."""

from __future__ import annotations

from onesided.collectives.broadcast.places import Place, in_chain
from onesided.collectives.broadcast.transports.binomial import Binomial

#: Bounds of a segment between nodes in bytes, where the info key ``segment_bytes`` does not say:
#: each one costs a flush per link, and the last node waits for one segment per node before it.
LEAST, MOST, PARTS = 1 << 19, 1 << 21, 16


class Pipelined(Binomial):
    """A leader passes a segment on, and offers it to its node, while later ones are on their way.

    Down a chain where there are at least as many segments as nodes: each link then carries the
    data once, and the last node has them (nodes - 2) segments after the second. Down the binomial
    tree otherwise.
    """

    def segment(self) -> int:
        own = min(max(-(-self.broadcast.nbytes // PARTS), LEAST), MOST)
        return self.broadcast.hints.segment_bytes or own

    def board_segment(self) -> int:
        return min(self.segment(), super().board_segment())

    def place(self, chosen: list[int]) -> Place:
        if -(-self.broadcast.nbytes // self.segment()) >= len(chosen):
            return in_chain(chosen, self.broadcast.rank)
        return super().place(chosen)
