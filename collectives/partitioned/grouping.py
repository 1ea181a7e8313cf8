"""Which partitions leave together: m-to-1 aggregation, as geometry without any MPI."""

from __future__ import annotations

from dataclasses import dataclass


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
    def size(self) -> int:
        """Bytes of a group other than the last one."""
        return self.part * self.per

    @property
    def groups(self) -> int:
        return -(-self.partitions // self.per)

    @property
    def last(self) -> int:
        """Partitions of the last group."""
        return self.partitions - (self.groups - 1) * self.per

    def span(self, first: int, stop: int) -> tuple[int, int]:
        """Offsets in bytes between which the groups ``first`` to ``stop - 1`` lie."""
        return first * self.size, min(stop * self.size, self.nbytes)

    def covering(self, start: int, end: int) -> tuple[int, int]:
        """First group, and the one after the last, that overlap the bytes from start to end.

        A message without bytes is one group, and its partitions come with it.
        """
        if start == end:
            return 0, self.groups
        return start // self.size, -(-end // self.size)
