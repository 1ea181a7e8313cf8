"""The contract: a persistent exchange, started many times.

One pattern bound to its buffers. It behaves like ``mpi4py.MPI.Prequest``::

    inactive --Start()--> active --Wait(), or Test() that returns True--> inactive --Free()--> freed

*Whose is what.* The request borrows the private communicator of its context and owns its windows,
its receive slots and its message requests. It keeps the caller's buffers alive. A send buffer must
not be modified while the request is active; a receive buffer, or the slot that ``Wait`` returned,
is the caller's from ``Wait`` until the next ``Start``.

*What a transport adds.* Three operations: ``begin`` (local; it must not wait for another rank,
except in strictly ordered methods), ``advance`` (do what can be done now, tell whether the round
is complete) and ``complete`` (make the data visible). Nothing here or there allocates per start.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self

from numpy.typing import NDArray

from onesided.collectives import progress
from onesided.collectives.agreement import agree
from onesided.collectives.construction import construct
from onesided.collectives.errors import RequestError

if TYPE_CHECKING:
    from onesided.collectives.context import Resources
    from onesided.collectives.debug import Watch
    from onesided.collectives.exchange import Exchange

INACTIVE, ACTIVE, FREED = "inactive", "active", "freed"


class PersistentRequest:
    """A persistent exchange; made by ``Alltoallv_init`` and its relatives, never directly."""

    #: Ranks may start and complete requests of this method in different orders.
    any_order: ClassVar[bool] = True
    #: Most receive slots that the method can use in turn.
    most_slots: ClassVar[int] = 2

    def __init__(self, exchange: Exchange, resources: Resources) -> None:
        """Collective. Subclasses build their schedule here."""
        self.exchange, self.resources = exchange, resources
        self.method = exchange.method
        self.setup_time = 0.0
        self._state = INACTIVE
        self._lock = threading.Lock()
        self._rounds = 0
        self._turns = exchange.slots
        self._slot = 0
        self._done = True
        self.arrays: Sequence[NDArray[Any]] = ()  # the receive memory, by slot
        self._answers: Sequence[Any] = ()  # what Wait returns, by slot
        self.watch: Watch | None = None
        self.probe = exchange.context.comm.Iprobe

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

    # -- the verbs ------------------------------------------------------------------------------

    def Start(self) -> None:
        """Local (in strictly ordered methods it may wait for the other ranks). Start a round.

        Raises :class:`RequestError` where the request is active or freed.
        """
        if self._state is not INACTIVE:
            raise self._misuse("started")
        slot = self._rounds % self._turns
        if self.watch is not None:
            self.watch.before_start(slot)
        self._lock.acquire()  # until the round has begun nobody else may advance it
        try:
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
        inactive request it returns at once. Raises :class:`RequestError` on a freed request, and
        on one of a strictly ordered method while an earlier one is active.
        """
        if self._state is not ACTIVE:
            return self._inactive("waited for")
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
        """
        if self._state is not ACTIVE:
            self._inactive("tested")
            return True
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
        self.arrays, self._answers = (), ()
        self.forget()
        self.resources.release()

    def Cancel(self) -> None:
        """Local. Persistent collectives cannot be canceled (MPI-4.1 section 7.13); it raises."""
        raise self._misuse("canceled; no persistent collective can be")

    def serve(self, arrays: Sequence[NDArray[Any]]) -> None:
        """Local. Say where the receive memory is; ``Wait`` returns the caller's array as given."""
        self.arrays = arrays
        self._answers = arrays if self.exchange.owned else [self.exchange.recv.given]

    def discard(self) -> None:
        """Local. What remains of a request that another rank could not build."""
        self._state = FREED
        self.forget()

    def forget(self) -> None:
        """Local. Drop every view of the memory that is about to be given back."""

    # -- what can be asked ---------------------------------------------------------------------

    @property
    def active(self) -> bool:
        """Local. True between ``Start`` and completion."""
        return self._state is ACTIVE

    @property
    def sendbuf(self) -> Any:
        """Local. The send data as the caller gave it."""
        return self.exchange.send.given

    @property
    def recvbuf(self) -> Any:
        """Local. The receive array of the last round (before the first: of the first)."""
        if self._state is FREED:
            raise self._misuse("asked for its buffer")
        return self._answers[self._slot]

    @property
    def state(self) -> str:
        """Local. ``"inactive"``, ``"active"`` or ``"freed"``."""
        return self._state

    @property
    def rounds(self) -> int:
        """Local. How many times the request has been started."""
        return self._rounds

    def waiting_for(self) -> str:
        """Local. What an active request lacks, in words, for the watchdog."""
        return ""

    def __repr__(self) -> str:
        number = self.exchange.number
        return f"<{self.method} request {number}: {self._state}, {self._rounds} starts>"

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
                if self._state is ACTIVE and not self._done:
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
        if self.watch is not None:
            self.watch.after_wait()

    def _check_turn(self) -> None:
        first = progress.ordered[0]
        if first is not self:
            raise RequestError(
                f"{self.method} is strictly ordered: {first!r} was started earlier and must be "
                "completed first (use a method that allows any order, see methods())"
            )

    def _inactive(self, verb: str) -> Any:
        if self._state is FREED:
            raise self._misuse(verb)
        return self._answers[self._slot]

    def _misuse(self, verb: str) -> RequestError:
        article = "a" if self._state is FREED else "an"
        return RequestError(f"{article} {self._state} request cannot be {verb}: {self!r}")


def Startall(requests: Sequence[PersistentRequest]) -> None:
    """Local. Start every request; in any order of the list, which may differ between ranks.

    Raises :class:`RequestError`, before anything is started, where one occurs twice or is not
    inactive. Strictly ordered requests are started in the order of their initialization.
    """
    if len({id(request) for request in requests}) != len(requests):
        raise RequestError("a request occurs twice in Startall")
    for request in requests:
        if request.state is not INACTIVE:
            raise RequestError(f"{request!r} cannot be started; nothing has been started")
    for request in sorted(requests, key=_turn):
        request.Start()


def Waitall(requests: Sequence[PersistentRequest]) -> list[Any]:
    """Wait for every request. Returns their receive arrays in the order of the list.

    Strictly ordered requests are completed in the order in which they were started.
    """
    early = [request for request in progress.ordered if request in requests]
    for request in early:
        request.Wait()
    return [request.Wait() for request in requests]


def _turn(request: PersistentRequest) -> tuple[int, int]:
    """The same order on all ranks for strictly ordered requests; others stay as they are."""
    exchange = request.exchange
    return (0, 0) if request.any_order else (exchange.context.number, exchange.number)
