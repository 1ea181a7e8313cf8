"""What the benchmark says: a row per place and contestant, and for a person a table over sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from rich.console import Group
from rich.table import Table

from onesided.apps.partitioned.contestants import NATIVE, SINGLE
from onesided.apps.partitioned.sweep import Place, Result, Sweep
from onesided.apps.report import NOTHING, Report, Row, byte_count, duration
from onesided.apps.summary import ratio
from onesided.apps.verdict import Verdict

WRONG = " !"
ENTRY = ("method", "aggregate", "marked")
BANDWIDTH = "GB/s and per cent of the single message's"
PERCEIVED = "perceived GB/s: bytes over the time after the last partition was ready"


@dataclass
class Timed(Row):
    """A contestant at a place, where it was timed."""

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
        """Local. GB/s by the median, and per cent of the single message's."""
        relative = self.ratios.get(SINGLE.method)
        share = f" {100 / relative:.0f}%" if relative else ""
        return _speed(self.nbytes, self.times) + share + self.fault

    @property
    def perceived(self) -> str:
        """Local. GB/s if only the time after the last partition was ready counts."""
        return _speed(self.nbytes, self.details["after last"]) + self.fault

    @property
    def fault(self) -> str:
        """Local. A sign for wrong data."""
        return "" if self.verdict is None or self.verdict.passed else WRONG


def _speed(nbytes: int, times: Sequence[float]) -> str:
    """GB/s by the median, short."""
    speed = nbytes / median(times) / 1e9
    return f"{speed:.3g}" if speed >= 1 else f"{speed:.2g}"


@dataclass
class SweepReport(Report):
    """A report with a table per order and number of threads, a column per size of partitions.

    ``lines``: what is timed, in the order of the tables, as labels.
    """

    lines: Sequence[Mapping[str, str]] = ()

    def table(self, title: str) -> Group:
        """Local. Bandwidths; where there is computing, also the perceived ones."""
        tables: list[str | Table] = [f"{title}, {BANDWIDTH}"]
        tables += self._tables(lambda row: row.bandwidth)
        if self.settings["compute"]:
            tables += [PERCEIVED, *self._tables(lambda row: row.perceived)]
        return Group(*tables)

    def _tables(self, cell: Callable[[Timed], str]) -> list[Table]:
        rows = [row for row in self.rows if isinstance(row, Timed)]
        places = dict.fromkeys((row.labels["order"], row.labels["threads"]) for row in rows)
        return [self._place([row for row in rows if _place(row) == key], cell) for key in places]

    def _place(self, rows: Sequence[Timed], cell: Callable[[Timed], str]) -> Table:
        order, threads = _place(rows[0])
        table = Table(title=f"{order}, {number_of_threads(int(threads))}", title_justify="left")
        for name in ENTRY:
            table.add_column(name, no_wrap=True)
        sizes = list(dict.fromkeys(row.labels["partition"] for row in rows))
        for name in sizes:
            table.add_column(name, justify="right", no_wrap=True)
        cells = {(*_entry(row.labels), row.labels["partition"]): cell(row) for row in rows}
        for line in map(_entry, self.lines):
            found = [cells.get((*line, name)) for name in sizes]
            if any(found):
                table.add_row(*line, *(text or NOTHING for text in found))
        return table


def number_of_threads(count: int) -> str:
    """Local. In words."""
    return "1 thread" if count == 1 else f"{count} threads"


def _place(row: Timed) -> tuple[str, str]:
    return row.labels["order"], row.labels["threads"]


def _entry(labels: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(labels[name] for name in ENTRY)


def timed_row(place: Place, result: Result, others: Sequence[Result], nbytes: int) -> Timed:
    """Local. ``others``: all results of the place, for those to compare with."""
    labels = {
        "partition": byte_count(place.part),
        "order": place.order,
        "threads": str(place.threads),
        **result.entry.labels,
    }
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


def reasons(sweep: Sweep) -> list[Row]:
    """Local. Why contestants were not made or not timed; the same reason is told once."""
    places: dict[tuple[tuple[str, str], ...], list[Place]] = {}
    paces: dict[tuple[tuple[str, str], ...], list[float]] = {}
    for part, pairs in sweep.refused.items():
        for contestant, reason in pairs:
            key = (*contestant.labels.items(), ("reason", reason))
            places.setdefault(key, []).append(Place(part, "", 0))
    for place, found in sweep.results.items():
        for result in found:
            if result.reason:
                key = (*result.entry.labels.items(), ("reason", result.reason))
                places.setdefault(key, []).append(place)
                paces.setdefault(key, []).append(result.pace)
    return [_reason(dict(key), where, paces.get(key, [])) for key, where in places.items()]


def _reason(labels: dict[str, str], places: Sequence[Place], paces: Sequence[float]) -> Row:
    """Local. A row of :func:`reasons`; the times of rounds are told where there are any."""
    reason = labels.pop("reason")
    if paces:
        least, most = duration(min(paces)), duration(max(paces))
        reason += f" (a round: {least if least == most else f'{least} to {most}'})"
    parts = dict.fromkeys(byte_count(place.part) for place in places)
    orders = dict.fromkeys(place.order for place in places if place.order)
    threads = dict.fromkeys(str(place.threads) for place in places if place.threads)
    named = {"partition": parts, "order": orders, "threads": threads}
    where = {name: ", ".join(texts) for name, texts in named.items() if texts}
    return Row(where | labels, reason=reason)


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
