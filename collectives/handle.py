"""What a persistent request is on one rank: its state, its buffers, and what can be asked."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from numpy.typing import NDArray

from onesided.collectives import progress
from onesided.collectives.alternation import Alternation, Creditor
from onesided.collectives.errors import RequestError

if TYPE_CHECKING:
    from onesided.collectives.context import Context, Resources
    from onesided.collectives.debug import Watch, Watched

INACTIVE, ACTIVE, FREED = "inactive", "active", "freed"


class Operation(Protocol):
    """What a request carries out, as agreed on all ranks: an exchange, a broadcast."""

    @property
    def method(self) -> str:
        """The transport by name."""

    @property
    def context(self) -> Context:
        """The communicator, with what its requests share."""

    @property
    def number(self) -> int:
        """The number of the request in its context, the same on all ranks."""


class Handle:
    """The part of a request that holds; :class:`~.persistent.Persistent` is what acts.

    A round may go into one of ``turns`` receive slots, and be written by the caller in ``chunks``.
    """

    #: Ranks may start and complete requests of this method in different orders.
    any_order: ClassVar[bool] = True

    def __init__(
        self, operation: Operation, resources: Resources, turns: int = 1, chunks: int = 1
    ) -> None:
        self.operation, self.resources = operation, resources
        self.method = operation.method
        self.setup_time = 0.0
        self._state = INACTIVE
        self._lock = threading.Lock()
        self._rounds = 0
        self._turns = turns
        self._slot = 0
        self._done = True
        self.arrays: Sequence[NDArray[Any]] = ()  # the receive memory, by slot
        self._answers: Sequence[Any] = ()  # what Wait returns, by slot
        self._memory: Alternation | None = None  # where rounds need a credit, or alternate
        self._written = bytearray(chunks)
        self._unready = 0  # chunks of the round that the caller still has to write
        self.watch: Watch | None = None
        self.probe = operation.context.comm.Iprobe

    # -- what can be asked ---------------------------------------------------------------------

    @property
    def active(self) -> bool:
        """Local. True between ``Start`` and completion."""
        return self._state is ACTIVE

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
        """Local. How many times the request has been started or opened."""
        return self._rounds

    @property
    def turn(self) -> tuple[int, int]:
        """Local. The place among strictly ordered requests, the same on all ranks."""
        return (0, 0) if self.any_order else (self.operation.context.number, self.operation.number)

    @property
    def granted(self) -> bool:
        """Local. True where peers may write the next round already."""
        memory = self._memory
        return memory is not None and memory.granted > memory.number

    @property
    def alternates(self) -> bool:
        """Local. True where the receive memory is that of other requests as well."""
        return self._memory is not None and self._memory.joint

    @property
    def filling(self) -> bool:
        """Local. True while chunks of an opened round are not ready."""
        return self._unready > 0

    def __repr__(self) -> str:
        number = self.operation.number
        return f"<{self.method} request {number}: {self._state}, {self._rounds} starts>"

    # -- what a transport implements -----------------------------------------------------------

    def creditor(self) -> Creditor:
        """Local. What this request needs so that a credit reaches its sources."""
        return Creditor()

    def waiting_for(self) -> str:
        """Local. What an active request lacks, in words, for the watchdog."""
        return ""

    def forget(self) -> None:
        """Local. Drop every view of the memory that is about to be given back."""

    def watched(self) -> Watched:
        """Local. What must not change in a round, and what is given up before it."""
        raise RequestError(f"{type(self).__name__} cannot be watched")

    # -- inside ----------------------------------------------------------------------------------

    def alternate_in(self, memory: Alternation) -> None:
        """Local, in the same order on all ranks. Count rounds, and give credit, with a memory."""
        number = self.operation.number
        if self._memory is not None:
            self._memory.drop(number)
        self._memory = memory
        memory.join(number, self.creditor())
        self.resources.on_release(lambda: memory.leave(number))

    def discard(self) -> None:
        """Local. What remains of a request that another rank could not build."""
        self._state = FREED
        self.let_go()

    def let_go(self) -> None:
        """Local. Drop what the request knows of memory."""
        self.arrays, self._answers = (), ()
        self.forget()

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

    def _unexpected(self, chunk: int) -> RequestError:
        if not self._unready:
            return RequestError(f"chunk {chunk} of {self!r}, which has no chunk to be written")
        count = len(self._written)
        known = "is ready already" if 0 <= chunk < count else f"does not exist, there are {count}"
        return RequestError(f"chunk {chunk} {known}: {self!r}")

    def _incomplete(self) -> RequestError:
        missing = [chunk for chunk, ready in enumerate(self._written) if not ready]
        return RequestError(f"the chunks {missing} are not ready: {self!r}")
