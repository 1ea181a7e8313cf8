"""What ranks tell each other at the end: that they close together, or that one has failed.

Rank 0 decides for all. Whoever is ready to close tells rank 0; whoever fails tells everybody, but
only rank 0 where another failure is the reason, of which all have heard. When every rank has told
something, rank 0 tells everybody the decision: all close if none has told a failure by then. So it
is the same on all ranks, and an end takes two messages for every rank, a failure two more.

Notices are short messages, not one-sided operations: they leave without the help of a rank that
may be gone. Looking for them is also what drives MPI: a probe moves one-sided operations of other
ranks in MPICH and Open MPI, an atomic operation on this rank's own memory only in MPICH.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.context import interrupts_later

#: What a rank tells: that it closes, that it has failed, which counts; and what rank 0 decides.
CLOSING, FAILED, ALL_CLOSE, NOT_ALL = 1, 2, 3, 4
#: The rank that decides.
DECIDES = 0
TAG = 1
LENGTH = 512  # bytes of a notice: its kind, the rank that has failed, then words
RANK, WORDS = slice(1, 9), slice(9, LENGTH)

#: Probes of one look. MPICH moves a piece of a long Put at each.
PROBES = 8


class Notices:
    """The notices of a runtime: what this rank has ``told``, and what it has heard.

    Two threads of a rank may tell something, the main one and the Broadcaster: one after the
    other, so that other ranks hear it in the same order. Only one at a time listens.
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        self._comm = comm
        self._others = [rank for rank in range(comm.size) if rank != comm.rank]
        self._status = MPI.Status()
        self._lock = threading.Lock()  # held by whoever tells, or decides
        self._sends: list[MPI.Request] = []
        self._sent = np.zeros(comm.size, np.int64)  # notices by target
        self._taken = 0
        self._notice: NDArray[np.uint8] = np.zeros(LENGTH, np.uint8)
        self._unread: list[object] = []  # something, while there is one in it
        self.told: list[int] = []  # kinds, in the order in which they were told
        self._heard: set[int] = set()  # where it is decided: the ranks that have told something
        self._decision = 0
        self._ended = False
        self.failed: dict[int, str] = {}  # by rank: the words of its failure

    def tell(self, kind: int, words: str = "") -> None:
        """Local. Tell :data:`CLOSING` or :data:`FAILED`; once more of a kind is not told."""
        rank = self._comm.rank
        with interrupts_later(), self._lock:
            if kind in self.told or self._ended:
                return
            self.told.append(kind)
            if kind == CLOSING:
                if rank != DECIDES:
                    self._send([DECIDES], kind)
            elif rank != DECIDES and self.failed:
                self._send([DECIDES], kind, rank, words)
            elif not self._decision:
                if rank == DECIDES:  # also where MPI fails to send it
                    self._decision = NOT_ALL  # which the others take from the notice
                self._send(self._others, kind, rank, words)

    def _send(self, targets: Iterable[int], kind: int, rank: int = 0, words: str = "") -> None:
        notice = np.zeros(LENGTH, np.uint8)
        notice[0] = kind
        notice[RANK] = np.array([rank], np.int64).view(np.uint8)
        text = np.frombuffer(words.encode(errors="replace")[: LENGTH - WORDS.start], np.uint8)
        notice[WORDS][: text.size] = text
        for target in targets:
            self._sends.append(self._comm.Isend(notice, target, TAG))
            self._sent[target] += 1

    def _decide(self) -> None:
        """On the rank that decides, when all that came is read: tell all what is known of all."""
        if self._comm.rank != DECIDES or len(self._heard) < len(self._others):
            return
        with interrupts_later(), self._lock:
            if self._decision or self._ended:
                return
            # this rank has told no failure: that would have been the decision
            self._decision = NOT_ALL if self.failed else ALL_CLOSE
            self._send(self._others, self._decision, *next(iter(self.failed.items()), ()))

    def listen(self) -> bool:
        """Local. Drive MPI, and take what has come; true where something has."""
        probe, status = self._comm.Iprobe, self._status
        come = there = False
        for _ in range(PROBES):
            there = bool(self._unread) or probe(MPI.ANY_SOURCE, TAG, status)
            if there:
                self._take(status.source)
                come = True
        if self.told and not there and not self._decision:
            self._decide()
        return come

    def _take(self, source: int) -> None:
        """Receive a notice in one call of C, unless one has not been read because of an interrupt:
        that comes before or after, and loses none."""
        notice = self._notice
        if not self._unread:
            self._unread.extend(map(self._comm.Recv, [notice], [source], [TAG]))
        self._read(notice, source)  # as often as it is begun
        self._taken, self._unread = self._taken + 1, []

    def _read(self, notice: NDArray[np.uint8], source: int) -> None:
        kind = int(notice[0])
        with self._lock:
            if kind in (FAILED, NOT_ALL):
                words = bytes(notice[WORDS]).rstrip(b"\0").decode(errors="replace")
                self.failed.setdefault(int(notice[RANK].view(np.int64)[0]), words)
            if self._comm.rank == DECIDES:
                self._heard.add(source)
            elif source == DECIDES and not self._decision:
                self._decision = ALL_CLOSE if kind == ALL_CLOSE else NOT_ALL

    def all_in(self) -> bool:
        """Local. True where every rank has told something, or it is known how it ends."""
        heard = self._comm.rank != DECIDES or len(self._heard) == len(self._others)
        return heard and self._decision != 0

    def all_closing(self) -> bool:
        """Local. True where every rank, this one too, closes.

        A decision is never taken back, and it is the same on all ranks.
        """
        return self._decision == ALL_CLOSE

    def complete(self) -> None:
        """Collective, at the end. Take what is still on its way; nothing is told any more.

        MPICH gives a message that nobody took to the next communicator with the same number.
        """
        with self._lock:
            self._ended = True
        coming = np.zeros(1, np.int64)
        self._comm.Reduce_scatter_block(self._sent, coming)
        while self._taken < coming[0]:
            self.listen()
        MPI.Request.Waitall(self._sends)
        self._sends.clear()
