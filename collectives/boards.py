"""Boards: words in shared memory by which two ranks of a node tell each other what has come.

A board belongs to the receiving end of a partitioned send and lies behind the data of an array
from :func:`~onesided.collectives.empty`, where the sender sees it too. The receiver writes the
number of the round that it has begun, and how many entries it has read; the sender writes entries
and how many there are. Each of these words has a cache line of its own, and only ever grows.
"""

from __future__ import annotations

import threading

#: Places of the words, of 8 bytes each.
CREDIT, HEAD, TAIL, ENTRIES = 0, 8, 16, 24

#: Entries of a board; where all are unread the sender lets groups gather.
ROOM = 64

#: Bytes from one board to the next, a multiple of two cache lines.
STEP = -(-(ENTRIES + ROOM) * 8 // 128) * 128


class Boards:
    """Which boards of an array are in use; they lie side by side from ``start``, in bytes."""

    def __init__(self, start: int, count: int) -> None:
        self._free = [start + STEP * number for number in reversed(range(count))]
        self._lock = threading.Lock()

    def take(self) -> int | None:
        """Local. The place of a board that nobody uses, in bytes; None where all are in use."""
        with self._lock:
            return self._free.pop() if self._free else None

    def give(self, place: int) -> None:
        """Local. Nobody uses this board any more."""
        with self._lock:
            self._free.append(place)
