"""Figures 3 to 6 of the paper on partitioned communication: bandwidth over the partition size."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from onesided.apps.partitioned.markings import ONE_BY_ONE
from onesided.apps.partitioned.orders import LEFT_TO_RIGHT, NEIGHBOURHOOD, RANDOMIZED
from onesided.apps.partitioned.sweep import Place, Result
from onesided.apps.picture import save_lines

Results = Mapping[Place, Sequence[Result]]
Lines = dict[str, tuple[list[float], list[float]]]
MESSAGES, PARTITIONED = ("send", "persistent", "isend"), "psend"


@dataclass(frozen=True)
class Figure:
    """One of them: its name, its title, and which results are in it; ``legend`` names a line."""

    name: str
    title: str
    takes: Callable[[Place, Result], bool]
    legend: Callable[[Place, Result], str]

    def path(self, prefix: str) -> str:
        """Local. Where it is written."""
        return f"{prefix}-{self.name}.png"

    def draw(self, prefix: str, results: Results, nbytes: int) -> None:
        """Local. Bandwidths as in Listing 1, by the mean; no figure where nothing was timed."""
        lines = self.lines(results, nbytes)
        if not lines:
            Path(self.path(prefix)).unlink(missing_ok=True)
            return
        labels = ("bytes of a partition", "GB/s")
        save_lines(self.path(prefix), self.title, labels, lines)

    def lines(self, results: Results, nbytes: int) -> Lines:
        """Local. By legend: sizes of partitions, and bandwidths in GB/s."""
        found: Lines = {}
        for place, each in sorted(results.items(), key=lambda entry: entry[0].part):
            for result in each:
                if result.times and self.takes(place, result):
                    x, y = found.setdefault(self.legend(place, result), ([], []))
                    x.append(float(place.part))
                    y.append(nbytes / fmean(result.times) / 1e9)
        return found


def figures(options: Namespace) -> list[Figure]:
    """Local. Those of the paper's four that a sweep has data for, the last one in two parts."""
    order, count = options.orders[0], options.threads[0]

    def one_by_one(result: Result, *methods: str) -> bool:
        entry = result.entry
        return entry.contestant.method in methods and entry.marking is ONE_BY_ONE

    def grouped(result: Result) -> bool:
        return bool(result.entry.contestant.aggregate) and result.entry.marking is ONE_BY_ONE

    def in_orders(*orders: str) -> Callable[[Place, Result], bool]:
        return lambda place, result: (
            place.order in orders
            and place.threads == count
            and (grouped(result) or one_by_one(result, PARTITIONED))
        )

    def with_order(place: Place, result: Result) -> str:
        return f"{result.entry.contestant.name} {place.order}"

    found = [
        Figure(
            "3",
            f"Messages and partitions, {order}, {_threads(count)}",
            lambda place, result: place.order == order
            and place.threads == count
            and one_by_one(result, *MESSAGES, PARTITIONED),
            lambda place, result: result.entry.contestant.name,
        ),
        Figure(
            "4",
            f"Persistent and partitioned, {order}",
            lambda place, result: place.order == order
            and one_by_one(result, "persistent", PARTITIONED),
            lambda place, result: f"{result.entry.contestant.name} {_threads(place.threads)}",
        ),
        Figure(
            "5",
            f"Partitioned in different orders, {_threads(count)}",
            lambda place, result: place.threads == count and one_by_one(result, PARTITIONED),
            with_order,
        ),
    ]
    ordered, random = [each for each in (LEFT_TO_RIGHT, NEIGHBOURHOOD) if each in options.orders], (
        RANDOMIZED)
    if ordered:
        title = f"Aggregated, {' and '.join(ordered)}, {_threads(count)}"
        found.append(Figure("6a", title, in_orders(*ordered), with_order))
    if random in options.orders:
        title = f"Aggregated, {random}, {_threads(count)}"
        found.append(Figure("6b", title, in_orders(random), with_order))
    return found


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"
