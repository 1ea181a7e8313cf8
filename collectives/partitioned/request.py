"""What both sides of a partitioned send have in common: a life, and finding the other side.

    inactive --Start()--> active --Wait(), or Test() that returns True--> inactive --Free()--> freed

Everything is local. Initialization posts the parameters (:mod:`.mailbox`); ``Start``, ``Wait`` and
``Test`` look for those of the peer and make the link when they have come. Where the two sides do
not fit each other both raise the same error, each in the first of these calls that sees it; the
request is inactive then, and can only be freed.

*Threads.* A lock of the request guards all that it holds, so any thread may mark and ask. MPI is
called by the thread at hand under ``MPI_THREAD_MULTIPLE``, and by MPI's main thread only under a
lower level: marks of other threads only count then, and what they complete leaves in the next
``Pready``, ``Test`` or ``Wait`` of the main thread. No lock is held while a thread waits.
"""

from __future__ import annotations

import os
import threading
import warnings
from typing import Any

import numpy as np
from mpi4py import MPI

from onesided.collectives import debug, progress
from onesided.collectives.errors import PatternError, RequestError
from onesided.collectives.handle import ACTIVE, FREED, INACTIVE
from onesided.collectives.partitioned.arguments import Arguments
from onesided.collectives.partitioned.letter import SENDER, Letter
from onesided.collectives.partitioned.link import Link
from onesided.collectives.partitioned.mailbox import Mailbox
from onesided.collectives.partitioned.registry import PartitionedMethod, chosen
from onesided.collectives.scope import Scoped


class PartitionedRequest(Scoped):
    """One side of a partitioned send; made by ``Psend_init`` and ``Precv_init``."""

    #: Partitioned requests have no place among those that are completed in order.
    turn = (0, 0)

    def __init__(self, arguments: Arguments, mailbox: Mailbox, letter: Letter) -> None:
        self.arguments, self.mailbox, self.letter = arguments, mailbox, letter
        self.method = arguments.method  # as asked for; the transport taken, once it is known
        self.probe = mailbox.probe
        self._state = INACTIVE
        self._rounds = 0
        self._lock = threading.Lock()
        self._link: Link | None = None
        self._error: Exception | None = None
        self._everywhere = MPI.Query_thread() == MPI.THREAD_MULTIPLE
        self._watched = debug.observe(self)
        self._seat = None if arguments.nowhere else mailbox.post(letter, arguments.peer)

    # -- what a side implements ------------------------------------------------------------------

    def connect(self, method: PartitionedMethod | None, link: Link) -> None:
        """Local. Make this side's end; without a method, one that leads nowhere."""
        raise RequestError(f"{type(self).__name__} cannot be connected")

    def reset(self) -> None:
        """Local. A round begins, linked or not."""

    def begin(self) -> None:
        """Local. The round begins at the end that has been made."""

    def advance(self) -> bool:
        """Local. Do what can be done now; true when the round is complete on this side."""
        return True

    def stop(self) -> None:
        """Local. The round has ended, and will never be complete."""

    def complete(self) -> None:
        """Local. The round is complete."""

    def waiting_for(self) -> str:
        """Local. What an active request lacks, in words, for the watchdog."""
        return ""

    def check_hope(self) -> None:
        """Local. Raise where waiting is in vain."""

    # -- what can be asked -----------------------------------------------------------------------

    @property
    def state(self) -> str:
        """Local. ``"inactive"``, ``"active"`` or ``"freed"``."""
        return self._state

    @property
    def active(self) -> bool:
        """Local. True between ``Start`` and completion."""
        return self._state is ACTIVE

    @property
    def filling(self) -> bool:
        """Local. True while it would be in vain to complete the round on the way out."""
        return self._error is not None

    @property
    def partitions(self) -> int:
        """Local. The partitions of this side."""
        return self.arguments.partitions

    def __repr__(self) -> str:
        side = "send to" if self.letter.side == SENDER else "receive from"
        return (
            f"<{self.method} partitioned {side} rank {self.arguments.peer}, tag {self.letter.tag}: "
            f"{self._state}, {self._rounds} starts>"
        )

    # -- the verbs -------------------------------------------------------------------------------

    def Start(self) -> None:
        """Local. Begin a round; it waits for nobody.

        Raises :class:`RequestError` where the request is active or freed, and the error of the
        handshake where the two sides do not fit each other.
        """
        with self._lock:
            if self._state is not INACTIVE:
                raise self._misuse("started")
            if self._link is None:
                self.find_peer()
                self._raise_error()
            self.reset()
            self._rounds += 1
            self._state = ACTIVE
            if self._watched:
                debug.moved()
            if self._link is not None:
                self.begin()
            progress.active[self] = None

    def Wait(self) -> Any:
        """Local in the sense of MPI: it waits for the peer only, and for marks of other threads.

        Advances all active requests of the process meanwhile. Returns the buffer as it was given;
        at once on an inactive request. Raises :class:`RequestError` on a freed request, the error
        of the handshake, and :class:`RequestError` where partitions are not ready and there is no
        other thread that could mark them.
        """
        while not self._complete("waited for", progress.SPINS):
            with self._lock:
                self.check_hope()
            progress.drive(self)
            os.sched_yield()
        return self.arguments.given

    def Test(self) -> bool:
        """Local. True when the round is complete, which makes the request inactive.

        Advances all active requests of the process. True at once on an inactive request; raises
        as :meth:`Wait` does, but for partitions that are not ready.
        """
        if self._complete("tested", 1):
            return True
        progress.drive(self)
        return self._complete("tested", 1)

    def Free(self) -> None:
        """Local. Give back the messages; a second call does nothing.

        Any other call afterwards raises :class:`RequestError`, as does this one while the request
        is active. One that was never started can be freed: its place in the order of
        initializations stays taken.
        """
        with self._lock:
            if self._state is FREED:
                return
            if self._state is ACTIVE:
                raise self._misuse("freed")
            self._state = FREED
            if self._link is not None:
                while self._link.closing:
                    self._link.closing.pop()()
            elif self._seat is not None:
                self.mailbox.leave(self._seat)
            self._link = self._seat = None
            self.mailbox.give_tags(self.letter.base)
            self.forget()

    def forget(self) -> None:
        """Local. Drop the end of the link."""

    def __del__(self) -> None:
        if getattr(self, "_state", FREED) is not FREED:
            warnings.warn(f"{self!r} was never freed", ResourceWarning, source=self, stacklevel=2)

    # -- inside ----------------------------------------------------------------------------------

    def advance_if_free(self) -> None:
        """Local. Advance for the sake of peers, unless another thread is at it."""
        if self.may_call() and self._lock.acquire(blocking=False):
            try:
                if self._state is ACTIVE:
                    self._advance()
            finally:
                self._lock.release()

    def may_call(self) -> bool:
        """Local. Whether this thread may call MPI."""
        return self._everywhere or MPI.Is_thread_main()

    def find_peer(self) -> bool:
        """Local. Make the link if the peer's letter has come; false while it has not.

        What does not fit is kept as the error of the request. The caller holds the lock.
        """
        if self._link is not None or self._error is not None:
            return self._error is None
        theirs = self.letter if self._seat is None else self.mailbox.take(self._seat)
        if theirs is None:
            return False
        self._seat = None
        sender, receiver = (self.letter, theirs) if self.letter.side == SENDER else (
            theirs, self.letter)
        arguments = self.arguments
        link: Link | None = None
        try:
            if theirs.nbytes != self.letter.nbytes:
                raise PatternError(self._sizes(theirs))
            method = None if arguments.nowhere else chosen(sender, receiver)
            link = Link(self.mailbox.comm, arguments.peer, arguments.memory,
                        arguments.grouping_with(sender), sender, receiver)
            self.connect(method, link)
        except Exception as error:
            self._error = error
            while link is not None and link.closing:
                link.closing.pop()()
            return False
        self._link = link
        self.method = method.name if method is not None else self.method
        return True

    def _sizes(self, theirs: Letter) -> str:
        ranks = [self.mailbox.comm.rank, self.arguments.peer]
        sizes = [self.letter.nbytes, theirs.nbytes]
        turn = 1 if self.letter.side == SENDER else -1
        (source, dest), (out, into) = ranks[::turn], sizes[::turn]
        return (
            f"rank {source} sends {out} bytes with tag {self.letter.tag}, "
            f"rank {dest} receives {into}"
        )

    def _advance(self) -> bool:
        """One step; the caller holds the lock. True where it has ended, well or not."""
        if self._link is None:
            if not self.find_peer():
                return self._error is not None
            self.begin()
        return self.advance()

    def _complete(self, verb: str, tries: int) -> bool:
        for _ in range(tries):
            with self._lock:
                if self._state is FREED:
                    raise self._misuse(verb)
                if self._state is INACTIVE:
                    return True
                if self._advance():
                    self._end_round()
                    return True
        return False

    def _end_round(self) -> None:
        self._state = INACTIVE
        progress.active.pop(self, None)
        if self._watched:
            debug.moved()
        if self._error is not None:
            self.stop()
            raise self._error
        self.complete()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _misuse(self, verb: str) -> RequestError:
        article = "a" if self._state is FREED else "an"
        return RequestError(f"{article} {self._state} request cannot be {verb}: {self!r}")


def as_index(value: Any, partitions: int, what: object) -> int:
    """Local. A partition's number; :class:`RequestError` where there is no such partition."""
    if not isinstance(value, int | np.integer) or not 0 <= value < partitions:
        raise RequestError(f"no partition {value!r}: there are {partitions}, {what!r}")
    return int(value)
