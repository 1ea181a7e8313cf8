"""What ranks tell each other at the end: that they close together, or that one has failed.

Notices are short messages, not one-sided operations: they leave without the help of a rank that
may be gone. Looking for them is also what drives MPI: a probe moves one-sided operations of other
ranks in MPICH and Open MPI, an atomic operation on this rank's own memory only in MPICH.
"""

from __future__ import annotations

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

CLOSING, FAILED = 1, 2
TAG = 1
LENGTH = 512  # bytes of a notice: its kind, then words

#: Probes of one look. MPICH moves a piece of a long Put at each.
PROBES = 8


class Notices:
    """The notices of a runtime: what this rank has told, and what the others have."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        self._comm = comm
        self._others = [rank for rank in range(comm.size) if rank != comm.rank]
        self._sends: list[MPI.Request] = []
        self._status = MPI.Status()
        self._told: list[int] = []  # kinds, in the order in which they were told
        self._taken = [0] * comm.size
        self.first: dict[int, int] = {}  # by rank: the kind of its first notice
        self.failed: dict[int, str] = {}  # by rank: the words of its failure

    def tell(self, kind: int, words: str = "") -> None:
        """Local. Send a notice to all other ranks; a second one of its kind is not sent."""
        if kind in self._told:
            return
        self._told.append(kind)
        notice = np.zeros(LENGTH, np.uint8)
        text = words.encode()[: LENGTH - 1]
        notice[0] = kind
        notice[1 : 1 + len(text)] = np.frombuffer(text, np.uint8)
        self._sends += [self._comm.Isend(notice, rank, TAG) for rank in self._others]

    def listen(self) -> bool:
        """Local. Drive MPI, and take what has come; true where something has."""
        probe, status = self._comm.Iprobe, self._status
        come = False
        for _ in range(PROBES):
            if probe(MPI.ANY_SOURCE, TAG, status):
                self._take(status.source)
                come = True
        return come

    def _take(self, source: int) -> None:
        notice: NDArray[np.uint8] = np.zeros(LENGTH, np.uint8)
        self._comm.Recv(notice, source, TAG)
        self._taken[source] += 1
        kind = int(notice[0])
        self.first.setdefault(source, kind)
        if kind == FAILED:
            self.failed[source] = bytes(notice[1:]).rstrip(b"\0").decode(errors="replace")

    def all_in(self) -> bool:
        """Local. True where every other rank has told something."""
        return len(self.first) == len(self._others)

    def all_closing(self) -> bool:
        """Local. True where every rank, this one too, told first that it closes.

        First notices are never taken back, so that all ranks find the same.
        """
        mine = self._told[:1] == [CLOSING]
        return mine and self.all_in() and FAILED not in self.first.values()

    def complete(self) -> None:
        """Collective, at the end. Take what is still on its way.

        MPICH gives a message that nobody took to the next communicator with the same number.
        """
        told: list[int] = self._comm.allgather(len(self._told))
        while any(self._taken[rank] < told[rank] for rank in self._others):
            self.listen()
        MPI.Request.Waitall(self._sends)
        self._sends.clear()
