"""The contract: a persistent exchange, started many times.

One pattern bound to its buffers. It behaves like ``mpi4py.MPI.Prequest``::

    inactive --Start()--> active --Wait(), or Test() that returns True--> inactive --Free()--> freed

*Whose is what.* The request borrows the private communicator of its context and owns its windows,
its receive slots and its message requests. It keeps the caller's buffers alive. A send buffer must
not be modified while the request is active; a receive buffer, or the slot that ``Wait`` returned,
is the caller's from ``Wait`` until the next ``Start``, or until ``Release``.

*Filled rounds.* With ``Open`` instead of ``Start`` the caller writes the blocks where they belong,
chunk by chunk while they are in the cache, instead of to a send array that is then copied::

    if request.Open():
        for chunk, outlets in enumerate(request.outlets):
            for peer, part, array in outlets:
                array[...] = ...            # what would be the part of the send array
            request.Ready(chunk)
    else:                                   # a peer may still be reading the round before
        send[...] = ...
        request.Start()
    received = request.Wait()
    ...                                     # read it for the last time
    request.Release()                       # from now on peers may write the next round

Every rank decides on its own: one may open a round that another one starts.

*What a transport adds.* Three operations: ``begin`` (local; it must not wait for another rank,
except in strictly ordered methods), ``advance`` (do what can be done now, tell whether the round
is complete) and ``complete`` (make the data visible). A method with a direct way to its peers adds
``open``, ``send_chunk``, ``close`` and ``lay_outlets``. Nothing here or there allocates per round.
"""

from __future__ import annotations

import warnings
from types import TracebackType
from typing import Any, Self

from onesided.collectives import progress
from onesided.collectives.agreement import agree
from onesided.collectives.construction import construct
from onesided.collectives.errors import RequestError
from onesided.collectives.exchange import Exchange
from onesided.collectives.handle import ACTIVE, FREED, INACTIVE, Handle
from onesided.collectives.outlets import Outlet, in_the_send_array


class PersistentRequest(Handle):
    """A persistent exchange; made by ``Alltoallv_init`` and its relatives, never directly."""

    @classmethod
    def build(cls, exchange: Exchange) -> PersistentRequest:
        """Collective. A request of this transport, on all ranks or on none."""
        return construct(cls, exchange)

    # -- what a transport implements ---------------------------------------------------------

    def begin(self, slot: int) -> None:
        """Local. Start a round that fills ``slot``."""
        raise RequestError(f"{type(self).__name__} cannot be started")

    def advance(self) -> bool:
        """Local. Do what can be done now; true when the round is complete on this rank."""
        return True

    def complete(self) -> None:
        """Local. Make the received data visible to this rank."""

    def open(self, slot: int) -> bool:
        """Local. Start a round that the caller fills, where this rank may write to its peers."""
        return False

    def send_chunk(self, slot: int, chunk: int) -> bool:
        """Local. A chunk is ready: issue what has to be; false where that is nothing."""
        return False

    def close(self, slot: int) -> None:
        """Local. All chunks are ready; from now on the round is as one that was started."""

    def lay_outlets(self) -> list[list[list[Outlet]]]:
        return in_the_send_array(self.exchange, self._turns)

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

    def Open(self) -> bool:
        """Local (in strictly ordered methods it may wait for the other ranks). Start a round that
        the caller fills, where every rank that it sends to has given up its receive memory.

        True: the request is active. Write every chunk of every block to :attr:`outlets` and tell
        it by :meth:`Ready`, then :meth:`Wait` or :meth:`Test`.

        False: nothing has been started. This rank's own senders may write, as after
        :meth:`Release`. Fill the send array and call :meth:`Start`, or ask again. Methods without
        a direct way to the peers always return False.

        Raises :class:`RequestError` as :meth:`Start` does.
        """
        slot = self._give_up("opened")
        if not self.direct:
            return False
        if self.watch is not None:
            self.watch.before_open()
        if not self._outlets:
            self._outlets = self.lay_outlets()
        self._lock.acquire()
        try:
            if not self.open(slot):
                return False
            if self._memory is not None:
                self._memory.begin()
            self._rounds += 1
            self._slot = slot
            self._done = False
            self._state = ACTIVE
            self._unready = len(self._written)
            for chunk in range(self._unready):
                self._written[chunk] = 0
            if not self._unready:
                self.close(slot)
        finally:
            self._lock.release()
        if self.any_order:
            progress.active[self] = None
        else:
            progress.ordered.append(self)
        return True

    def Ready(self, chunk: int) -> None:
        """Local. The caller has written a chunk of every block to its outlets; it leaves now.

        Every chunk of an opened round is told once, in any order. What was written to the memory
        of a peer needs nothing more; where Puts or messages are issued, this moves earlier ones
        as well. Raises :class:`RequestError` outside of an opened round, and for a chunk that is
        ready already or does not exist.
        """
        if not self._unready or not 0 <= chunk < len(self._written) or self._written[chunk]:
            raise self._unexpected(chunk)
        self._lock.acquire()
        try:
            self._written[chunk] = 1
            sent = self.send_chunk(self._slot, chunk)
            if self._unready == 1:
                self.close(self._slot)
            self._unready -= 1
        finally:
            self._lock.release()
        if sent:
            progress.drive(self)

    def Release(self) -> None:
        """Local. The receive memory has been read for the last time: peers may write to it.

        Without it that is so from the next :meth:`Start` or :meth:`Open`. The caller neither reads
        nor writes the receive blocks until the next :meth:`Wait`. Of requests that alternate, one
        says so for all. A second call does nothing; nor does any where peers never wait for it.

        Raises :class:`RequestError` where the request is active or freed.
        """
        self._give_up("released")

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
        agree(self.resources.context.comm, None, ("Free", self.exchange.number))
        self._state = FREED
        if self.watch is not None:
            self.watch.stop()
        self.arrays, self._answers, self._outlets = (), (), []
        self.forget()
        self.resources.release()

    def Cancel(self) -> None:
        """Local. Persistent collectives cannot be canceled (MPI-4.1 section 7.13); it raises."""
        raise self._misuse("canceled; no persistent collective can be")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.Free()  # on an exception nothing collective is called

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

    def _give_up(self, verb: str) -> int:
        """Grant the next round, unless that has been done; returns the slot that it fills."""
        if self._state is not INACTIVE:
            raise self._misuse(verb)
        slot = self._rounds % self._turns
        memory = self._memory
        if memory is not None and memory.busy:
            raise self._misuse(f"{verb}, while one into the same memory is active")
        if self.watch is not None:
            self.watch.give_up(slot)
        if memory is not None and memory.granted == memory.number:
            memory.grant(memory.number + 1)
        return slot
