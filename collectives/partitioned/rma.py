"""Groups go straight into the receiver's memory, on a node.

The receive buffer comes from :func:`~onesided.collectives.empty`. No message is sent: groups are
stored, and entries of a board tell of them. The receiver grants a round by its number on the board,
the *credit*; groups that are ready earlier gather. ``Win.Sync`` on both sides orders the data and
the words that tell of them. The compiled counter does the sender's part without a call of Python.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
from mpi4py import MPI

from onesided.collectives.errors import ResourceError
from onesided.collectives.memory import BOARD, region_with_key
from onesided.collectives.partitioned.channel import End, Receiver, Sender
from onesided.collectives.partitioned.handshake import Parameters
from onesided.collectives.pattern import as_bytes
from onesided.collectives.program import CREDIT, ENTRIES, HEAD, ROOM, TAIL, TOLD, fence

if TYPE_CHECKING:
    from onesided.collectives.partitioned.counter import AnyCounter


class _OnBoard(End):
    """An end that looks at the words of the board, whose region cannot be freed before."""

    def open(self) -> None:
        reach = self.receiver.reach
        region = region_with_key(reach.key)
        if region is None:
            raise ResourceError("the memory of the receive buffer has been given back")
        self._theirs = region.part(reach.segment)
        self._board = self._theirs[reach.board : reach.board + BOARD].view(np.int64).data
        self.on_release(region.borrow())
        #: Of the rounds, the same on both sides; those of two channels are never equal.
        self._credits = (reach.generation << 32 | number & 0xFFFFFFFF
                         for number in itertools.count(1))

    def _forget(self) -> None:
        self._board, self._theirs = memoryview(b""), np.zeros(0, np.uint8)


class RmaSend(_OnBoard, Sender):
    """One store and one entry per run of groups."""

    def open(self) -> None:
        super().open()
        start = self.receiver.reach.offset
        self._target = as_bytes(self._theirs[start : start + self.grouping.nbytes])
        self._source = as_bytes(self.memory)
        self._credit, self._granted = 0, False
        self._head = self._told = 0
        if self.compiled is not None:
            self.compiled.connect(self._target, self._source, self._board)
        self.on_release(self._forget)

    @classmethod
    def obstacle(cls, sender: Parameters, receiver: Parameters) -> str:
        if receiver.reach.key:
            return ""
        return (
            "the receive buffer is not in memory from empty() on the sender's node, or all links "
            "of it are in use"
        )

    def begin(self) -> None:
        self._credit, self._granted = next(self._credits), False
        if self.compiled is not None:
            self.compiled.expect(self._credit)

    def may_leave(self) -> bool:
        if not self._granted:
            if self._board[CREDIT] != self._credit:
                return False
            fence()
            self._granted = True
        return self._head - self._board[TAIL] < ROOM

    def leave(self, first: int, stop: int) -> None:
        start, end = self.grouping.span(first, stop)
        self._target[start:end] = self._source[start:end]
        self._board[ENTRIES + self._head % ROOM] = first << 32 | stop
        fence()
        self._head += 1
        self._board[HEAD] = self._head
        fence()  # who sees the last word sees the one before
        self._told += stop - first
        self._board[TOLD] = self._told

    def drain(self, counter: AnyCounter) -> None:
        if self.compiled is not None:
            self.compiled.drain()
        else:
            super().drain(counter)

    def idle(self) -> bool:
        return self.compiled is None or not self.compiled.copying

    def _forget(self) -> None:
        if self.compiled is not None:
            self.compiled.disconnect()
        self._target = self._source = memoryview(b"")
        super()._forget()


class RmaReceive(_OnBoard, Receiver):
    """Grants a round, and counts the groups that it is told of.

    Entries are read when somebody asks for a part; in every step only where another thread could
    not, or where the board has not room for all of a round.
    """

    def open(self) -> None:
        super().open()
        self._tail = self._all = 0
        self._groups = self.grouping.groups
        self._may_fill = self._groups > ROOM
        self._eager = self._may_fill or MPI.Query_thread() < MPI.THREAD_MULTIPLE
        self.on_release(self._forget)

    def begin(self) -> None:
        self.expect()
        self._all += self._groups
        fence()
        self._board[CREDIT] = next(self._credits)

    def advance(self) -> bool:
        if self._board[TOLD] == self._all:
            fence()
            self.fill()
            self._board[TAIL] = self._tail = self._board[HEAD]
            return True
        if self._eager:
            self._read()
        return False

    def arrived(self, first: int, stop: int) -> bool:
        if not self.have_come(first, stop):
            self._read()
        return self.have_come(first, stop)

    def _read(self) -> None:
        head = self._board[HEAD]
        if head != self._tail:
            fence()
            for number in range(self._tail, head):
                entry = self._board[ENTRIES + number % ROOM]
                self.add(entry >> 32, entry & 0xFFFFFFFF)
            self._board[TAIL] = self._tail = head

    def owes(self) -> bool:
        return self._may_fill and self._missing > 0
