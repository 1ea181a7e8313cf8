"""Groups are stored into the receiver's memory on the node, then a note tells of them.

The receive buffer comes from :func:`~onesided.collectives.empty`, so that the sender can see it
without any collective call. The receiver grants a round by an empty message, its *credit*; groups
that are ready earlier gather. ``Win.Sync`` on both sides orders the stores and the note.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onesided.collectives.copies import as_bytes
from onesided.collectives.errors import ResourceError
from onesided.collectives.memory import Region, region_with_key
from onesided.collectives.partitioned.letter import Letter
from onesided.collectives.partitioned.link import (
    Inbound,
    Link,
    Outbound,
    persistent_receive,
    persistent_send,
)
from onesided.collectives.partitioned.notes import NotesIn, NotesOut


class Send(Outbound):
    """One store per run of groups, by the thread that may call MPI."""

    def __init__(self, link: Link) -> None:
        super().__init__(link)
        region = _borrowed(link)
        theirs = region.part(link.receiver.segment)
        offset = link.receiver.offset
        self._target = as_bytes(theirs[offset : offset + link.grouping.nbytes])
        self._source = as_bytes(link.memory)
        link.on_release(self._forget)
        self._sync: Callable[[], None] = region.window.Sync
        self._notes = NotesOut(link)
        self._credit = persistent_receive(link, np.zeros(0, np.uint8), link.receiver.base)

    @classmethod
    def obstacle(cls, sender: Letter, receiver: Letter) -> str:
        if receiver.visible:
            return ""
        return "the receive buffer is not in memory from empty() that both ranks of a node share"

    def begin(self) -> None:
        self._credit.Start()

    def may_leave(self) -> bool:
        return self._credit.Test() and self._notes.free()

    def leave(self, first: int, stop: int) -> None:
        start, end = self.link.grouping.span(first, stop)
        self._target[start:end] = self._source[start:end]
        self._sync()
        self._notes.send(first, stop)

    def idle(self) -> bool:
        return self._credit.Test() and self._notes.free()

    def _forget(self) -> None:
        self._target = self._source = memoryview(b"")


class Receive(Inbound):
    """Grants a round, and reads notes."""

    def __init__(self, link: Link) -> None:
        super().__init__(link)
        self._sync: Callable[[], None] = _borrowed(link).window.Sync
        self._notes = NotesIn(link)
        self._credit = persistent_send(link, np.zeros(0, np.uint8), link.receiver.base)
        self._come = np.zeros(link.grouping.groups, np.bool_)

    def begin(self) -> None:
        self._come[:] = False
        self._sync()
        self._notes.begin()
        self._credit.Start()

    def advance(self) -> bool:
        while (run := self._notes.next()) is not None:
            self._sync()
            self._come[run[0] : run[1]] = True
        return not self._notes.awaited and self._credit.Test()

    def arrived(self, first: int, stop: int) -> bool:
        if not self._come[first:stop].all():
            self.advance()
        return bool(self._come[first:stop].all())


def _borrowed(link: Link) -> Region:
    """Local. The region of the receive buffer, which cannot be freed before the request."""
    region = region_with_key(link.receiver.key)
    if region is None:
        raise ResourceError("the memory of the receive buffer has been given back")
    region.users += 1

    def give_back() -> None:
        region.users -= 1

    link.on_release(give_back)
    return region
