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

*What a transport adds.* The operations of :class:`~.persistent.Persistent`. A method with a direct
way to its peers adds ``open``, ``send_chunk``, ``close`` and ``lay_outlets``. Nothing here or there
allocates per round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from numpy.typing import NDArray

from onesided.collectives import progress
from onesided.collectives.construction import construct
from onesided.collectives.debug import Watched, views
from onesided.collectives.handle import ACTIVE, FREED, INACTIVE
from onesided.collectives.outlets import Outlet, in_the_send_array
from onesided.collectives.persistent import Persistent

if TYPE_CHECKING:
    from onesided.collectives.context import Resources
    from onesided.collectives.exchange import Exchange


class PersistentRequest(Persistent):
    """A persistent exchange; made by ``Alltoallv_init`` and its relatives, never directly."""

    #: Most receive slots that the method can use in turn.
    most_slots: ClassVar[int] = 2
    #: The caller of an opened round can write where the blocks belong.
    direct: ClassVar[bool] = False

    def __init__(self, exchange: Exchange, resources: Resources) -> None:
        super().__init__(exchange, resources, exchange.slots, exchange.chunks)
        self.exchange = exchange
        self._outlets: list[list[list[Outlet]]] = []  # by slot and chunk, from their first use

    @classmethod
    def build(cls, exchange: Exchange) -> PersistentRequest:
        """Collective. A request of this transport, on all ranks or on none."""
        return construct(cls, exchange)

    # -- what can be asked ---------------------------------------------------------------------

    @property
    def sendbuf(self) -> Any:
        """Local. The send data as the caller gave it."""
        return self.exchange.send.given

    @property
    def outlets(self) -> list[list[Outlet]]:
        """Local. By chunk, where the caller of an opened round writes: (peer, part, array).

        ``part`` is a box of the send array, and ``array`` takes what would be there: the peer's
        own memory where it is visible, a buffer of the request, or the part itself. The block
        that this rank sends to itself is included. They are those of the active round, or of the
        next one; with one receive slot they are the same in all rounds. They are the caller's
        until ``Free``.
        """
        if self._state is FREED:
            raise self._misuse("asked for its outlets")
        if not self._outlets:
            self._outlets = self.lay_outlets()
        return self._outlets[self._slot if self._state is ACTIVE else self._rounds % self._turns]

    # -- what a transport implements ---------------------------------------------------------

    def open(self, slot: int) -> bool:
        """Local. Start a round that the caller fills, where this rank may write to its peers."""
        return False

    def send_chunk(self, slot: int, chunk: int) -> bool:
        """Local. A chunk is ready: issue what has to be; false where that is nothing."""
        return False

    def close(self, slot: int) -> None:
        """Local. All chunks are ready; from now on the round is as one that was started."""

    def lay_outlets(self) -> list[list[list[Outlet]]]:
        """Local. The outlets by slot and chunk; asked for once, where they are first wanted."""
        return in_the_send_array(self.exchange, self._turns)

    # -- the verbs ------------------------------------------------------------------------------

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

    # -- inside ----------------------------------------------------------------------------------

    def serve(self, arrays: Sequence[NDArray[Any]]) -> None:
        """Local. Say where the receive memory is; ``Wait`` returns the caller's array as given."""
        self.arrays = arrays
        self._answers = arrays if self.exchange.owned else [self.exchange.recv.given]

    def watched(self) -> Watched:
        send, recv = self.exchange.send, self.exchange.recv
        return Watched(
            views(send.array, send.blocks), [views(a, recv.blocks) for a in self.arrays], recv.dtype
        )

    def let_go(self) -> None:
        self._outlets = []
        super().let_go()

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
