"""Groups as messages: one for each, or one for all that gathered meanwhile.

``p2p`` has a persistent message per group, started by the mark that completes it. ``p2p-gather``
has one message under way at a time: meanwhile groups gather, and those beside each other leave as
one. The length of such a message is decided when it leaves, so a note goes before it, and the
receiver posts the receive when it has read the note (section 2.1 of the paper on partitioned
aggregation).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from mpi4py import MPI

from onesided.collectives.partitioned.channel import Channel, Receiver, Sender
from onesided.collectives.partitioned.counter import Grouping
from onesided.collectives.pattern import LARGEST_PIECE

#: Runs of groups whose messages are kept. Where partitions are marked in the same way in every
#: round the same runs come back, and starting a message is cheaper than making one.
KEPT = 256

#: Bytes that every MPI takes from a sender without the help of the receiver, another rank.
EAGER = 1024


def tags_wanted(grouping: Grouping) -> int:
    """Local. Tags of one sender: one per message, and two for notes and what follows them."""
    return grouping.groups * _pieces(grouping.size) + 2


def _pieces(size: int) -> int:
    """Messages per group."""
    return max(-(-size // LARGEST_PIECE), 1)


# -- a message per group --------------------------------------------------------------------------


class GroupSend(Sender):
    """Complete groups leave at once, each as messages of its own."""

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel)
        self._per = _pieces(channel.grouping.size)
        self._messages = [
            channel.persistent_send(piece, channel.sender.base + group * self._per + number)
            for group in range(channel.grouping.groups)
            for number, piece in enumerate(channel.pieces(group, group + 1))
        ]

    def leave(self, first: int, stop: int) -> None:
        MPI.Prequest.Startall(self._messages[first * self._per : stop * self._per])

    def idle(self) -> bool:
        return MPI.Prequest.Testall(self._messages)


class GroupReceive(Receiver):
    """All receives are posted at ``Start``."""

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel)
        self._per = _pieces(channel.grouping.size)
        self._messages = [
            channel.persistent_receive(piece, channel.sender.base + group * self._per + number)
            for group in range(channel.grouping.groups)
            for number, piece in enumerate(channel.pieces(group, group + 1))
        ]

    def begin(self) -> None:
        self.arrivals.reset()
        MPI.Prequest.Startall(self._messages)

    def advance(self) -> bool:
        return MPI.Prequest.Testall(self._messages)

    def arrived(self, first: int, stop: int) -> bool:
        for group in range(first, stop):
            if not self.arrivals.all(group, group + 1):
                messages = self._messages[group * self._per : (group + 1) * self._per]
                if not MPI.Prequest.Testall(messages):
                    return False
                self.arrivals.add(group, group + 1)
        return True


# -- notes ----------------------------------------------------------------------------------------


class NotesOut:
    """Small messages that tell which groups come, one after the other: the sender's side."""

    def __init__(self, channel: Channel) -> None:
        self._words = np.zeros(2, np.int64)
        self._message = channel.persistent_send(self._words, channel.sender.base)

    def free(self) -> bool:
        """Whether the last note has gone."""
        return self._message.Test()

    def send(self, first: int, stop: int) -> None:
        """The groups ``first`` to ``stop - 1`` come, or have come."""
        self._words[0], self._words[1] = first, stop
        self._message.Start()


class NotesIn:
    """The receiver's side: as many notes as it takes to announce every group once."""

    def __init__(self, channel: Channel) -> None:
        self._words = np.zeros(2, np.int64)
        self._message = channel.persistent_receive(self._words, channel.sender.base)
        self._groups = channel.grouping.groups
        self.awaited = 0  # groups that no note of this round has told of

    def begin(self) -> None:
        """A round begins."""
        self.awaited = self._groups
        self._message.Start()

    def next(self) -> tuple[int, int] | None:
        """The groups of the next note, where one has come."""
        if not self.awaited or not self._message.Test():
            return None
        first, stop = int(self._words[0]), int(self._words[1])
        self.awaited -= stop - first
        if self.awaited:
            self._message.Start()
        return first, stop


# -- messages of what gathered --------------------------------------------------------------------


class _Runs:
    """The persistent messages of runs of groups, by the first group and the one after the last,
    made when they are first wanted."""

    def __init__(self, channel: Channel, make: Callable[..., MPI.Prequest]) -> None:
        """``make``: ``Send_init`` or ``Recv_init`` of the communicator."""
        self._channel, self._make = channel, make
        self._kept: dict[tuple[int, int], list[MPI.Prequest]] = {}
        channel.on_release(self._free)

    def start(self, first: int, stop: int) -> list[MPI.Prequest]:
        """Local. Start the messages of the groups ``first`` to ``stop - 1``."""
        messages = self._kept.get((first, stop))
        if messages is None:
            if len(self._kept) >= KEPT:
                self._drop()
            channel, tag = self._channel, self._channel.sender.base + 1
            messages = [
                self._make([piece, MPI.BYTE], channel.peer, tag)
                for piece in channel.pieces(first, stop)
            ]
            self._kept[first, stop] = messages
        MPI.Prequest.Startall(messages)
        return messages

    def _drop(self) -> None:
        """Free the oldest messages that are complete; the others stay."""
        for run, messages in list(self._kept.items())[: KEPT // 2]:
            if MPI.Prequest.Testall(messages):
                self._free_run(run)

    def _free_run(self, run: tuple[int, int]) -> None:
        for message in self._kept.pop(run):
            self._channel.drop(message)

    def _free(self) -> None:
        for run in list(self._kept):
            self._free_run(run)


class GatherSend(Sender):
    """One note and its data at a time."""

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel)
        self._notes = NotesOut(channel)
        self._runs = _Runs(channel, channel.comm.Send_init)
        self._data: list[MPI.Prequest] = []

    def may_leave(self) -> bool:
        if self._data:
            if not MPI.Prequest.Testall(self._data):
                return False
            self._data = []
        return self._notes.free()

    def leave(self, first: int, stop: int) -> None:
        self._notes.send(first, stop)
        self._data = self._runs.start(first, stop)

    def idle(self) -> bool:
        return self.may_leave()


class GatherReceive(Receiver):
    """Receives are posted as notes come; the data of one pair cannot overtake each other."""

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel)
        self._notes = NotesIn(channel)
        self._runs = _Runs(channel, channel.comm.Recv_init)
        self._coming: list[tuple[int, int, list[MPI.Prequest]]] = []
        alone = channel.peer == channel.comm.rank
        self._holds_up = alone or channel.grouping.nbytes > EAGER

    def begin(self) -> None:
        self.arrivals.reset()
        self._notes.begin()

    def advance(self) -> bool:
        while (run := self._notes.next()) is not None:
            self._coming.append((*run, self._runs.start(*run)))
        if self._coming:
            self._coming = [entry for entry in self._coming if not self._has_come(*entry)]
        return not self._coming and not self._notes.awaited

    def owes(self) -> bool:
        return self._holds_up and self._notes.awaited > 0

    def _has_come(self, first: int, stop: int, receives: list[MPI.Prequest]) -> bool:
        if not MPI.Prequest.Testall(receives):
            return False
        self.arrivals.add(first, stop)
        return True
