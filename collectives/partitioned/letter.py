"""What the two sides of a partitioned send tell each other, once."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

SENDER, RECEIVER = 0, 1

#: How the sender sees the receive buffer: not at all, in shared memory, or through a window.
NOWHERE, ON_NODE, BY_WINDOW = 0, 1, 2


@dataclass(frozen=True)
class Letter:
    """The parameters of one side, as integers.

    ``base`` is the first of the message tags that the writer chose for what it sends; ``method``
    its place in the registry, -1 for auto. ``visible`` tells whether the receive buffer lies in
    memory that the sender sees: then ``key_high`` and ``key_low`` name the region, ``segment`` the
    receiver's rank in its node, or in its window, and ``offset`` the place in its memory. In shared
    memory ``board`` is the place of the receiver's board, and ``generation`` tells its links from
    each other. Places are in bytes.
    """

    side: int
    tag: int
    nbytes: int
    partitions: int
    aggregate: int
    base: int
    method: int
    visible: int = 0
    key_high: int = 0
    key_low: int = 0
    segment: int = 0
    offset: int = 0
    board: int = 0
    generation: int = 0

    def packed(self) -> NDArray[np.uint64]:
        mask = (1 << 64) - 1
        values = [getattr(self, field.name) & mask for field in fields(self)]
        return np.array(values, np.uint64)

    @classmethod
    def unpacked(cls, words: NDArray[np.uint64]) -> Letter:
        values = [int(word) for word in words.view(np.int64)]
        return cls(*values)

    @property
    def key(self) -> str:
        """The key of the region, as :class:`~..memory.Region` has it."""
        mask = (1 << 64) - 1
        return f"{self.key_high & mask:016x}{self.key_low & mask:016x}"


#: Integers of a letter.
LENGTH = len(fields(Letter))
