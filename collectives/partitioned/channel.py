"""The channel between the two sides of a partitioned send: its ends, and the transports.

A transport is two classes, the sender's and the receiver's end; which one serves a pair is chosen
here, and only here. A new one is a file beside this one and a line in the list below; every line
runs the same tests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.errors import MethodError, RequestError, UnsupportedError
from onesided.collectives.partitioned.handshake import SENDER, Parameters, check_fit, message_tag
from onesided.collectives.pattern import LARGEST_PIECE

if TYPE_CHECKING:
    from onesided.collectives._core import Counter as CompiledCounter
    from onesided.collectives.partitioned.counter import AnyCounter

AUTO = "auto"

#: Messages of requests that were freed in the middle of a round: MPI may still use their buffers.
_abandoned: list[tuple[MPI.Prequest, NDArray[np.uint8]]] = []


class End:
    """One side of a channel; a transport is two of them. Its request calls it under a lock, from a
    thread that may call MPI. No call waits for the peer.

    ``memory`` are the bytes of the buffer, in the groups of ``grouping``; ``sender`` and
    ``receiver`` the parameters of both sides; ``compiled`` is the compiled counter of the sending
    side, where there is one.
    """

    def __init__(
        self, comm: MPI.Intracomm, peer: int, mine: Parameters, theirs: Parameters,
        memory: NDArray[np.uint8], compiled: CompiledCounter | None,
    ) -> None:
        self.comm, self.peer, self.memory, self.compiled = comm, peer, memory, compiled
        self._sends = mine.side == SENDER
        self.sender, self.receiver = (mine, theirs) if self._sends else (theirs, mine)
        self.grouping = self.sender.grouping
        self._messages: list[MPI.Prequest] = []
        self._closing: list[Callable[[], object]] = []

    def open(self) -> None:
        """Make what rounds need. It is closed where that fails, too."""

    def begin(self) -> None:
        """A round begins: the buffer of a receiver may be written."""

    def on_release(self, action: Callable[[], object]) -> None:
        """Local. Run ``action`` when the request is freed, before what was added earlier."""
        self._closing.append(action)

    def message(self, data: NDArray[np.generic], group: int = 0) -> MPI.Prequest:
        """Local. A persistent message to or from the peer, under the tag of a group."""
        make = self.comm.Send_init if self._sends else self.comm.Recv_init
        message = make([data, MPI.BYTE], self.peer, message_tag(self.receiver.slot, group))
        self._messages.append(message)
        return message

    def messages(self, first: int, stop: int, group: int = 0) -> list[MPI.Prequest]:
        """Local. Those of the groups ``first`` to ``stop - 1``: one at least, and as many as it
        takes, as an MPI carries at most so many bytes at a time."""
        start, end = self.grouping.span(first, stop)
        cuts = range(start, end, LARGEST_PIECE) or [start]
        pieces = (self.memory[cut : min(cut + LARGEST_PIECE, end)] for cut in cuts)
        return [self.message(piece, group) for piece in pieces]

    def drop(self, messages: Sequence[MPI.Prequest]) -> None:
        """Local. Free messages that are not under way."""
        for message in messages:
            self._messages.remove(message)
            message.Free()

    def close(self, broken: bool = False) -> None:
        """Local. Give everything back. ``broken``: in the middle of a round, so messages that are
        under way are kept, with their buffers."""
        while self._closing:
            self._closing.pop()()
        while self._messages:
            message = self._messages.pop()
            if broken and not message.Test():
                _abandoned.append((message, self.memory))
            else:
                message.Free()


class Sender(End):
    """The sending end of a channel; this one leads nowhere (``MPI.PROC_NULL``)."""

    @classmethod
    def obstacle(cls, sender: Parameters, receiver: Parameters) -> str:
        """Local, the same on both sides. Why this transport cannot serve them; "" if it can."""
        return ""

    def may_leave(self) -> bool:
        """Whether groups may leave now; while not, those that are ready gather."""
        return True

    def leave(self, first: int, stop: int) -> None:
        """Send the groups ``first`` to ``stop - 1``."""

    def drain(self, counter: AnyCounter) -> None:
        """Send what is complete, as far as it may leave."""
        while counter.waiting and self.may_leave():
            self.leave(*counter.take())

    def idle(self) -> bool:
        """Whether all that has left has gone and the buffer can be used again."""
        return True


class Receiver(End):
    """The receiving end of a channel; this one receives nothing (``MPI.PROC_NULL``).

    One that may hold up the sender has ``owes()`` besides: whether that waits for :meth:`advance`.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._come = np.zeros(self.grouping.groups, np.bool_)
        self._flags: memoryview = self._come.data
        self._missing = 0
        self.asked = False  # by a thread that may not call MPI, and can only be told what is known

    def expect(self) -> None:
        """A round begins: no group has come."""
        self._come[:] = False
        self._missing = self._come.size

    def add(self, first: int, stop: int) -> None:
        """The groups ``first`` to ``stop - 1`` have come."""
        if stop - first == 1:
            self._flags[first] = True
        else:
            self._come[first:stop] = True
        self._missing -= stop - first

    def fill(self) -> None:
        """All groups have come."""
        self._come[:] = True
        self._missing = 0

    def have_come(self, first: int, stop: int) -> bool:
        """Whether the groups ``first`` to ``stop - 1`` are known to have come."""
        if stop - first == 1:
            return bool(self._flags[first])
        return bool(self._come[first:stop].all())

    def advance(self) -> bool:
        """Whether all groups have come."""
        self.fill()
        return True

    def arrived(self, first: int, stop: int) -> bool:
        """Whether the groups ``first`` to ``stop - 1`` have come."""
        if not self.have_come(first, stop):
            self.advance()
        return self.have_come(first, stop)


@dataclass(frozen=True)
class PartitionedMethod:
    """A transport: its name and where it is. ``candidate``: ``auto`` considers it.

    Examples
    --------
    >>> partitioned_methods()["p2p"].name
    'p2p'
    """

    name: str
    module: str
    candidate: bool
    summary: str

    def ends(self) -> tuple[type[Sender], type[Receiver]]:
        """Local. The classes of both ends."""
        name, _, prefix = self.module.partition(":")
        module = import_module(name, __package__)
        return getattr(module, f"{prefix}Send"), getattr(module, f"{prefix}Receive")


# fmt: off
_METHODS = (
    PartitionedMethod("rma", ".rma:Rma", True, "store into memory from empty() on the node, then tell"),
    PartitionedMethod("p2p-gather", ".messages:Gather", True, "a note, then one message of all groups that gathered meanwhile"),
    PartitionedMethod("p2p", ".messages:Group", False, "one persistent send per group"),
)
# fmt: on


def partitioned_methods() -> dict[str, PartitionedMethod]:
    """Local. The transports of partitioned sends by name; ``auto`` takes the first that suits.

    Examples
    --------
    >>> "rma" in partitioned_methods()
    True
    """
    return {method.name: method for method in _METHODS}


def check_name(name: str) -> None:
    """Local. Raise :class:`MethodError` where there is no such transport."""
    known = [AUTO, *partitioned_methods()]
    if name not in known:
        raise MethodError(f"no method {name!r}; the methods are {', '.join(known)}")


def chosen(sender: Parameters, receiver: Parameters) -> PartitionedMethod:
    """Local, the same on both sides. What the two wishes come to; what sends nothing any may do."""
    wishes = list(dict.fromkeys(side.method for side in (sender, receiver) if side.method != AUTO))
    if len(wishes) > 1:
        raise MethodError(f"the sender wants {wishes[0]}, the receiver {wishes[1]}")
    if not wishes or not sender.nbytes:
        return next(method for method in _METHODS
                    if method.candidate and not method.ends()[0].obstacle(sender, receiver))
    method = partitioned_methods()[wishes[0]]
    obstacle = method.ends()[0].obstacle(sender, receiver)
    if obstacle:
        raise UnsupportedError(f"{method.name}: {obstacle}")
    return method


def end_between(
    comm: MPI.Intracomm, peer: int, mine: Parameters, theirs: Parameters,
    memory: NDArray[np.uint8], compiled: CompiledCounter | None,
) -> tuple[str, Sender | Receiver]:
    """Local. The name of the transport and this side's end, which is not open; one that leads
    nowhere to and from ``MPI.PROC_NULL``."""
    sender, receiver = (mine, theirs) if mine.side == SENDER else (theirs, mine)
    name, ends = mine.method, (Sender, Receiver)
    if peer != MPI.PROC_NULL:
        check_fit(sender, receiver, *((comm.rank, peer) if sender is mine else (peer, comm.rank)))
        method = chosen(sender, receiver)
        name, ends = method.name, method.ends()
    return name, ends[mine.side](comm, peer, mine, theirs, memory, compiled)


def as_index(value: Any, partitions: int, what: object) -> int:
    """Local. A partition's number; :class:`RequestError` where there is no such partition."""
    if not isinstance(value, int | np.integer) or not 0 <= value < partitions:
        raise RequestError(f"no partition {value!r}: there are {partitions}, {what!r}")
    return int(value)
