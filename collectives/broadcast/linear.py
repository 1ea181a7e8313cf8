"""The root sends to every rank itself: the paper's RMABcastLinear, as a persistent collective."""

from __future__ import annotations

from onesided.collectives.arena import FILLED, TAKEN, Control
from onesided.collectives.broadcast.board import Segments, addresses, fill, take
from onesided.collectives.broadcast.links import Links
from onesided.collectives.broadcast.operation import Broadcast, BroadcastTransport
from onesided.collectives.context import Resources
from onesided.collectives.program import Chain, Plan, copy, tell, wait_for
from onesided.collectives.trees import ranks_from

#: Between nodes: bytes up to which data are in a ring four times, and most bytes of a segment; data
#: between the two are in it twice.
FOUR_TIMES, MOST = 1 << 16, 1 << 22


def off_node(nbytes: int) -> Segments:
    """Local. Segments of data that go to another node as a whole, unless they are very long."""
    return Segments.of(nbytes, min(nbytes, MOST), 4 if nbytes <= FOUR_TIMES else 2)


class Linear(BroadcastTransport):
    """The root Puts to the ranks off its node, and stores on it, in the order of the ranks.

    On the node it stores long data straight into a rank's buffer, where that is window memory; the
    rank says in ``Start`` that it may. Else it fills a ring in the rank's control memory, out of
    which the rank copies. Puts are flushed together, as the printed algorithm does by unlocking
    all.
    """

    def __init__(self, operation: Broadcast, resources: Resources) -> None:
        super().__init__(operation, resources)
        broadcast, root = operation, operation.root
        self._addresses, firsts = addresses(broadcast), broadcast.node.firsts
        self._near = [
            rank for rank in ranks_from(root, broadcast.ranks)[1:]
            if firsts[rank] == firsts[root]
        ]
        self._segments = Segments.on_node(broadcast.nbytes)
        self._links: Links | None = None
        self._control: Control | None = None
        if broadcast.ranks == 1 or not broadcast.nbytes:
            return
        segments = off_node(broadcast.nbytes)
        near = broadcast.rank in self._near
        room = 0
        if near and self._addresses[broadcast.rank] is None:
            room = self._segments.room
        elif not near and not broadcast.sends:
            room = segments.room
        far = [r for r in ranks_from(root, broadcast.ranks)[1:] if r not in self._near]
        linked = far if broadcast.sends else [] if near else [root]
        self._control = control = Control(broadcast, resources, room, bool(far), linked)
        if far and (broadcast.sends or not near):
            above = None if broadcast.sends else root
            below = [far] if broadcast.sends else []
            self._links = Links(broadcast, resources, control, segments, above, below)

    def plans(self) -> list[Plan]:
        control, turns = self._control, self._segments.turns
        if control is None:
            return [[]]
        links = self._links
        if links is not None:
            turns = max(turns, links.turns)
        plans: list[Plan] = []
        for turn in range(turns):
            plan: Plan = [] if links is None else links.chains(turn, None, [])
            if self.broadcast.sends:
                plan += [self._store(control, rank, turn) for rank in self._near]
            elif links is None:
                plan += self._load(control, turn)
            plans.append(plan)
        return plans

    def _store(self, control: Control, rank: int, turn: int) -> Chain:
        """What the root does for a rank of its node."""
        source, address = self.broadcast.memory(), self._addresses[rank]
        filled, taken = control.cell(rank, FILLED), control.cell(rank, TAKEN)
        if address is not None:
            return [wait_for(taken), copy(address.view(), source), tell(filled)]
        ring = control.ring(rank, self._segments.room)
        return fill(self._segments, turn, source, ring, filled, [taken])

    def _load(self, control: Control, turn: int) -> Plan:
        """What a rank of the root's node does; ``taken`` tells of a buffer that it is free now."""
        me = self.broadcast.rank
        filled, taken = control.cell(me, FILLED), control.cell(me, TAKEN)
        if self._addresses[me] is not None:
            return [[tell(taken), wait_for(filled)]]
        ring = control.ring(me, self._segments.room)
        return take(self._segments, turn, self.broadcast.memory(), ring, filled, taken)

    def waiting_for(self, number: int) -> str:
        if not self.broadcast.sends:
            return f"data from rank {self.broadcast.root}"
        words = [f"rank {rank}, which has not given its memory" for rank in self._near]
        return " or ".join(words + ([] if self._links is None else [self._links.waiting_for()]))

    def forget(self) -> None:
        super().forget()
        if self._links is not None:
            self._links.forget()
