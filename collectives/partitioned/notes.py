"""Small messages that tell which groups come, one after the other."""

from __future__ import annotations

import numpy as np

from onesided.collectives.partitioned.link import Link, persistent_receive, persistent_send


def note_tag(link: Link) -> int:
    """Local. The tag of the notes: the sender's first one."""
    return link.sender.base


def data_tag(link: Link) -> int:
    """Local. The tag of the data that follow a note."""
    return link.sender.base + 1


class NotesOut:
    """The sender's side: one note at a time."""

    def __init__(self, link: Link) -> None:
        self._words = np.zeros(2, np.int64)
        self._message = persistent_send(link, self._words, note_tag(link))

    def free(self) -> bool:
        """Whether the last note has gone."""
        return self._message.Test()

    def send(self, first: int, stop: int) -> None:
        """The groups ``first`` to ``stop - 1`` come, or have come."""
        self._words[0], self._words[1] = first, stop
        self._message.Start()


class NotesIn:
    """The receiver's side: as many notes as it takes to announce every group once."""

    def __init__(self, link: Link) -> None:
        self._words = np.zeros(2, np.int64)
        self._message = persistent_receive(link, self._words, note_tag(link))
        self._groups = link.grouping.groups
        self.awaited = 0  # groups that no note of this round has told of

    def begin(self) -> None:
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
