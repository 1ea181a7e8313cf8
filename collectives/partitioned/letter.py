"""What the two sides of a partitioned send tell each other, once."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

SENDER, RECEIVER = 0, 1


@dataclass(frozen=True)
class Letter:
    """The parameters of one side, as integers.

    ``base`` is the first of the message tags that the writer chose for what it sends; ``method``
    its place in the registry, -1 for auto. ``visible`` is 1 where the receive buffer lies in
    node-shared memory that the sender sees too: then ``key_high`` and ``key_low`` name the region,
    ``segment`` the receiver's segment of it and ``offset`` the place in there, in bytes.
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
