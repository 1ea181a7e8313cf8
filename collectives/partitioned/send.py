"""The sending side of a partitioned send."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.collectives import debug
from onesided.collectives.errors import RequestError
from onesided.collectives.handle import ACTIVE
from onesided.collectives.partitioned.arguments import Arguments
from onesided.collectives.partitioned.counter import Counter, compiled_counter
from onesided.collectives.partitioned.letter import Letter
from onesided.collectives.partitioned.link import Link, Outbound
from onesided.collectives.partitioned.mailbox import Mailbox
from onesided.collectives.partitioned.registry import PartitionedMethod
from onesided.collectives.partitioned.request import PartitionedRequest, as_index
from onesided.collectives.partitioned.seal import Seal


class PartitionedSend(PartitionedRequest):
    """Partitions are marked ready one by one, or many at once; groups leave when they are complete.

    A partition must not be modified from its mark until the request is inactive again. Threads may
    mark in any order and at the same time; a mark never waits for the peer.
    """

    def __init__(
        self, arguments: Arguments, mailbox: Mailbox, letter: Letter, compiled: bool = True
    ) -> None:
        """``compiled``: count in C, where that has been built."""
        super().__init__(arguments, mailbox, letter)
        grouping = arguments.grouping
        self._seal = Seal(arguments) if debug.enabled() else None
        in_c = compiled and self._seal is None
        self._compiled = compiled_counter(grouping) if in_c else None
        self._counter = Counter(grouping) if self._compiled is None else self._compiled
        self._end: Outbound | None = None
        if self._compiled is not None:
            self._compiled.bind(self._completed, self._mark, self._mark_range)
            self.__dict__["Pready"] = self._compiled.pready
            self.__dict__["Pready_range"] = self._compiled.pready_range

    @property
    def compiled(self) -> bool:
        """Local. Whether partitions are counted in C."""
        return self._compiled is not None

    def Pready(self, partition: int) -> None:
        """Local. A partition is ready; its group leaves when it is the last one of it.

        Raises :class:`RequestError`, and changes nothing, where the request is not active, the
        partition is ready already or does not exist.
        """
        self._mark(partition)

    def _mark(self, partition: int) -> None:
        counter = self._counter
        self._lock.acquire()  # "with" takes longer, and this is called for every partition
        try:
            if self._state is not ACTIVE:
                raise self._misuse("marked ready")
            if partition.__class__ is not int or not 0 <= partition < self.partitions:
                partition = as_index(partition, self.partitions, self)
            before = counter.waiting
            if not counter.mark(partition):
                raise self._twice(partition)
            if self._seal is not None:
                self._seal.marked([partition])
            if counter.waiting > before:
                self._push()
        finally:
            self._lock.release()

    def Pready_range(self, low: int, high: int) -> None:
        """Local. The partitions from ``low`` to ``high``, both included, are ready.

        Raises as :meth:`Pready` does, and :class:`RequestError` where ``low`` exceeds ``high``.
        """
        self._mark_range(low, high)

    def _mark_range(self, low: int, high: int) -> None:
        with self._lock:
            if self._state is not ACTIVE:
                raise self._misuse("marked ready")
            low, high = (as_index(value, self.partitions, self) for value in (low, high))
            if low > high:
                raise RequestError(f"no partitions from {low} to {high}: {self!r}")
            ready = self._counter.mark_range(low, high)
            if ready >= 0:
                raise self._twice(ready)
            if self._seal is not None:
                self._seal.marked(range(low, high + 1))
            if self._counter.waiting:
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
            ready = self._counter.mark_list(ids)
            if ready >= 0:
                raise self._twice(ready)
            if self._seal is not None:
                self._seal.marked(ids.tolist())
            if self._counter.waiting:
                self._push()

    def _ids(self, partitions: Any) -> NDArray[np.int64]:
        if partitions.dtype.kind not in "iu" or partitions.ndim != 1:
            raise RequestError(f"no list of partitions: {partitions!r}")
        for value in (int(partitions.min()), int(partitions.max())):
            as_index(value, self.partitions, self)
        return np.ascontiguousarray(partitions, np.int64)

    def Parrived(self, partition: int) -> bool:
        """Local. It raises: only the receiving side knows what has arrived."""
        raise RequestError(f"a send has no partition that arrives: {self!r}")

    @property
    def filling(self) -> bool:
        return super().filling or self._counter.missing > 0

    # -- inside ----------------------------------------------------------------------------------

    def connect(self, method: PartitionedMethod | None, link: Link) -> None:
        link.compiled = self._compiled
        self._end = (Outbound if method is None else method.sender()).of(link)

    def reset(self) -> None:
        self._counter.reset()

    def stop(self) -> None:
        self._counter.close()

    def complete(self) -> None:
        if self._seal is not None:
            self._seal.check(self)

    def waiting_for(self) -> str:
        counter = self._counter
        if counter.missing:
            return f"{counter.missing} partitions to be marked"
        return f"{counter.waiting} groups to leave, and for what has left to arrive"

    def begin(self) -> None:
        if self._end is not None:
            self._end.begin()

    def _completed(self) -> None:
        """The compiled counter has a group that it cannot send."""
        with self._lock:
            if self._state is ACTIVE:
                self._push()

    def _push(self) -> None:
        """Let go what is complete, where this thread may call MPI and the peer is known."""
        if not self.may_call():
            return
        if self._link is None:
            if not self.find_peer():
                return
            self.begin()
        if self._end is not None:
            self._end.drain(self._counter)

    def advance(self) -> bool:
        counter, end = self._counter, self._end
        if end is None:
            return not counter.missing
        end.drain(counter)
        end.push()
        return not (counter.missing or counter.waiting) and end.idle()

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
        self._counter.close()
        if self._compiled is not None:
            for verb in ("Pready", "Pready_range"):
                self.__dict__.pop(verb, None)
            self._compiled.bind(_freed, _freed, _freed)  # or the two keep each other alive

    def _twice(self, partition: int) -> RequestError:
        return RequestError(f"partition {partition} is marked ready twice: {self!r}")


def _freed(*partition: object) -> None:
    raise RequestError("a freed request cannot be marked ready")
