"""The root sends to every rank itself: the paper's RMABcastLinear, as a persistent collective."""

from __future__ import annotations

from typing import Any

from onesided.collectives.alternation import Alternation, Creditor
from onesided.collectives.broadcast.control import ARRIVED, Address, Control
from onesided.collectives.broadcast.links import Links
from onesided.collectives.broadcast.operation import Broadcast
from onesided.collectives.broadcast.places import Place, ranks_from
from onesided.collectives.broadcast.request import BroadcastRequest
from onesided.collectives.context import Resources


class Linear(BroadcastRequest):
    """The root Puts to the ranks off its node, and stores on it, in the order of the ranks.

    On the node it stores into a rank's buffer where that is window memory, else into control
    memory, out of which the rank copies. Everyone gives a credit in ``Start``, on the node as a
    counter beside the root's, off it as a message; the root writes to nobody whose credit it does
    not have. Puts are flushed together, as the printed algorithm does by unlocking all.
    """

    def __init__(self, broadcast: Broadcast, resources: Resources) -> None:
        super().__init__(broadcast, resources)
        node, context, root = broadcast.node, broadcast.context, broadcast.root
        addresses, seen = self._look_around()
        self._staged = not broadcast.sends and seen.get(broadcast.rank) is False
        room = broadcast.nbytes if self._staged else 0
        self._control = control = Control(broadcast, resources, room)
        self._buffer = broadcast.memory()
        self._room = control.mine[control.start : control.start + room]
        self._arrived = control.counter(ARRIVED)
        self._number = -1
        self._late: list[int] = []
        order = ranks_from(root, broadcast.ranks)[1:] if broadcast.sends else []
        self._far = [rank for rank in order if rank not in node.rank_of]
        self._near = [rank for rank in order if rank in node.rank_of]
        self._targets = {
            rank: addresses[rank].view() if seen[rank] else control.room(rank)[: broadcast.nbytes]
            for rank in self._near
        }
        self._signals = {rank: control.counter_of(rank, ARRIVED) for rank in self._near}
        self._credits = {rank: control.credit_from(rank) for rank in self._near}
        self._links: Links | None = None
        if not node.alone:
            place = Place(None if root in node.rank_of else root, tuple(self._far))
            self._links = Links(broadcast, resources, control, place, max(1, broadcast.nbytes))
        self.alternate_in(Alternation(context.comm, context.next_tag()))

    def _look_around(self) -> tuple[dict[int, Any], dict[int, bool]]:
        """Collective over the node. By rank, where its buffer is, and whether the root sees it."""
        node, root = self.broadcast.node, self.broadcast.root
        addresses = dict(
            zip(node.ranks, node.comm.allgather(Address.of(self.broadcast)), strict=True)
        )
        if root not in node.rank_of:
            return addresses, {}
        mine = {r: a is not None and a.region() is not None for r, a in addresses.items()}
        return addresses, node.comm.bcast(mine, node.rank_of[root])

    def creditor(self) -> Creditor:
        broadcast, node, root = self.broadcast, self.broadcast.node, self.broadcast.root
        far = not node.alone
        if broadcast.sends:
            return Creditor([], [], [], self._far, far)
        if root in node.rank_of:
            return Creditor([self._control.credit_at(root)], [self._control.sync], [], [], far)
        return Creditor([], [], [root], [], far)

    # -- a round -----------------------------------------------------------------------------------

    def begin(self, slot: int) -> None:
        self._number += 1
        if not self.broadcast.sends or not self.broadcast.nbytes:
            self._late = []
            return
        self._late = self._far + self._near
        self._store()

    def advance(self) -> bool:
        if not self.broadcast.sends:
            came: int = self._arrived[0]
            return came > self._number or not self.broadcast.nbytes
        if self._late:
            self._put()
            self._store()
        return not self._late

    def _store(self) -> None:
        """Local. Store to the ranks of the node that have given their credit."""
        number = self._number + 1
        ready = [r for r in self._late if r in self._near and self._credits[r][0] >= number]
        if not ready:
            return
        self._control.sync()
        for rank in ready:
            self._targets[rank][:] = self._buffer
            self._control.sync()
            self._signals[rank][0] = number
        self._late = [rank for rank in self._late if rank not in ready]

    def _put(self) -> None:
        """Put to all other ranks that have given their credit; flushes may wait for them."""
        links, memory, number = self._links, self._memory, self._number
        if links is None or memory is None:
            return
        far = [rank for rank in self._late if rank in self._far]
        ready = [rank for rank in far if memory.has_come(rank, number + 1)]
        for rank in ready:
            links.put(rank, 0, 1)
        for rank in ready:
            links.flush(rank)
        for rank in ready:
            links.tell(rank, number, 1)
        for rank in ready:
            links.settle(rank)
        self._late = [rank for rank in self._late if rank not in ready]

    def complete(self) -> None:
        self._control.sync()
        if self._staged:
            self._buffer[:] = self._room

    def waiting_for(self) -> str:
        if self.broadcast.sends:
            return ", ".join(f"rank {rank}, which has not started" for rank in self._late)
        return f"data from rank {self.broadcast.root}"

    def forget(self) -> None:
        self._targets, self._signals, self._credits = {}, {}, {}
        self._buffer = self._room = self._arrived = memoryview(b"")
        self._control.forget()
        if self._links is not None:
            self._links.forget()
