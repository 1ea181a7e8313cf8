"""Data from rank to rank between nodes: Puts, a counter behind them, and a credit back.

The parent Puts into the child's buffer, flushes, and Accumulates the number of segments that have
come into the child's control memory; that it has got there is waited for only before the next one
leaves, and at the end. The parent writes only when it has the child's *credit* for this round: an
empty message that the child sends in ``Start``, when the round before is over on it
(:mod:`..alternation` counts them). Nothing is reset.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from onesided.collectives.alternation import Creditor
from onesided.collectives.broadcast.control import ARRIVED, Control
from onesided.collectives.broadcast.operation import Broadcast
from onesided.collectives.broadcast.places import Place
from onesided.collectives.context import Resources, refusal
from onesided.collectives.copies import LARGEST_PIECE


class Links:
    """The windows of one request, and what this rank Puts through them."""

    def __init__(
        self,
        broadcast: Broadcast,
        resources: Resources,
        control: Control,
        place: Place,
        segment: int,
    ) -> None:
        """Collective over the context, where not all its ranks are on one node.

        ``place``: the parent and the children that are on other nodes. ``segment``: bytes that are
        counted as one.
        """
        self.segment = segment
        self.count = -(-broadcast.nbytes // segment)
        self._comm = broadcast.context.comm
        self._resources = resources
        self._memory = broadcast.memory()
        self._arrived = control.counter(ARRIVED)
        self._data = self._window(None if place.parent is None else self._memory)
        self._counters = self._window(control.mine)
        control.syncs += [self._data.Sync, self._counters.Sync]
        self._words = {child: np.zeros(1, np.int64) for child in place.children}  # on their way
        resources.keep += self._words.values()

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
        self.settle(child)
        word = self._words[child]
        word[0] = round_number * self.count + last
        place = [ARRIVED, 1, MPI.INT64_T]
        self._counters.Accumulate([word, 1, MPI.INT64_T], child, place, MPI.REPLACE)

    def settle(self, child: int) -> None:
        """What has been told to ``child`` is there."""
        self._counters.Flush(child)

    def forget(self) -> None:
        """Local. Drop every view of the memory."""
        self._memory = self._arrived = memoryview(b"")


def credits_of_links(place: Place) -> Creditor:
    """Local. The credits of a request with links: to the parent, from the children."""
    above = [] if place.parent is None else [place.parent]
    return Creditor([], [], above, list(place.children), True)
