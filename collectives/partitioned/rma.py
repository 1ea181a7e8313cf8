"""Groups go straight into the receiver's memory: stored on the node, Put off it.

The receive buffer comes from :func:`~onesided.collectives.empty`, so that the sender can reach it
without any collective call.

*On the node* no message is sent: groups are stored, and entries of a board tell of them. The
receiver grants a round by its number on the board, the *credit*; groups that are ready earlier
gather. ``Win.Sync`` on both sides orders the data and the words that tell of them. The compiled
counter does the sender's part without a call of Python.

*Off it* groups are Put through the window that ``empty`` makes for all ranks, and after a flush
notes tell of them. A flush may wait until the target enters MPI, so it is made by ``Test``,
``Wait`` and the progress thread only: marks Put, and wait for nobody. The credit is an empty
message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from onesided.collectives.errors import ResourceError
from onesided.collectives.memory import BOARD, Region, region_with_key, wide_region
from onesided.collectives.partitioned.channel import Channel, Receiver, Sender
from onesided.collectives.partitioned.handshake import (
    BY_WINDOW,
    NOWHERE,
    ON_NODE,
    Parameters,
    borrow,
)
from onesided.collectives.partitioned.messages import KEPT, NotesIn, NotesOut
from onesided.collectives.pattern import LARGEST_PIECE, as_bytes
from onesided.collectives.program import CREDIT, ENTRIES, HEAD, ROOM, TAIL, TOLD

if TYPE_CHECKING:
    from onesided.collectives.partitioned.counter import AnyCounter

# -- on the node ----------------------------------------------------------------------------------


class BoardSend(Sender):
    """One store and one entry per run of groups."""

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel)
        region, self._board = _board_of(channel)
        reach = channel.receiver.reach
        theirs = region.part(reach.segment)
        self._target = as_bytes(theirs[reach.offset : reach.offset + channel.grouping.nbytes])
        self._source = as_bytes(channel.memory)
        self._sync: Callable[[], None] = region.window.Sync
        self._rounds = _Rounds(channel)
        self._granted = False
        self._head = self._told = 0
        self._compiled = channel.compiled
        if self._compiled is not None:
            self._compiled.connect(self._target, self._source, self._board)
        channel.on_release(self._forget)

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
        start, end = self.channel.grouping.span(first, stop)
        self._target[start:end] = self._source[start:end]
        self._board[ENTRIES + self._head % ROOM] = first << 32 | stop
        self._sync()
        self._head += 1
        self._board[HEAD] = self._head
        self._told += stop - first
        self._board[TOLD] = self._told

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


class BoardReceive(Receiver):
    """Grants a round, and counts the groups that it is told of.

    Entries are read when somebody asks for a part; in every step only where another thread could
    not, or where the board has not room for all of a round.
    """

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel)
        region, self._board = _board_of(channel)
        self._sync: Callable[[], None] = region.window.Sync
        self._rounds = _Rounds(channel)
        self._tail = self._all = 0
        self._groups = channel.grouping.groups
        self._may_fill = self._groups > ROOM
        self._eager = self._may_fill or MPI.Query_thread() < MPI.THREAD_MULTIPLE
        channel.on_release(self._forget)

    def begin(self) -> None:
        self.arrivals.reset()
        self._all += self._groups
        self._sync()
        self._board[CREDIT] = self._rounds.next()

    def advance(self) -> bool:
        if self._board[TOLD] == self._all:
            self._sync()
            self.arrivals.fill()
            self._board[TAIL] = self._tail = self._board[HEAD]
            return True
        if self._eager:
            self._read()
        return False

    def arrived(self, first: int, stop: int) -> bool:
        if not self.arrivals.all(first, stop):
            self._read()
        return self.arrivals.all(first, stop)

    def _read(self) -> None:
        head = self._board[HEAD]
        if head != self._tail:
            self._sync()
            for number in range(self._tail, head):
                entry = self._board[ENTRIES + number % ROOM]
                self.arrivals.add(entry >> 32, entry & 0xFFFFFFFF)
            self._board[TAIL] = self._tail = head

    def owes(self) -> bool:
        return self._may_fill and self.arrivals.missing > 0

    def _forget(self) -> None:
        self._board = memoryview(b"")


class _Rounds:
    """The credits of a channel, the same on both sides; those of two channels are never equal."""

    def __init__(self, channel: Channel) -> None:
        self._generation, self._round, self.credit = channel.receiver.reach.generation, 0, 0

    def next(self) -> int:
        self._round = self._round + 1 & 0xFFFFFFFF
        self.credit = self._generation << 32 | self._round
        return self.credit


def _board_of(channel: Channel) -> tuple[Region, memoryview]:
    """Local. The region, which cannot be freed before the request, and the words of the board."""
    reach = channel.receiver.reach
    region = region_with_key(reach.key)
    if region is None:
        raise ResourceError("the memory of the receive buffer has been given back")
    words = region.part(reach.segment)[reach.board : reach.board + BOARD].view(np.int64)
    channel.on_release(borrow(region))
    return region, words.data


# -- off the node ---------------------------------------------------------------------------------


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
