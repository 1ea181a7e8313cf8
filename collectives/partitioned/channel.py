"""The channel between the two sides of a partitioned send, and the transports that make one.

A transport is two classes, the sender's and the receiver's end; which one serves a pair is chosen
here, and only here. A new one is a file beside this one and a line in the list below; every line
runs the same tests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.errors import MethodError, UnsupportedError
from onesided.collectives.partitioned.counter import Arrivals, Grouping
from onesided.collectives.partitioned.handshake import Parameters
from onesided.collectives.pattern import LARGEST_PIECE

if TYPE_CHECKING:
    from onesided.collectives._core import Counter as CompiledCounter
    from onesided.collectives.partitioned.counter import AnyCounter

AUTO = "auto"

#: Messages of requests that were freed in the middle of a round: MPI may still use their buffers.
_abandoned: list[tuple[MPI.Prequest, NDArray[np.uint8]]] = []


@dataclass
class Channel:
    """What an end needs: the peer, the bytes of the buffer, the groups, the parameters of both.

    ``compiled`` is the compiled counter of the sending side, where there is one.
    """

    comm: MPI.Intracomm
    peer: int
    memory: NDArray[np.uint8]
    grouping: Grouping
    sender: Parameters
    receiver: Parameters
    compiled: CompiledCounter | None = None
    broken: bool = False
    _closing: list[Callable[[], object]] = field(default_factory=list)

    def on_release(self, action: Callable[[], object]) -> None:
        """Local. Run ``action`` when the request is freed, before what was added earlier."""
        self._closing.append(action)

    def close(self, broken: bool = False) -> None:
        """Local. Give everything back. ``broken``: in the middle of a round."""
        self.broken = broken
        while self._closing:
            self._closing.pop()()

    def persistent_send(self, data: NDArray[np.generic], tag: int) -> MPI.Prequest:
        """Local. A persistent message to the peer, freed with the request."""
        message = self.comm.Send_init([data, MPI.BYTE], self.peer, tag)
        self.on_release(lambda: self.drop(message))
        return message

    def persistent_receive(self, data: NDArray[np.generic], tag: int) -> MPI.Prequest:
        """Local. A persistent message from the peer, freed with the request."""
        message = self.comm.Recv_init([data, MPI.BYTE], self.peer, tag)
        self.on_release(lambda: self.drop(message))
        return message

    def drop(self, message: MPI.Prequest) -> None:
        """Local. Free a message; one that is under way is kept, with its buffer."""
        if self.broken and not message.Test():
            _abandoned.append((message, self.memory))
        else:
            message.Free()

    def pieces(self, first: int, stop: int) -> list[NDArray[np.uint8]]:
        """Local. The bytes of some groups, in parts that one message can carry; one at least."""
        start, end = self.grouping.span(first, stop)
        cuts = range(start, end, LARGEST_PIECE) or [start]
        return [self.memory[cut : min(cut + LARGEST_PIECE, end)] for cut in cuts]


class Sender:
    """The sending end of a channel; this one leads nowhere (``MPI.PROC_NULL``).

    Its request calls it under a lock, from a thread that may call MPI. No call waits for the peer.
    """

    def __init__(self, channel: Channel) -> None:
        self.channel = channel

    @classmethod
    def of(cls, channel: Channel) -> Sender:
        """Local. The sending end of a channel by this transport."""
        return cls(channel)

    @classmethod
    def obstacle(cls, sender: Parameters, receiver: Parameters) -> str:
        """Local, the same on both sides. Why this transport cannot serve them; "" if it can."""
        return ""

    def begin(self) -> None:
        """A round begins."""

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


class Receiver:
    """The receiving end of a channel, as :class:`Sender`; this one receives nothing
    (``MPI.PROC_NULL``)."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.arrivals = Arrivals(channel.grouping.groups)

    @classmethod
    def of(cls, channel: Channel) -> Receiver:
        """Local. The receiving end of a channel by this transport."""
        return cls(channel)

    def begin(self) -> None:
        """A round begins: the buffer may be written."""

    def advance(self) -> bool:
        """Whether all groups have come."""
        self.arrivals.fill()
        return True

    def arrived(self, first: int, stop: int) -> bool:
        """Whether the groups ``first`` to ``stop - 1`` have come."""
        if not self.arrivals.all(first, stop):
            self.advance()
        return self.arrivals.all(first, stop)

    def owes(self) -> bool:
        """Whether the sender may have to wait for further calls of :meth:`advance`."""
        return False


# -- the list -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PartitionedMethod:
    """A transport: its name and where it is. ``candidate``: ``auto`` considers it."""

    name: str
    module: str
    candidate: bool
    summary: str

    def sender(self) -> type[Sender]:
        """Local. The class of the sending end."""
        found: type[Sender] = self._find("Send")
        return found

    def receiver(self) -> type[Receiver]:
        """Local. The class of the receiving end."""
        found: type[Receiver] = self._find("Receive")
        return found

    def _find(self, what: str) -> type:
        module, _, prefix = self.module.partition(":")
        found: type = getattr(import_module(module, __package__), prefix + what)
        return found


# fmt: off
_METHODS = (
    PartitionedMethod("rma", ".rma:Rma", True, "store into memory from empty() on the node, then tell"),
    PartitionedMethod("p2p-gather", ".messages:Gather", True, "a note, then one message of all groups that gathered meanwhile"),
    PartitionedMethod("p2p", ".messages:Group", False, "one persistent send per group"),
)
# fmt: on


def partitioned_methods() -> dict[str, PartitionedMethod]:
    """Local. The transports of partitioned sends by name; ``auto`` takes the first that suits."""
    return {method.name: method for method in _METHODS}


def check_name(name: str) -> None:
    """Local. Raise :class:`MethodError` where there is no such transport."""
    known = [AUTO, *partitioned_methods()]
    if name not in known:
        raise MethodError(f"no method {name!r}; the methods are {', '.join(known)}")


def chosen(sender: Parameters, receiver: Parameters) -> PartitionedMethod:
    """Local, the same on both sides. What the two wishes come to."""
    wishes = list(dict.fromkeys(side.method for side in (sender, receiver) if side.method != AUTO))
    if len(wishes) > 1:
        raise MethodError(f"the sender wants {wishes[0]}, the receiver {wishes[1]}")
    if not wishes:
        able = [m for m in _METHODS if m.candidate and not m.sender().obstacle(sender, receiver)]
        return able[0]
    method = partitioned_methods()[wishes[0]]
    obstacle = method.sender().obstacle(sender, receiver)
    if obstacle:
        raise UnsupportedError(f"{method.name}: {obstacle}")
    return method
