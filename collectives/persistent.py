"""The life of a persistent collective: the verbs that all have, whatever moves the data.

::

    inactive --Start()--> active --Wait(), or Test() that returns True--> inactive --Free()--> freed

The request borrows the private communicator of its context, owns its windows, its memory and its
message requests, and keeps the caller's buffers alive. Nothing here allocates per round.

*What a transport adds.* Three operations: ``begin`` (local; it must not wait for another rank,
except in strictly ordered methods), ``advance`` (do what can be done now, tell whether the round
is complete) and ``complete`` (make the data visible).
"""

from __future__ import annotations

import warnings
from typing import Any

from onesided.collectives import progress
from onesided.collectives.agreement import agree
from onesided.collectives.errors import RequestError
from onesided.collectives.handle import ACTIVE, FREED, INACTIVE, Handle
from onesided.collectives.scope import Scoped


class Persistent(Handle, Scoped):
    """A persistent collective; made by an initialization function, never directly."""

    # -- what a transport implements ---------------------------------------------------------

    def begin(self, slot: int) -> None:
        """Local. Start a round that fills ``slot``."""
        raise RequestError(f"{type(self).__name__} cannot be started")

    def advance(self) -> bool:
        """Local. Do what can be done now; true when the round is complete on this rank."""
        return True

    def complete(self) -> None:
        """Local. Make the received data visible to this rank."""

    # -- the verbs ------------------------------------------------------------------------------

    def Start(self) -> None:
        """Local (in strictly ordered methods it may wait for the other ranks). Start a round.

        Raises :class:`RequestError` where the request is active or freed, or where one is active
        that it alternates with.
        """
        if self._state is not INACTIVE:
            raise self._misuse("started")
        slot = self._rounds % self._turns
        if self._memory is not None and self._memory.busy:
            raise self._misuse("started, while one into the same memory is active")
        if self.watch is not None:
            self.watch.before_start(slot)
        self._lock.acquire()  # until the round has begun nobody else may advance it
        try:
            if self._memory is not None:
                self._memory.begin()
            self.begin(slot)
            self._rounds += 1
            self._slot = slot
            self._done = False
            self._state = ACTIVE
        finally:
            self._lock.release()
        if self.any_order:
            progress.active[self] = None
        else:
            progress.ordered.append(self)

    def Wait(self) -> Any:
        """Completes when this rank's blocks have left and its expected blocks have come.

        Local in the sense of MPI: it waits only for ranks that exchange data with this one, and
        advances all active requests of the process meanwhile (strictly ordered methods wait for
        all ranks of the communicator and advance nothing else).

        Returns the receive array of the round: the caller's, or the slot just filled. On an
        inactive request it returns at once. Raises :class:`RequestError` on a freed request, on
        an opened one with a chunk that is not ready, and on one of a strictly ordered method
        while an earlier one is active.
        """
        if self._state is not ACTIVE:
            return self._inactive("waited for")
        if self._unready:
            raise self._incomplete()
        if not self.any_order:
            self._check_turn()
        self._lock.acquire()  # "with" takes twice as long
        try:
            if self._state is ACTIVE:
                if not self._done:
                    if self.watch is not None:
                        self.watch.before_wait()
                    if not self.advance():
                        progress.spin(self)
                self._finish()
        finally:
            self._lock.release()
        return self._answers[self._slot]

    def Test(self) -> bool:
        """Local. True when the round is complete, which makes the request inactive.

        Advances all active requests of the process. True at once on an inactive request. Strictly
        ordered methods complete the round, and so may wait for the other ranks; one-sided methods
        may wait, off the node, until a target enters MPI, because a flush cannot be tested.
        Raises as :meth:`Wait` does.
        """
        if self._state is not ACTIVE:
            self._inactive("tested")
            return True
        if self._unready:
            raise self._incomplete()
        if not self.any_order:
            self._check_turn()
        with self._lock:
            if self._state is ACTIVE:
                if self.watch is not None:
                    self.watch.before_wait()
                if not self._done and not self.advance():
                    progress.drive(self)
                    if not self.advance():
                        return False
                self._finish()
        return True

    def Free(self) -> None:
        """Collective. Give back windows, memory and message requests; a second call does nothing.

        Any other call afterwards raises :class:`RequestError`, as does this one, locally, while
        the request is active. Memory that the caller still looks at stays mapped.
        """
        if self._state is FREED:
            return
        if self._state is ACTIVE:
            raise self._misuse("freed")
        agree(self.resources.context.comm, None, ("Free", self.operation.number))
        self._state = FREED
        if self.watch is not None:
            self.watch.stop()
        self.let_go()
        self.resources.release()

    def Cancel(self) -> None:
        """Local. Persistent collectives cannot be canceled (MPI-4.1 section 7.13); it raises."""
        raise self._misuse("canceled; no persistent collective can be")

    def __del__(self) -> None:
        if getattr(self, "_state", FREED) is not FREED and self._turns:
            warnings.warn(f"{self!r} was never freed", ResourceWarning, source=self, stacklevel=2)

    # -- inside ----------------------------------------------------------------------------------

    def advance_if_free(self) -> None:
        """Local. Advance for the sake of peers, unless another thread is at it."""
        if self._lock.acquire(blocking=False):
            try:
                if self._state is ACTIVE and not self._done and not self._unready:
                    self._done = self.advance()
            finally:
                self._lock.release()

    def _finish(self) -> None:
        self.complete()
        if self.any_order:
            progress.active.pop(self, None)
        else:
            progress.ordered.remove(self)
        self._state = INACTIVE
        if self._memory is not None:
            self._memory.busy = False
        if self.watch is not None:
            self.watch.after_wait()
