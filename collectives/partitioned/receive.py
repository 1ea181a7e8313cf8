"""The receiving side of a partitioned send."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onesided.collectives.errors import RequestError
from onesided.collectives.handle import ACTIVE, FREED
from onesided.collectives.partitioned.arguments import Arguments
from onesided.collectives.partitioned.letter import Letter
from onesided.collectives.partitioned.link import Inbound, Link
from onesided.collectives.partitioned.mailbox import Mailbox
from onesided.collectives.partitioned.registry import PartitionedMethod
from onesided.collectives.partitioned.request import PartitionedRequest, as_index


class PartitionedReceive(PartitionedRequest):
    """Partitions, cut as this side likes, can be read as soon as they have arrived.

    The buffer is the peer's from ``Start`` until ``Wait``, but for the partitions of which
    :meth:`Parrived` has said that they are there.
    """

    def __init__(
        self,
        arguments: Arguments,
        mailbox: Mailbox,
        letter: Letter,
        give_back: Callable[[], object] | None,
    ) -> None:
        """``give_back``: called when the request is freed."""
        super().__init__(arguments, mailbox, letter)
        self._end: Inbound | None = None
        self._give_back = give_back

    def Parrived(self, partition: int) -> bool:
        """Local. Whether a partition can be read: all groups that it is made of have come.

        True on an inactive request, as in MPI. Advances this request only; under a
        thread level below multiple it does so in the main thread only, elsewhere it is false.
        Raises :class:`RequestError` where there is no such partition, and on a freed request; the
        error of the handshake comes from :meth:`Wait` and :meth:`Test`.
        """
        with self._lock:
            if self._state is FREED:
                raise self._misuse("asked for a partition")
            index = as_index(partition, self.partitions, self)
            if self._state is not ACTIVE:
                return True
            if not self.may_call():
                return False
            if self._link is None:
                if not self.find_peer():
                    return False
                self.begin()
            link, end = self._link, self._end
            if link is None or end is None:
                return False
            part = self.arguments.memory.size // self.partitions
            return end.arrived(*link.grouping.covering(index * part, (index + 1) * part))

    def Pready(self, partition: int) -> None:
        """Local. It raises: only the sending side marks."""
        raise RequestError(f"a receive has no partition to mark: {self!r}")

    def Pready_range(self, low: int, high: int) -> None:
        """Local. It raises: only the sending side marks."""
        self.Pready(low)

    def Pready_list(self, partitions: Any) -> None:
        """Local. It raises: only the sending side marks."""
        self.Pready(-1)

    # -- inside ----------------------------------------------------------------------------------

    def connect(self, method: PartitionedMethod | None, link: Link) -> None:
        self._end = (Inbound if method is None else method.receiver()).of(link)

    def reset(self) -> None:
        if self._watched and not self.arguments.nowhere:
            self.arguments.memory[:] = 0xFF  # nothing can have come: the round has not begun

    def waiting_for(self) -> str:
        return "its peer" if self._link is None else "partitions to arrive"

    def begin(self) -> None:
        if self._end is not None:
            self._end.begin()

    def advance(self) -> bool:
        return self._end is None or self._end.advance()

    def forget(self) -> None:
        self._end = None
        if self._give_back is not None:
            self._give_back()
            self._give_back = None
