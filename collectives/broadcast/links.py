"""Data from rank to rank between nodes: Puts, a counter behind them, and a credit back.

The parent Puts into the child's buffer, flushes, Accumulates the number of segments that have
come into the child's control memory, and flushes again. It writes only when it has the child's
*credit* for this round: an empty message that the child sends in ``Start``, when the round before
is over on it (:mod:`..alternation` counts them). Nothing is reset, and no rank that nothing is
sent to takes part.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from onesided.collectives.alternation import Creditor
from onesided.collectives.broadcast.control import ARRIVED, Control
from onesided.collectives.broadcast.operation import Broadcast
from onesided.collectives.context import Resources, refusal
from onesided.collectives.copies import LARGEST_PIECE


class Links:
    """The windows of one request, and what this rank Puts through them."""

    def __init__(
        self,
        broadcast: Broadcast,
        resources: Resources,
        control: Control,
        receives: bool,
        segment: int,
    ) -> None:
        """Collective over the context, where not all its ranks are on one node.

        ``receives``: this rank's buffer is written from another node. ``segment``: bytes that are
        counted as one.
        """
        self.segment = segment
        self.count = -(-broadcast.nbytes // segment)
        self._comm = broadcast.context.comm
        self._resources = resources
        self._memory = broadcast.memory()
        self._arrived = control.counter(ARRIVED)
        self._data = self._window(self._memory if receives else None)
        self._counters = self._window(control.mine)
        control.syncs += [self._data.Sync, self._counters.Sync]
        self._words = np.zeros(2, np.int64)
        resources.keep.append(self._words)

    def _window(self, memory: Any) -> MPI.Win:
        try:
            window = MPI.Win.Create(memory, 1, MPI.INFO_NULL, self._comm)
        except MPI.Exception as error:
            raise refusal(error) from error
        self._resources.on_release(window.Free)
        window.Lock_all(MPI.MODE_NOCHECK)
        self._resources.on_release(window.Unlock_all)
        return window

    def arrived(self, round_number: int) -> int:
        """Local. Segments of a round, numbered from 0, that have come to this rank."""
        came: int = self._arrived[0]
        return min(max(came - round_number * self.count, 0), self.count)

    def put(self, child: int, first: int, last: int) -> None:
        """Local. Put segments ``first`` to ``last - 1`` into the buffer of ``child``."""
        start, stop = first * self.segment, min(last * self.segment, len(self._memory))
        for offset in range(start, stop, LARGEST_PIECE):
            part = self._memory[offset : min(offset + LARGEST_PIECE, stop)]
            self._data.Put([part, len(part), MPI.BYTE], child, [offset, len(part), MPI.BYTE])

    def flush(self, child: int) -> None:
        """What has been Put is in the buffer of ``child``; may wait until it enters MPI."""
        self._data.Flush(child)

    def tell(self, child: int, round_number: int, last: int) -> None:
        """Tell ``child`` that the first ``last`` segments of a round are in its buffer."""
        word = self._words[last % 2 : last % 2 + 1]
        word[0] = round_number * self.count + last
        place = [ARRIVED, 1, MPI.INT64_T]
        self._counters.Accumulate([word, 1, MPI.INT64_T], child, place, MPI.REPLACE)
        self._counters.Flush(child)

    def forget(self) -> None:
        """Local. Drop every view of the memory."""
        self._memory = self._arrived = memoryview(b"")


def credits_of_links(parent: int | None, children: tuple[int, ...]) -> Creditor:
    """Local. The credits of a request with links: to the parent, from the children."""
    return Creditor([], [], [] if parent is None else [parent], list(children), True)
