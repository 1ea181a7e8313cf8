"""Groups are Put into memory of another node, and notes tell of them after a flush.

The window is the one that :func:`~onesided.collectives.empty` makes for all ranks. A flush may
wait until the target enters MPI, so it is made in ``Test`` and ``Wait`` only: marks Put, and wait
for nobody. The receiver grants a round by an empty message, its *credit*.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from onesided.collectives.copies import LARGEST_PIECE
from onesided.collectives.errors import ResourceError
from onesided.collectives.memory import Region, wide_region
from onesided.collectives.partitioned.link import (
    Arrivals,
    Inbound,
    Link,
    Outbound,
    persistent_receive,
    persistent_send,
)
from onesided.collectives.partitioned.notes import NotesIn, NotesOut
from onesided.collectives.partitioned.runs import KEPT


class CreditedSend(Outbound):
    """What leaves is told by notes, one after the other, once it is there; here nothing has to
    move, because the message has no bytes."""

    def __init__(self, link: Link) -> None:
        super().__init__(link)
        self._notes = NotesOut(link)
        self._credit = persistent_receive(link, np.zeros(0, np.uint8), link.receiver.base)
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

    def settle(self) -> None:
        """What has left is complete at the target."""

    def idle(self) -> bool:
        return not self._put and not self._there and self._credit.Test() and self._notes.free()


class RemoteSend(CreditedSend):
    """Puts through the window of the receive buffer."""

    def __init__(self, link: Link) -> None:
        super().__init__(link)
        region = _borrowed(link)
        if region.wide is None:
            raise ResourceError("the receive buffer has no window for ranks of other nodes")
        self._window, self._target = region.wide, link.receiver.segment
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
        start = self.link.receiver.offset + self.link.grouping.span(first, stop)[0]
        puts = [
            ([piece, MPI.BYTE], [start + number * LARGEST_PIECE, piece.size, MPI.BYTE])
            for number, piece in enumerate(self.link.pieces(first, stop))
        ]
        self._puts[first, stop] = puts
        return puts

    def settle(self) -> None:
        self._window.Flush(self._target)


class CreditedReceive(Inbound):
    """Grants a round, and reads notes."""

    def __init__(self, link: Link) -> None:
        super().__init__(link)
        self._notes = NotesIn(link)
        self._credit = persistent_send(link, np.zeros(0, np.uint8), link.receiver.base)
        self._arrivals = Arrivals(link.grouping.groups)

    def begin(self) -> None:
        self._arrivals.reset()
        self._notes.begin()
        self._credit.Start()

    def advance(self) -> bool:
        while (run := self._notes.next()) is not None:
            self.look()
            self._arrivals.add(*run)
        return not self._arrivals.missing and self._credit.Test()

    def look(self) -> None:
        """Make visible what has been Put."""

    def arrived(self, first: int, stop: int) -> bool:
        if not self._arrivals.all(first, stop):
            self.advance()
        return self._arrivals.all(first, stop)


class RemoteReceive(CreditedReceive):
    """Data come through the window of the receive buffer."""

    def __init__(self, link: Link) -> None:
        super().__init__(link)
        region = _borrowed(link)
        self._windows = [window for window in (region.window, region.wide) if window is not None]

    def begin(self) -> None:
        self.look()
        super().begin()

    def look(self) -> None:
        for window in self._windows:
            window.Sync()


def _borrowed(link: Link) -> Region:
    """Local. The region of the receive buffer, which cannot be freed before the request."""
    region = wide_region(link.receiver.key)
    if region is None:
        raise ResourceError("the memory of the receive buffer has been given back")
    region.users += 1

    def give_back() -> None:
        region.users -= 1

    link.on_release(give_back)
    return region
