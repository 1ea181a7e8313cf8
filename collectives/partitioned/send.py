"""The sending side of a partitioned send."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import numpy as np

from onesided.collectives.errors import RequestError
from onesided.collectives.handle import ACTIVE
from onesided.collectives.partitioned.arguments import Arguments
from onesided.collectives.partitioned.counter import Counter
from onesided.collectives.partitioned.letter import Letter
from onesided.collectives.partitioned.link import Link, Outbound
from onesided.collectives.partitioned.mailbox import Mailbox
from onesided.collectives.partitioned.registry import PartitionedMethod
from onesided.collectives.partitioned.request import PartitionedRequest, as_index


class PartitionedSend(PartitionedRequest):
    """Partitions are marked ready one by one, or many at once; groups leave when they are complete.

    A partition must not be modified from its mark until the request is inactive again. Threads may
    mark in any order and at the same time; a mark never waits for the peer.
    """

    def __init__(self, arguments: Arguments, mailbox: Mailbox, letter: Letter) -> None:
        super().__init__(arguments, mailbox, letter)
        self._counter = Counter(arguments.grouping)
        self._end: Outbound | None = None

    def Pready(self, partition: int) -> None:
        """Local. A partition is ready; its group leaves when it is the last one of it.

        Raises :class:`RequestError`, and changes nothing, where the request is not active, the
        partition is ready already or does not exist.
        """
        counter = self._counter
        self._lock.acquire()  # "with" takes longer, and this is called for every partition
        try:
            if self._state is not ACTIVE:
                raise self._misuse("marked ready")
            if not 0 <= partition < len(counter.flags):
                as_index(partition, len(counter.flags), self)
            if counter.flags[partition]:
                raise self._twice(partition)
            if counter.mark(partition):
                self._push()
        except TypeError:
            as_index(partition, len(counter.flags), self)
            raise
        finally:
            self._lock.release()

    def Pready_range(self, low: int, high: int) -> None:
        """Local. The partitions from ``low`` to ``high``, both included, are ready.

        Raises as :meth:`Pready` does, and :class:`RequestError` where ``low`` exceeds ``high``.
        """
        with self._lock:
            if self._state is not ACTIVE:
                raise self._misuse("marked ready")
            low, high = (as_index(value, self.partitions, self) for value in (low, high))
            if low > high:
                raise RequestError(f"no partitions from {low} to {high}: {self!r}")
            ready = self._counter.first_ready(low, high)
            if ready >= 0:
                raise self._twice(ready)
            if self._counter.mark_range(low, high):
                self._push()

    def Pready_list(self, partitions: Iterable[int]) -> None:
        """Local. These partitions are ready. Raises as :meth:`Pready` does."""
        if not isinstance(partitions, np.ndarray):
            partitions = np.array(list(partitions))
        with self._lock:
            if self._state is not ACTIVE:
                raise self._misuse("marked ready")
            if not partitions.size:
                return
            ids = self._ids(partitions)
            if self._counter.mark_list(ids):
                self._push()

    def _ids(self, partitions: Any) -> Any:
        if partitions.dtype.kind not in "iu" or partitions.ndim != 1:
            raise RequestError(f"no list of partitions: {partitions!r}")
        low, high = int(partitions.min()), int(partitions.max())
        for value in (low, high):
            as_index(value, self.partitions, self)
        ids = partitions.astype(np.int64)
        ready = self._counter.ready(ids)
        if ready.size:
            raise self._twice(int(ready[0]))
        found, counts = np.unique(ids, return_counts=True)
        if found.size < ids.size:
            raise self._twice(int(found[counts > 1][0]))
        return ids

    def Parrived(self, partition: int) -> bool:
        """Local. It raises: only the receiving side knows what has arrived."""
        raise RequestError(f"a send has no partition that arrives: {self!r}")

    @property
    def filling(self) -> bool:
        return super().filling or self._counter.missing > 0

    # -- inside ----------------------------------------------------------------------------------

    def connect(self, method: PartitionedMethod | None, link: Link) -> None:
        self._end = (Outbound if method is None else method.sender())(link)

    def reset(self) -> None:
        self._counter.reset()

    def begin(self) -> None:
        if self._end is not None:
            self._end.begin()

    def _push(self) -> None:
        """Let go what is complete, where this thread may call MPI and the peer is known."""
        if not self.may_call():
            return
        if self._link is None:
            if not self.find_peer():
                return
            self.begin()
        self._let_go()

    def _let_go(self) -> None:
        end, counter = self._end, self._counter
        while end is not None and counter.waiting and end.may_leave():
            end.leave(*counter.take())

    def advance(self) -> bool:
        self._let_go()
        counter, end = self._counter, self._end
        return not (counter.missing or counter.waiting) and (end is None or end.idle())

    def check_hope(self) -> None:
        if self._state is ACTIVE and self._counter.missing and threading.active_count() == 1:
            missing = self._counter.unmarked()
            first = ", ".join(str(index) for index in missing[:8])
            more = ", ..." if len(missing) > 8 else ""
            raise RequestError(
                f"{len(missing)} partitions are not ready ({first}{more}) and there is no other "
                f"thread to mark them: {self!r}"
            )

    def forget(self) -> None:
        self._end = None

    def _twice(self, partition: int) -> RequestError:
        return RequestError(f"partition {partition} is marked ready twice: {self!r}")
