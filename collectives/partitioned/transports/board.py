"""Groups are stored into the receiver's memory on the node, and entries of a board tell of them.

No message is sent. The receiver grants a round by its number on the board, the *credit*; groups
that are ready earlier gather. ``Win.Sync`` on both sides orders the data and the words that tell
of them. The compiled counter does the sender's part without a call of Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from onesided.collectives.boards import CREDIT, ENTRIES, HEAD, ROOM, STEP, TAIL
from onesided.collectives.copies import as_bytes
from onesided.collectives.errors import ResourceError
from onesided.collectives.memory import Region, region_with_key
from onesided.collectives.partitioned.link import Arrivals, Inbound, Link, Outbound

if TYPE_CHECKING:
    from onesided.collectives.partitioned.counter import AnyCounter


class BoardSend(Outbound):
    """One store and one entry per run of groups."""

    def __init__(self, link: Link) -> None:
        super().__init__(link)
        region, self._board = _borrowed(link)
        theirs = region.part(link.receiver.segment)
        offset = link.receiver.offset
        self._target = as_bytes(theirs[offset : offset + link.grouping.nbytes])
        self._source = as_bytes(link.memory)
        self._sync: Callable[[], None] = region.window.Sync
        self._rounds = _Rounds(link)
        self._granted = False
        self._head = 0
        self._compiled = link.compiled
        if self._compiled is not None:
            self._compiled.connect(self._target, self._source, self._board)
        link.on_release(self._forget)

    def begin(self) -> None:
        credit = self._rounds.next()
        self._granted = False
        if self._compiled is not None:
            self._compiled.expect(credit)

    def may_leave(self) -> bool:
        if not self._granted:
            if self._board[CREDIT] != self._rounds.credit:
                return False
            self._sync()
            self._granted = True
        return self._head - self._board[TAIL] < ROOM

    def leave(self, first: int, stop: int) -> None:
        start, end = self.link.grouping.span(first, stop)
        self._target[start:end] = self._source[start:end]
        self._board[ENTRIES + self._head % ROOM] = first << 32 | stop
        self._sync()
        self._head += 1
        self._board[HEAD] = self._head

    def drain(self, counter: AnyCounter) -> None:
        if self._compiled is not None:
            self._compiled.drain()
        else:
            super().drain(counter)

    def idle(self) -> bool:
        return self._compiled is None or not self._compiled.copying

    def _forget(self) -> None:
        if self._compiled is not None:
            self._compiled.disconnect()
        self._target = self._source = self._board = memoryview(b"")


class BoardReceive(Inbound):
    """Grants a round, and reads entries."""

    def __init__(self, link: Link) -> None:
        super().__init__(link)
        region, self._board = _borrowed(link)
        self._sync: Callable[[], None] = region.window.Sync
        self._rounds = _Rounds(link)
        self._tail = 0
        self._arrivals = Arrivals(link.grouping.groups)
        link.on_release(self._forget)

    def begin(self) -> None:
        self._arrivals.reset()
        self._sync()
        self._board[CREDIT] = self._rounds.next()

    def advance(self) -> bool:
        head = self._board[HEAD]
        if head != self._tail:
            self._sync()
            for number in range(self._tail, head):
                entry = self._board[ENTRIES + number % ROOM]
                self._arrivals.add(entry >> 32, entry & 0xFFFFFFFF)
            self._board[TAIL] = self._tail = head
        return not self._arrivals.missing

    def arrived(self, first: int, stop: int) -> bool:
        if self._arrivals.all(first, stop):
            return True
        self.advance()
        return self._arrivals.all(first, stop)

    def _forget(self) -> None:
        self._board = memoryview(b"")


class _Rounds:
    """The credits of a link, the same on both sides; those of two links are never equal."""

    def __init__(self, link: Link) -> None:
        self._generation, self._round, self.credit = link.receiver.generation, 0, 0

    def next(self) -> int:
        self._round = self._round + 1 & 0xFFFFFFFF
        self.credit = self._generation << 32 | self._round
        return self.credit


def _borrowed(link: Link) -> tuple[Region, memoryview]:
    """Local. The region, which cannot be freed before the request, and the words of the board."""
    region = region_with_key(link.receiver.key)
    if region is None:
        raise ResourceError("the memory of the receive buffer has been given back")
    place = link.receiver.board
    words = region.part(link.receiver.segment)[place : place + STEP].view(np.int64)
    region.users += 1

    def give_back() -> None:
        region.users -= 1

    link.on_release(give_back)
    return region, words.data
