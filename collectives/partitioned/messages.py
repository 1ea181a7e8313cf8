"""Groups as messages: one for each, or one for all that gathered meanwhile.

``p2p`` has a persistent message per group, started by the mark that completes it. ``p2p-gather``
has one message under way at a time: meanwhile groups gather, and those beside each other leave as
one. The length of such a message is decided when it leaves, so a note goes before it, and the
receiver posts the receive when it has read the note (section 2.1 of the paper on partitioned
aggregation).
"""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from onesided.collectives.partitioned.channel import End, Receiver, Sender
from onesided.collectives.partitioned.handshake import Parameters, most_groups

#: Runs of groups whose messages are kept. Where partitions are marked in the same way in every
#: round the same runs come back, and starting a message is cheaper than making one.
KEPT = 256

#: Bytes that every MPI takes from a sender without the help of the receiver, another rank.
EAGER = 1024


class _Groups(End):
    """The messages of all groups, each under a tag of its own, ``per`` of them for a group."""

    def open(self) -> None:
        groups = [self.messages(group, group + 1, group) for group in range(self.grouping.groups)]
        self._messages, self._per = [each for group in groups for each in group], len(groups[0])


class GroupSend(_Groups, Sender):
    """Complete groups leave at once, each as messages of its own."""

    @classmethod
    def obstacle(cls, sender: Parameters, receiver: Parameters) -> str:
        groups = sender.grouping.groups
        if groups <= most_groups():
            return ""
        return f"there are tags for {most_groups()} groups in this MPI, not for {groups}"

    def leave(self, first: int, stop: int) -> None:
        MPI.Prequest.Startall(self._messages[first * self._per : stop * self._per])

    def idle(self) -> bool:
        return MPI.Prequest.Testall(self._messages)


class GroupReceive(_Groups, Receiver):
    """All receives are posted at ``Start``."""

    def begin(self) -> None:
        self.expect()
        MPI.Prequest.Startall(self._messages)

    def advance(self) -> bool:
        if MPI.Prequest.Testall(self._messages):
            self.fill()
        elif self.asked:
            for group in range(self.grouping.groups):
                self.arrived(group, group + 1)
        return self._missing == 0

    def arrived(self, first: int, stop: int) -> bool:
        for group in range(first, stop):
            if not self.have_come(group, group + 1):
                messages = self._messages[group * self._per : (group + 1) * self._per]
                if not MPI.Prequest.Testall(messages):
                    return False
                self.add(group, group + 1)
        return True


class _Noted(End):
    """The note, which tells of a run of groups, and the runs, all under one tag: persistent
    messages, made when they are first wanted."""

    def open(self) -> None:
        self._words = np.zeros(2, np.int64)
        self._note = self.message(self._words)
        self._kept: dict[tuple[int, int], list[MPI.Prequest]] = {}

    def _start(self, first: int, stop: int) -> list[MPI.Prequest]:
        """Local. Start the messages of the groups ``first`` to ``stop - 1``."""
        messages = self._kept.get((first, stop))
        if messages is None:
            if len(self._kept) >= KEPT:
                self._drop()
            messages = self._kept[first, stop] = self.messages(first, stop)
        MPI.Prequest.Startall(messages)
        return messages

    def _drop(self) -> None:
        """Free the oldest messages that are complete; the others stay."""
        for run, messages in list(self._kept.items())[: KEPT // 2]:
            if MPI.Prequest.Testall(messages):
                del self._kept[run]
                self.drop(messages)


class GatherSend(_Noted, Sender):
    """One note and one run at a time."""

    def open(self) -> None:
        super().open()
        self._data: list[MPI.Prequest] = []

    def may_leave(self) -> bool:
        if self._data:
            if not MPI.Prequest.Testall(self._data):
                return False
            self._data = []
        return self._note.Test()

    def leave(self, first: int, stop: int) -> None:
        self._words[0], self._words[1] = first, stop
        self._note.Start()
        self._data = self._start(first, stop)

    def idle(self) -> bool:
        return self.may_leave()


class GatherReceive(_Noted, Receiver):
    """Receives are posted as notes come: as many notes as it takes to tell of every group once."""

    def open(self) -> None:
        super().open()
        self._awaited = 0  # groups that no note of this round has told of
        self._coming: list[tuple[int, int, list[MPI.Prequest]]] = []
        self._holds_up = self.peer == self.comm.rank or self.grouping.nbytes > EAGER

    def begin(self) -> None:
        self.expect()
        self._awaited = self.grouping.groups
        self._note.Start()

    def advance(self) -> bool:
        while self._awaited and self._note.Test():
            first, stop = int(self._words[0]), int(self._words[1])
            self._coming.append((first, stop, self._start(first, stop)))
            self._awaited -= stop - first
            if self._awaited:
                self._note.Start()  # after the receives of what this one told of
        if self._coming:
            self._coming = [entry for entry in self._coming if not self._has_come(*entry)]
        return not self._coming and not self._awaited

    def owes(self) -> bool:
        return self._holds_up and self._awaited > 0

    def _has_come(self, first: int, stop: int, receives: list[MPI.Prequest]) -> bool:
        if not MPI.Prequest.Testall(receives):
            return False
        self.add(first, stop)
        return True
