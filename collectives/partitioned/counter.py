"""Which partitions of a round are ready, counted group by group."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.collectives.partitioned.grouping import Grouping


class Counter:
    """One flag per partition, one counter per group, and the complete groups that have not left.

    Not locked: the request that owns it is. Single marks go through memoryviews, which Python
    indexes faster than arrays; marks in bulk through the arrays over the same memory.
    """

    def __init__(self, grouping: Grouping) -> None:
        self.grouping = grouping
        self._flags = np.zeros(grouping.partitions, np.uint8)
        self._counts = np.zeros(grouping.groups, np.int64)
        self._full = np.full(grouping.groups, grouping.per, np.int64)
        self._full[-1] = grouping.last
        self._pending = np.zeros(grouping.groups, np.bool_)
        flags, counts, full, pending = self._flags, self._counts, self._full, self._pending
        self.flags: memoryview = _memory(flags)
        self.counts: memoryview = _memory(counts)
        self.full: memoryview = _memory(full)
        self.pending: memoryview = _memory(pending)
        self.missing = 0  # partitions that are not ready
        self.waiting = 0  # complete groups that have not left

    def reset(self) -> None:
        """A round begins: nothing is ready."""
        self._flags[:] = 0
        self._counts[:] = 0
        self._pending[:] = False
        self.missing, self.waiting = self.grouping.partitions, 0

    def mark(self, index: int) -> bool:
        """Mark a partition that is not ready; true where this completes its group."""
        self.flags[index] = 1
        self.missing -= 1
        group = index // self.grouping.per
        count = self.counts[group] + 1
        self.counts[group] = count
        if count < self.full[group]:
            return False
        self.pending[group] = True
        self.waiting += 1
        return True

    def first_ready(self, low: int, high: int) -> int:
        """The first partition from low to high, both included, that is ready; -1 for none."""
        part = self._flags[low : high + 1]
        return low + int(part.argmax()) if part.any() else -1

    def mark_range(self, low: int, high: int) -> bool:
        """Mark the partitions from low to high, both included; true where a group is complete."""
        per = self.grouping.per
        self._flags[low : high + 1] = 1
        self.missing -= high + 1 - low
        first, last = low // per, high // per
        counts = self._counts[first : last + 1]
        counts += per
        counts[0] -= low - first * per
        counts[-1] -= (last + 1) * per - (high + 1)
        complete = counts == self._full[first : last + 1]
        return self._add(slice(first, last + 1), complete)

    def mark_list(self, ids: NDArray[np.int64]) -> bool:
        """Mark different partitions, none of them ready; true where a group is complete."""
        self._flags[ids] = 1
        self.missing -= ids.size
        groups, added = np.unique(ids // self.grouping.per, return_counts=True)
        self._counts[groups] += added
        complete = groups[self._counts[groups] == self._full[groups]]
        return self._add(complete, np.ones(complete.size, np.bool_))

    def _add(self, where: Any, complete: NDArray[np.bool_]) -> bool:
        count = int(np.count_nonzero(complete))
        if count:
            self._pending[where] |= complete
            self.waiting += count
        return count > 0

    def ready(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Those of the partitions that are ready."""
        found: NDArray[np.int64] = ids[self._flags[ids] != 0]
        return found

    def take(self) -> tuple[int, int]:
        """First and one past the last of the first run of complete groups; they leave now."""
        first = int(self._pending.argmax())
        rest = self._pending[first:]
        end = int(rest.argmin())
        stop = first + (rest.size if rest[end] else end)
        self._pending[first:stop] = False
        self.waiting -= stop - first
        return first, stop

    def unmarked(self) -> list[int]:
        """The partitions that are not ready."""
        found: list[int] = np.flatnonzero(self._flags == 0).tolist()
        return found


def _memory(array: Any) -> memoryview:
    return memoryview(array)
