"""One persistent message per group, started by the mark that completes it; works everywhere."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from onesided.collectives.copies import LARGEST_PIECE
from onesided.collectives.partitioned.link import (
    Inbound,
    Link,
    Outbound,
    persistent_receive,
    persistent_send,
)


def tags_wanted(groups: int, size: int) -> int:
    """Local. Tags of one sender: one per message, and one more for notes."""
    return groups * _pieces(size) + 2


def _pieces(size: int) -> int:
    """Messages per group."""
    return max(-(-size // LARGEST_PIECE), 1)


class Send(Outbound):
    """Complete groups leave at once, each as messages of its own."""

    def __init__(self, link: Link) -> None:
        super().__init__(link)
        self._per = _pieces(link.grouping.size)
        self._messages = [
            persistent_send(link, piece, link.sender.base + group * self._per + number)
            for group in range(link.grouping.groups)
            for number, piece in enumerate(link.pieces(group, group + 1))
        ]

    def leave(self, first: int, stop: int) -> None:
        MPI.Prequest.Startall(self._messages[first * self._per : stop * self._per])

    def idle(self) -> bool:
        return MPI.Prequest.Testall(self._messages)


class Receive(Inbound):
    """All receives are posted at ``Start``."""

    def __init__(self, link: Link) -> None:
        super().__init__(link)
        self._per = _pieces(link.grouping.size)
        self._messages = [
            persistent_receive(link, piece, link.sender.base + group * self._per + number)
            for group in range(link.grouping.groups)
            for number, piece in enumerate(link.pieces(group, group + 1))
        ]
        self._come = np.zeros(link.grouping.groups, np.bool_)

    def begin(self) -> None:
        self._come[:] = False
        MPI.Prequest.Startall(self._messages)

    def advance(self) -> bool:
        return MPI.Prequest.Testall(self._messages)

    def arrived(self, first: int, stop: int) -> bool:
        for group in range(first, stop):
            if not self._come[group]:
                messages = self._messages[group * self._per : (group + 1) * self._per]
                if not MPI.Prequest.Testall(messages):
                    return False
                self._come[group] = True
        return True
