"""Groups go straight into the receiver's memory: stored on the node, Put off it.

The receive buffer comes from :func:`~onesided.collectives.empty`, so that the sender can reach it
without any collective call. On the node see :mod:`.shared`. Off it groups are Put through the
window that ``empty`` makes for all ranks, and notes tell of them after a flush. A flush may wait
until the target enters MPI, so it is made by ``Test``, ``Wait`` and the progress thread only: marks
Put, and wait for nobody. The receiver grants a round by an empty message, its *credit*.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from onesided.collectives.copies import LARGEST_PIECE
from onesided.collectives.errors import ResourceError
from onesided.collectives.memory import Region, wide_region
from onesided.collectives.partitioned.channel import Channel, Receiver, Sender
from onesided.collectives.partitioned.handshake import (
    BY_WINDOW,
    NOWHERE,
    ON_NODE,
    Parameters,
    borrow,
)
from onesided.collectives.partitioned.messages import KEPT, NotesIn, NotesOut
from onesided.collectives.partitioned.shared import BoardReceive, BoardSend


class CreditedSend(Sender):
    """What leaves is told by notes, one after the other, once it is there; here nothing has to
    move, because the message has no bytes."""

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel)
        self._notes = NotesOut(channel)
        self._credit = channel.persistent_receive(np.zeros(0, np.uint8), channel.receiver.base)
        self._put: list[tuple[int, int]] = []  # runs that are under way
        self._there: list[tuple[int, int]] = []  # runs that no note has told of

    def begin(self) -> None:
        self._credit.Start()

    def may_leave(self) -> bool:
        return self._credit.Test()

    def leave(self, first: int, stop: int) -> None:
        self._put.append((first, stop))

    def push(self) -> None:
        if self._put:
            self.settle()
            self._there += self._put
            self._put.clear()
        while self._there and self._notes.free():
            self._notes.send(*self._there.pop(0))

    def owes(self) -> bool:
        return bool(self._put or self._there)

    def settle(self) -> None:
        """What has left is complete at the target."""

    def idle(self) -> bool:
        return not self.owes() and self._credit.Test() and self._notes.free()


class RemoteSend(CreditedSend):
    """Puts through the window of the receive buffer."""

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel)
        region = _window_of(channel)
        if region.wide is None:
            raise ResourceError("the receive buffer has no window for ranks of other nodes")
        self._window, self._target = region.wide, channel.receiver.reach.segment
        self._puts: dict[tuple[int, int], list[tuple[Any, Any]]] = {}  # by run

    def leave(self, first: int, stop: int) -> None:
        puts = self._puts.get((first, stop)) or self._prepare(first, stop)
        for origin, target in puts:
            self._window.Put(origin, self._target, target)
        super().leave(first, stop)

    def _prepare(self, first: int, stop: int) -> list[tuple[Any, Any]]:
        """The same runs come back where partitions are marked in the same way in every round."""
        if len(self._puts) >= KEPT:
            self._puts.clear()
        start = self.channel.receiver.reach.offset + self.channel.grouping.span(first, stop)[0]
        puts = [
            ([piece, MPI.BYTE], [start + number * LARGEST_PIECE, piece.size, MPI.BYTE])
            for number, piece in enumerate(self.channel.pieces(first, stop))
        ]
        self._puts[first, stop] = puts
        return puts

    def settle(self) -> None:
        self._window.Flush(self._target)


class CreditedReceive(Receiver):
    """Grants a round, and reads notes."""

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel)
        self._notes = NotesIn(channel)
        self._credit = channel.persistent_send(np.zeros(0, np.uint8), channel.receiver.base)

    def begin(self) -> None:
        self.arrivals.reset()
        self._notes.begin()
        self._credit.Start()

    def advance(self) -> bool:
        while (run := self._notes.next()) is not None:
            self.look()
            self.arrivals.add(*run)
        return not self.arrivals.missing and self._credit.Test()

    def look(self) -> None:
        """Make visible what has been Put."""


class RemoteReceive(CreditedReceive):
    """Data come through the window of the receive buffer."""

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel)
        region = _window_of(channel)
        self._windows = [window for window in (region.window, region.wide) if window is not None]

    def begin(self) -> None:
        self.look()
        super().begin()

    def look(self) -> None:
        for window in self._windows:
            window.Sync()


def _window_of(channel: Channel) -> Region:
    """Local. The region of the receive buffer, which cannot be freed before the request."""
    region = wide_region(channel.receiver.reach.key)
    if region is None:
        raise ResourceError("the memory of the receive buffer has been given back")
    channel.on_release(borrow(region))
    return region


# -- which of them --------------------------------------------------------------------------------

#: How the sender sees the receive buffer: the two ends. Where it sees none there are no bytes.
ENDS: dict[int, tuple[type[Sender], type[Receiver]]] = {
    ON_NODE: (BoardSend, BoardReceive),
    BY_WINDOW: (RemoteSend, RemoteReceive),
    NOWHERE: (CreditedSend, CreditedReceive),
}


class RmaSend(Sender):
    """The sending end, by where the receive buffer is."""

    @classmethod
    def of(cls, channel: Channel) -> Sender:
        return ENDS[channel.receiver.reach.visible][0](channel)

    @classmethod
    def obstacle(cls, sender: Parameters, receiver: Parameters) -> str:
        if receiver.reach.visible != NOWHERE or not receiver.nbytes:
            return ""
        return (
            "the receive buffer is not in memory from empty() that the sender can reach, or all "
            "links of it are in use"
        )

    @classmethod
    def recommended(cls, sender: Parameters, receiver: Parameters) -> bool:
        return receiver.reach.visible == ON_NODE


class RmaReceive(Receiver):
    """The receiving end, by where the receive buffer is."""

    @classmethod
    def of(cls, channel: Channel) -> Receiver:
        return ENDS[channel.receiver.reach.visible][1](channel)
