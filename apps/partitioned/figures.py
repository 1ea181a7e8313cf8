"""Figures 3 to 6 of the paper on partitioned communication: bandwidth over the partition size."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from onesided.apps.partitioned.markings import ONE_BY_ONE
from onesided.apps.partitioned.orders import LEFT_TO_RIGHT, NEIGHBOURHOOD, RANDOMIZED
from onesided.apps.partitioned.rows import number_of_threads
from onesided.apps.partitioned.sweep import Place, Result
from onesided.apps.picture import save_lines

Results = Mapping[Place, Sequence[Result]]
Lines = dict[str, tuple[list[float], list[float]]]
PERSISTENT, PARTITIONED = "persistent", "psend"
MESSAGES = ("send", PERSISTENT, "isend")


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
    aggregated = {
        "6a": [each for each in (LEFT_TO_RIGHT, NEIGHBOURHOOD) if each in options.orders],
        "6b": [each for each in (RANDOMIZED,) if each in options.orders],
    }
    return [
        _mechanisms(order, count),
        _threads(order),
        _orders(count),
        *(_aggregated(name, orders, count) for name, orders in aggregated.items() if orders),
    ]


def _mechanisms(order: str, count: int) -> Figure:
    def takes(place: Place, result: Result) -> bool:
        here = (place.order, place.threads) == (order, count)
        return here and _one_by_one(result, *MESSAGES, PARTITIONED)

    title = f"Messages and partitions, {order}, {number_of_threads(count)}"
    return Figure("3", title, takes, lambda place, result: result.entry.contestant.name)


def _threads(order: str) -> Figure:
    def takes(place: Place, result: Result) -> bool:
        return place.order == order and _one_by_one(result, PERSISTENT, PARTITIONED)

    def legend(place: Place, result: Result) -> str:
        return f"{result.entry.contestant.name} {number_of_threads(place.threads)}"

    return Figure("4", f"Persistent and partitioned, {order}", takes, legend)


def _orders(count: int) -> Figure:
    def takes(place: Place, result: Result) -> bool:
        return place.threads == count and _one_by_one(result, PARTITIONED)

    title = f"Partitioned in different orders, {number_of_threads(count)}"
    return Figure("5", title, takes, _with_order)


def _aggregated(name: str, orders: Sequence[str], count: int) -> Figure:
    def takes(place: Place, result: Result) -> bool:
        entry = result.entry
        grouped = bool(entry.contestant.aggregate) and entry.marking is ONE_BY_ONE
        here = place.order in orders and place.threads == count
        return here and (grouped or _one_by_one(result, PARTITIONED))

    title = f"Aggregated, {' and '.join(orders)}, {number_of_threads(count)}"
    return Figure(name, title, takes, _with_order)


def _one_by_one(result: Result, *methods: str) -> bool:
    entry = result.entry
    return entry.contestant.method in methods and entry.marking is ONE_BY_ONE


def _with_order(place: Place, result: Result) -> str:
    return f"{result.entry.contestant.name} {place.order}"
