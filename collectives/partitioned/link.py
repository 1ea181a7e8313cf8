"""The two sides of a partitioned send, once they know each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.copies import LARGEST_PIECE
from onesided.collectives.partitioned.grouping import Grouping
from onesided.collectives.partitioned.letter import Letter

if TYPE_CHECKING:
    from onesided.collectives.partitioned._compiled import Counter as CompiledCounter
    from onesided.collectives.partitioned.counter import AnyCounter


@dataclass
class Link:
    """What a transport needs: the peer, the bytes of the buffer, the groups, both letters.

    ``compiled`` is the compiled counter of the sending side, where there is one.
    """

    comm: MPI.Intracomm
    peer: int
    memory: NDArray[np.uint8]
    grouping: Grouping
    sender: Letter
    receiver: Letter
    compiled: CompiledCounter | None = None
    closing: list[Callable[[], object]] = field(default_factory=list)

    def on_release(self, action: Callable[[], object]) -> None:
        """Local. Run ``action`` when the request is freed, before what was added earlier."""
        self.closing.append(action)

    def pieces(self, first: int, stop: int) -> list[NDArray[np.uint8]]:
        """Local. The bytes of some groups, in parts that one message can carry; one at least."""
        start, end = self.grouping.span(first, stop)
        cuts = range(start, end, LARGEST_PIECE) or [start]
        return [self.memory[cut : min(cut + LARGEST_PIECE, end)] for cut in cuts]


def persistent_send(link: Link, data: NDArray[np.generic], tag: int) -> MPI.Prequest:
    """Local. A persistent message to the peer, freed with the request."""
    message = link.comm.Send_init([data, MPI.BYTE], link.peer, tag)
    link.on_release(message.Free)
    return message


def persistent_receive(link: Link, data: NDArray[np.generic], tag: int) -> MPI.Prequest:
    """Local. A persistent message from the peer, freed with the request."""
    message = link.comm.Recv_init([data, MPI.BYTE], link.peer, tag)
    link.on_release(message.Free)
    return message


class Outbound:
    """The sending end of a link; this one leads nowhere (``MPI.PROC_NULL``).

    Its request calls it under a lock, from a thread that may call MPI. No call waits for the peer.
    """

    def __init__(self, link: Link) -> None:
        self.link = link

    @classmethod
    def of(cls, link: Link) -> Outbound:
        """Local. The sending end of a link by this transport."""
        return cls(link)

    @classmethod
    def recommended(cls, sender: Letter, receiver: Letter) -> bool:
        """Local, the same on both sides. Whether ``auto`` takes this transport where it can."""
        return True

    @classmethod
    def obstacle(cls, sender: Letter, receiver: Letter) -> str:
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

    def push(self) -> None:
        """Bring on its way what has left. The only call that may wait: for a flush."""

    def idle(self) -> bool:
        """Whether all that has left is on its way and the buffer can be used again."""
        return True


class Arrivals:
    """Which groups have come in a round."""

    def __init__(self, groups: int) -> None:
        self._come = np.zeros(groups, np.bool_)
        self._flags: memoryview = self._come.data
        self.missing = 0

    def reset(self) -> None:
        """A round begins: nothing has come."""
        self._come[:] = False
        self.missing = self._come.size

    def add(self, first: int, stop: int) -> None:
        """The groups ``first`` to ``stop - 1`` have come."""
        if stop - first == 1:
            self._flags[first] = True
        else:
            self._come[first:stop] = True
        self.missing -= stop - first

    def all(self, first: int, stop: int) -> bool:
        """Whether the groups ``first`` to ``stop - 1`` have come."""
        if stop - first == 1:
            return bool(self._flags[first])
        return bool(self._come[first:stop].all())


class Inbound:
    """The receiving end of a link; this one receives nothing (``MPI.PROC_NULL``)."""

    def __init__(self, link: Link) -> None:
        self.link = link

    @classmethod
    def of(cls, link: Link) -> Inbound:
        """Local. The receiving end of a link by this transport."""
        return cls(link)

    def begin(self) -> None:
        """A round begins: the buffer may be written."""

    def advance(self) -> bool:
        """Whether all groups have come."""
        return True

    def arrived(self, first: int, stop: int) -> bool:
        """Whether the groups ``first`` to ``stop - 1`` have come."""
        return True
