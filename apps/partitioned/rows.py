"""What the benchmark says: a row per place and contestant, and for a person a table over sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from rich.table import Table

from onesided.apps.partitioned.contestants import NATIVE, SINGLE, Contestant
from onesided.apps.partitioned.sweep import Place, Result
from onesided.apps.report import NOTHING, Report, Row, byte_count
from onesided.apps.summary import ratio
from onesided.apps.verdict import Verdict

WRONG = "WRONG"


@dataclass
class Timed(Row):
    """A contestant at a place. ``part``: bytes of a partition."""

    part: int = 0

    @property
    def ratios(self) -> dict[str, float]:
        """Local. As of any row, over the rounds in which both took part."""
        pairs = {name: min(len(self.times), len(times)) for name, times in self.against.items()}
        return {
            name: ratio(self.times[:count], self.against[name][:count])
            for name, count in pairs.items()
        }

    @property
    def bandwidth(self) -> str:
        """Local. GB/s by the median, in parentheses that of the single message times this."""
        if self.reason:
            return NOTHING
        speed = f"{self.nbytes / median(self.times) / 1e9:.3g}"
        relative = "" if SINGLE.method not in self.ratios else self.ratios[SINGLE.method]
        if relative:
            speed += f" ({1 / relative:.2f})"
        return speed + self.fault

    @property
    def perceived(self) -> str:
        """Local. GB/s if only the time after the last partition is ready counts."""
        if self.reason:
            return NOTHING
        return f"{self.nbytes / median(self.details['after last']) / 1e9:.3g}{self.fault}"

    @property
    def fault(self) -> str:
        """Local. The word for wrong data."""
        return "" if self.verdict is None or self.verdict.passed else f" {WRONG}"


@dataclass
class SweepReport(Report):
    """A report whose table has a line per contestant, and a column per size of partitions."""

    def table(self, title: str) -> Table:
        """Local. Bandwidths; the perceived ones below where there is computing."""
        table = Table(title=f"{title}\nGB/s (times that of the single message)")
        columns = {row.labels["partition"]: None for row in self.rows if isinstance(row, Timed)}
        names = ["order", "threads", "method", "aggregate", "marked"]
        table.title_justify = "left"
        for name in names:
            table.add_column(name, no_wrap=True)
        for name in columns:
            table.add_column(name, justify="right", no_wrap=True)
        self._add(table, names, columns, lambda row: row.bandwidth)
        if self.settings["compute"]:
            table.add_section()
            table.add_row("perceived: bytes over the time after the last partition was ready")
            self._add(table, names, columns, lambda row: row.perceived)
        return table

    def _add(
        self,
        table: Table,
        names: Sequence[str],
        columns: Iterable[str],
        cell: Callable[[Timed], str],
    ) -> None:
        lines: dict[tuple[str, ...], dict[str, str]] = {}
        for row in self.rows:
            if isinstance(row, Timed):
                line = tuple(row.labels[name] for name in names)
                lines.setdefault(line, {})[row.labels["partition"]] = cell(row)
        previous: tuple[str, ...] = ()
        for line, cells in lines.items():
            if previous and line[:2] != previous:
                table.add_section()
            previous = line[:2]
            table.add_row(*line, *(cells.get(name, NOTHING) for name in columns))


def timed_row(place: Place, result: Result, others: Sequence[Result], nbytes: int) -> Timed:
    """Local. ``others``: all results of the place, for those to compare with."""
    labels = {
        "partition": byte_count(place.part),
        "order": place.order,
        "threads": str(place.threads),
        **result.entry.labels,
    }
    if result.reason:
        return Timed(labels, reason=result.reason, part=place.part)
    partitions = nbytes // place.part
    return Timed(
        labels,
        result.times,
        setup=result.setup,
        nbytes=nbytes,
        against=compared(result, others),
        details={"mean": [fmean(result.times)], "after last": result.tails},
        values={
            "partition_bytes": place.part,
            "mean_gigabytes_per_s": nbytes / fmean(result.times) / 1e9,
            "perceived_gigabytes_per_s": nbytes / median(result.tails) / 1e9,
            "wrong_partitions": result.wrong,
        },
        verdict=Verdict(result.wrong / partitions, 0.0),
        part=place.part,
    )


def compared(result: Result, others: Sequence[Result]) -> dict[str, Sequence[float]]:
    """Local. Times of the single message, and of the MPI's own partitioned send marked alike."""
    found: dict[str, Sequence[float]] = {}
    for other in others:
        alike = other.entry.marking is result.entry.marking
        if other.times and other.entry.contestant is SINGLE:
            found[SINGLE.method] = other.times
        elif other.times and other.entry.contestant is NATIVE and alike:
            found[NATIVE.method] = other.times
    return found


def refusals(refused: Mapping[int, Sequence[tuple[Contestant, str]]]) -> list[Row]:
    """Local. Why contestants could not be made; sizes with the same reason share a row."""
    sizes: dict[tuple[str, str, str], list[int]] = {}
    for part, pairs in refused.items():
        for contestant, reason in pairs:
            labels = contestant.labels
            key = (labels["method"], labels["aggregate"], reason)
            sizes.setdefault(key, []).append(part)
    return [
        Row(
            {"partition": ", ".join(map(byte_count, parts)), "method": method, "aggregate": group},
            reason=reason,
        )
        for (method, group, reason), parts in sizes.items()
    ]


def facts(sweep_results: Mapping[Place, Sequence[Result]]) -> dict[str, Any]:
    """Local. For JSON: how many checks there were, and where data were wrong."""
    every = [(place, result) for place, found in sweep_results.items() for result in found]
    return {
        "checked": len(every),
        "wrong": [
            f"{place.part} {place.order} {place.threads} {result.entry.name}"
            for place, result in every
            if result.wrong
        ],
    }
