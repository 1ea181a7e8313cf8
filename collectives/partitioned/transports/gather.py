"""While a message is under way, groups gather; then those beside each other leave as one.

The length of a message is decided when it leaves, so a note goes before it, and the receiver
posts the receive when it has read the note (section 2.1 of the paper on partitioned aggregation).
"""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from onesided.collectives.partitioned.link import Inbound, Link, Outbound
from onesided.collectives.partitioned.notes import NotesIn, NotesOut
from onesided.collectives.partitioned.runs import Runs


class Send(Outbound):
    """One note and its data at a time."""

    def __init__(self, link: Link) -> None:
        super().__init__(link)
        self._notes = NotesOut(link)
        self._runs = Runs(link, link.comm.Send_init)
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


class Receive(Inbound):
    """Receives are posted as notes come; the data of one pair cannot overtake each other."""

    def __init__(self, link: Link) -> None:
        super().__init__(link)
        self._notes = NotesIn(link)
        self._runs = Runs(link, link.comm.Recv_init)
        self._come = np.zeros(link.grouping.groups, np.bool_)
        self._coming: list[tuple[int, int, list[MPI.Prequest]]] = []

    def begin(self) -> None:
        self._come[:] = False
        self._notes.begin()

    def advance(self) -> bool:
        while (run := self._notes.next()) is not None:
            self._coming.append((*run, self._runs.start(*run)))
        if self._coming:
            self._coming = [entry for entry in self._coming if not self._has_come(*entry)]
        return not self._coming and not self._notes.awaited

    def _has_come(self, first: int, stop: int, receives: list[MPI.Prequest]) -> bool:
        if not MPI.Prequest.Testall(receives):
            return False
        self._come[first:stop] = True
        return True

    def arrived(self, first: int, stop: int) -> bool:
        if not self._come[first:stop].all():
            self.advance()
        return bool(self._come[first:stop].all())
