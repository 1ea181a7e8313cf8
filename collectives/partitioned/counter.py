"""Which partitions of a round are ready, counted group by group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from onesided.collectives.partitioned.grouping import Grouping

try:
    from onesided.collectives.partitioned import _compiled
except ImportError:  # no compiler was present
    _compiled = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from onesided.collectives.partitioned._compiled import Counter as CompiledCounter

    AnyCounter: TypeAlias = "Counter | CompiledCounter"

#: Whether the compiled counter is there.
COMPILED = _compiled is not None


def compiled_counter(grouping: Grouping) -> CompiledCounter | None:
    """Local. A counter in C, with every partition marked; None where it has not been built."""
    if _compiled is None:
        return None
    return _compiled.Counter(grouping.partitions, grouping.part, grouping.per)


class Counter:
    """One flag per partition, one counter per group, and the complete groups that have not left.

    Not locked: the request that owns it is. Before the first round, and after :meth:`close`, every
    partition counts as marked. Single marks go through memoryviews, which Python indexes faster
    than arrays; marks in bulk through the arrays over the same memory.
    """

    def __init__(self, grouping: Grouping) -> None:
        self._grouping = grouping
        self._flags = np.ones(grouping.partitions, np.uint8)
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
        self.missing, self.waiting = self._grouping.partitions, 0

    def close(self) -> None:
        """There is no round: nothing can be marked, nothing leaves."""
        self._flags[:] = 1
        self._pending[:] = False
        self.missing = self.waiting = 0

    def mark(self, index: int) -> bool:
        """Mark a partition; false where it is marked already."""
        if self.flags[index]:
            return False
        self.flags[index] = 1
        self.missing -= 1
        group = index // self._grouping.per
        count = self.counts[group] + 1
        self.counts[group] = count
        if count == self.full[group]:
            self.pending[group] = True
            self.waiting += 1
        return True

    def mark_range(self, low: int, high: int) -> int:
        """Mark the partitions from low to high, both included, and return -1.

        Where some of them are marked already it changes nothing and returns the first of those.
        """
        flags = self._flags[low : high + 1]
        if flags.any():
            return low + int(flags.argmax())
        per = self._grouping.per
        flags[:] = 1
        self.missing -= high + 1 - low
        first, last = low // per, high // per
        counts = self._counts[first : last + 1]
        counts += per
        counts[0] -= low - first * per
        counts[-1] -= (last + 1) * per - (high + 1)
        self._add(np.arange(first, last + 1), counts == self._full[first : last + 1])
        return -1

    def mark_list(self, ids: NDArray[np.int64]) -> int:
        """Mark these partitions, and return -1.

        Where some are marked already, or occur twice, it changes nothing and returns such a one.
        """
        ready = ids[self._flags[ids] != 0]
        if ready.size:
            return int(ready[0])
        found, times = np.unique(ids, return_counts=True)
        if found.size < ids.size:
            return int(found[times > 1][0])
        self._flags[ids] = 1
        self.missing -= ids.size
        groups, added = np.unique(ids // self._grouping.per, return_counts=True)
        self._counts[groups] += added
        self._add(groups, self._counts[groups] == self._full[groups])
        return -1

    def _add(self, groups: NDArray[np.int64], complete: NDArray[np.bool_]) -> None:
        count = int(np.count_nonzero(complete))
        if count:
            self._pending[groups[complete]] = True
            self.waiting += count

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
