"""Which partitions leave together, and which are ready: m-to-1 aggregation, without any MPI.

Partitions are counted group by group, by the compiled core where it is there, and by
:class:`Counter` elsewhere, which is its reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from onesided.collectives.program import COMPILED

if TYPE_CHECKING:
    from onesided.collectives._core import Counter as CompiledCounter

    AnyCounter: TypeAlias = "Counter | CompiledCounter"


@dataclass(frozen=True)
class Grouping:
    """``partitions`` equal parts of ``nbytes`` bytes, ``per`` of them in a *group*.

    A group is what the papers call an internal partition: the least that leaves at once. The last
    group is smaller where ``per`` does not divide ``partitions``.
    """

    partitions: int
    nbytes: int
    per: int

    @classmethod
    def of(cls, partitions: int, nbytes: int, aggregate: int) -> Grouping:
        """As many partitions to a group as ``aggregate`` bytes hold, one at least."""
        part = nbytes // partitions
        per = partitions if part == 0 else min(max(aggregate // part, 1), partitions)
        return cls(partitions, nbytes, per)

    @property
    def part(self) -> int:
        """Bytes of a partition."""
        return self.nbytes // self.partitions

    @property
    def groups(self) -> int:
        return -(-self.partitions // self.per)

    def span(self, first: int, stop: int) -> tuple[int, int]:
        """Offsets in bytes between which the groups ``first`` to ``stop - 1`` lie."""
        size = self.part * self.per
        return first * size, min(stop * size, self.nbytes)

    def covering(self, start: int, end: int) -> tuple[int, int]:
        """First group, and the one after the last, that overlap the bytes from start to end.

        A message without bytes is one group, and its partitions come with it.
        """
        if start == end:
            return 0, self.groups
        size = self.part * self.per
        return start // size, -(-end // size)


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
        self._full[-1] -= grouping.per * grouping.groups - grouping.partitions
        self._pending = np.zeros(grouping.groups, np.bool_)
        arrays: tuple[Any, ...] = (self._flags, self._counts, self._full, self._pending)
        views: list[memoryview] = [memoryview(array) for array in arrays]
        self._flag, self._count, self._whole, self._waits = views
        self.missing = 0  # partitions that are not ready
        self.waiting = 0  # complete groups that have not left

    def reset(self) -> None:
        """A round begins: nothing is ready."""
        self._flags[:] = 0
        self._counts[:] = 0
        self._pending[:] = False
        self.missing, self.waiting = self._grouping.partitions, 0

    def close(self) -> bool:
        """There is no round any more that lacks partitions: nothing can be marked, nothing leaves.
        Whether there was one."""
        lacks = self.missing > 0
        if lacks:
            self._flags[:] = 1
            self._pending[:] = False
            self.missing = self.waiting = 0
        return lacks

    def mark(self, which: int | NDArray[np.int64]) -> int:
        """Mark a partition, or many, and return -1.

        Where some are marked already, or occur twice, it changes nothing and returns such a one.
        """
        if not isinstance(which, int):
            return self._mark_many(which)
        if self._flag[which]:
            return which
        self._flag[which] = 1
        self.missing -= 1
        group = which // self._grouping.per
        count = self._count[group] + 1
        self._count[group] = count
        if count == self._whole[group]:
            self._waits[group] = True
            self.waiting += 1
        return -1

    def _mark_many(self, ids: NDArray[np.int64]) -> int:
        ready = ids[self._flags[ids] != 0]
        if ready.size:
            return int(ready[0])
        found, times = np.unique(ids, return_counts=True)
        if found.size < ids.size:
            return int(found[times > 1][0])
        groups, added = np.unique(ids // self._grouping.per, return_counts=True)
        counts = self._counts[groups] + added
        complete = groups[counts == self._full[groups]]
        self._flags[ids] = 1  # from here on nothing fails
        self._counts[groups] = counts
        self._pending[complete] = True
        self.missing -= ids.size
        self.waiting += complete.size
        return -1

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
        return [partition for partition, ready in enumerate(self._flag) if not ready]


def compiled_counter(grouping: Grouping) -> CompiledCounter | None:
    """Local. A counter in C, with every partition marked; None without the core."""
    if not COMPILED:
        return None
    from onesided.collectives import _core

    return _core.Counter(grouping.partitions, grouping.part, grouping.per)
