"""How the two sides of a partitioned send find each other without a collective call.

Initialization is local, so there may be no communicator of our own: one that ranks make together
is made by all of them. The messages go over the caller's communicator, under the upper half of its
tags, which mpi4py's and anybody's programs hardly use; a program that receives with ``ANY_TAG``
there gives a duplicate of it, so that it does not take what is not for it.

Each side posts a letter with its parameters, nonblocking. Letters of one pair, direction and tag
are matched in the order of initialization (MPI-4.1 section 4.2). A seat is a place in that order;
it stays taken when its request is freed before the letter has come.
"""

from __future__ import annotations

import threading
from collections import defaultdict

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.errors import OnesidedError, ResourceError, UnsupportedError
from onesided.collectives.partitioned.letter import LENGTH, RECEIVER, SENDER, Letter

#: Peer, side of the peer, and tag of the caller.
Line = tuple[int, int, int]


class Mailbox:
    """The letters, and the message tags in use, of one communicator on this rank."""

    _keyval = MPI.KEYVAL_INVALID

    def __init__(self, comm: MPI.Intracomm) -> None:
        self.comm = comm
        bound = comm.Get_attr(MPI.TAG_UB)
        top = bound if isinstance(bound, int) else 32767
        self._letter_tag, self._quiet_tag = top, top - 1
        self._lowest, self._highest = top // 2, top - 2
        self._next = self._lowest
        self._blocks: dict[int, int] = {}  # tags in use: the first, and how many
        self._lock = threading.Lock()
        self._seats: defaultdict[Line, int] = defaultdict(int)
        self._come: defaultdict[Line, int] = defaultdict(int)
        self._letters: dict[tuple[Line, int], Letter] = {}
        self._left: set[tuple[Line, int]] = set()
        self._posted: list[tuple[MPI.Request, NDArray[np.uint64]]] = []
        self._buffer = np.zeros(LENGTH, np.uint64)
        self._status = MPI.Status()

    @classmethod
    def of(cls, comm: MPI.Comm) -> Mailbox:
        """Local. The mailbox of a communicator."""
        if not MPI.Is_initialized() or MPI.Is_finalized():
            raise OnesidedError("MPI is not initialized, or has been finalized")
        if not isinstance(comm, MPI.Comm) or comm == MPI.COMM_NULL:
            raise OnesidedError("the communicator is null or has been freed")
        if comm.Is_inter() or not isinstance(comm, MPI.Intracomm):
            raise UnsupportedError("partitioned sends need an intracommunicator")
        if cls._keyval == MPI.KEYVAL_INVALID:
            cls._keyval = MPI.Comm.Create_keyval()
        mailbox = comm.Get_attr(cls._keyval)
        if mailbox is None:
            mailbox = cls(comm)
            comm.Set_attr(cls._keyval, mailbox)
        if not isinstance(mailbox, Mailbox):
            raise OnesidedError("the communicator carries a foreign attribute")
        return mailbox

    def post(self, letter: Letter, peer: int) -> tuple[Line, int]:
        """Local. Send a letter; returns the seat at which the peer's answer arrives."""
        words = letter.packed()
        with self._lock:
            self._posted = [entry for entry in self._posted if not entry[0].Test()]
            request = self.comm.Isend([words, MPI.UINT64_T], peer, self._letter_tag)
            self._posted.append((request, words))
            line = (peer, RECEIVER if letter.side == SENDER else SENDER, letter.tag)
            seat = (line, self._seats[line])
            self._seats[line] += 1
        return seat

    def take(self, seat: tuple[Line, int]) -> Letter | None:
        """Local. The letter for a seat, where it has come."""
        with self._lock:
            while self.comm.Iprobe(MPI.ANY_SOURCE, self._letter_tag, self._status):
                peer = self._status.source
                self.comm.Recv([self._buffer, MPI.UINT64_T], peer, self._letter_tag)
                letter = Letter.unpacked(self._buffer)
                line = (peer, letter.side, letter.tag)
                place = (line, self._come[line])
                self._come[line] += 1
                if place in self._left:
                    self._left.remove(place)
                else:
                    self._letters[place] = letter
            return self._letters.pop(seat, None)

    def leave(self, seat: tuple[Line, int]) -> None:
        """Local. Nobody will take the letter of this seat."""
        with self._lock:
            if self._letters.pop(seat, None) is None:
                self._left.add(seat)

    def take_tags(self, count: int) -> int:
        """Local. The first of ``count`` tags that no other request of this rank sends with."""
        with self._lock:
            if count > self._highest - self._lowest:
                raise ResourceError(f"{count} message tags are wanted, this MPI has fewer")
            first, rounds = self._next, 0
            while True:
                if first + count > self._highest:
                    first, rounds = self._lowest, rounds + 1
                    if rounds > 1:
                        raise ResourceError(f"no {count} message tags in a row are free")
                end = first + count
                hits = [b + n for b, n in self._blocks.items() if b < end and first < b + n]
                if not hits:
                    break
                first = max(hits)
            self._blocks[first], self._next = count, end
            return first

    def give_tags(self, first: int) -> None:
        """Local. The tags from :meth:`take_tags` are free."""
        with self._lock:
            self._blocks.pop(first, None)

    def probe(self, source: int, tag: int) -> bool:
        """Local. Drive MPI on this communicator; finds nothing."""
        return self.comm.Iprobe(source, self._quiet_tag)
