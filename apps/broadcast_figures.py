"""Figures 13 to 16 of paper 003: the time of a broadcast over message size and number of ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from onesided.apps.picture import save_lines
from onesided.apps.report import byte_count

MEBI = 1 << 20
#: Number of ranks, bytes and name of a contestant; seconds.
Times = Mapping[tuple[int, int, str], Sequence[float]]


@dataclass(frozen=True)
class Figure:
    """One of the four: over the message sizes for one number of ranks, or the other way round."""

    number: int
    sizes: Sequence[int]
    counts: Sequence[int]
    over_sizes: bool

    def path(self, prefix: str) -> str:
        """Local. Where it is written."""
        return f"{prefix}-{self.number}.png"

    def draw(self, prefix: str, names: Sequence[str], times: Times) -> None:
        """Local. A line for every contestant that was timed; times are medians."""
        places = [(count, size) for count in self.counts for size in self.sizes]
        lines: dict[str, tuple[list[float], list[float]]] = {}
        for name in names:
            known = [place for place in places if (*place, name) in times]
            if known:
                x = [float(size if self.over_sizes else count) for count, size in known]
                lines[name] = (x, [median(times[*place, name]) for place in known])
        fixed = f"{self.counts[0]} ranks" if self.over_sizes else byte_count(self.sizes[0])
        label = "bytes" if self.over_sizes else "ranks"
        title = f"Broadcast, {fixed} (as Figure {self.number})"
        scale = "log" if self.over_sizes else "linear"
        save_lines(self.path(prefix), title, (label, "median time in s"), lines, x_scale=scale)


def figures(sizes: Sequence[int], counts: Sequence[int]) -> list[Figure]:
    """Local. Those that a sweep has data for.

    13 and 14 are for sizes from 1 MiB on, 15 and 16 for smaller ones; the first of each two is
    over the sizes at the largest number of ranks, the second over the ranks at the largest size.
    """
    found = []
    for number, chosen in (
        (13, sorted(size for size in set(sizes) if size >= MEBI)),
        (15, sorted(size for size in set(sizes) if size < MEBI)),
    ):
        if chosen:
            found.append(Figure(number, chosen, [max(counts)], True))
            found.append(Figure(number + 1, [chosen[-1]], sorted(set(counts)), False))
    return found
