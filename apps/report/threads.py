"""Figures 1 to 7 of paper 002, from the rows of a result; pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from onesided.apps.report.figure import Lines, Point, gathered
from onesided.apps.report.quantities import RATE, SIZE, TIME, Quantity, number
from onesided.apps.report.result import Entry

MULTIPLE, SINGLE = "multiple", "single"  # thread levels
MAIN = "main"  # the label of cells without threads: the main thread alone transfers
TWO_SIDED, SEND = "two-sided", "send"  # in the places of synchronization and operation
LOCK_ALL = "lock_all"

LATENCY, BANDWIDTH, HALO = "latency", "bandwidth", "rate-halo"


@dataclass(frozen=True)
class Measure:
    """What a pattern is about: the number of a row and its axis; whether more is better."""

    value: str
    quantity: Quantity
    more: bool


MEASURES = {
    LATENCY: Measure("latency_s", TIME.called("latency"), False),
    BANDWIDTH: Measure("mean_gigabytes_per_s", RATE, True),
    HALO: Measure("messages_per_s", Quantity("messages/s", "{:.3g}".format, number), True),
}


def panels(
    entries: Sequence[Entry], second: Sequence[Entry], cores: int, name: str = ""
) -> dict[str, Lines]:
    """Local. By their numbers those that there are data for.

    ``second``: results of another MPI, or the same.
    ``cores``: of the machine, for one thread per core; ``name``: of the second MPI, for the titles.
    """
    where = f" ({name})" if name else ""
    many, each = most_threads(entries), per_core(entries, cores)
    others, other_each = most_threads(second), per_core(second, cores)
    found = {
        "1a": _best(entries, BANDWIDTH),
        "1b": _best(entries, LATENCY),
        "1c": _best(entries, HALO),
        "2": _threads(entries),
        "3a": _syncs(entries, LATENCY, 1),
        "3b": _syncs(entries, LATENCY, many),
        "4a": _syncs(entries, HALO, 1),
        "4b": _syncs(entries, HALO, each),
        "5a": _syncs(second, BANDWIDTH, 1, where),
        "5b": _syncs(second, BANDWIDTH, others, where),
        "6a": _syncs(second, LATENCY, 1, where),
        "6b": _syncs(second, LATENCY, others, where),
        "7a": _syncs(second, HALO, 1, where),
        "7b": _syncs(second, HALO, other_each, where),
    }
    return {
        number: replace(lines, title=f"Figure {number}: {lines.title}")
        for number, lines in found.items()
        if lines.lines
    }


def most_threads(entries: Sequence[Entry]) -> int:
    """Local. The largest number of threads that was measured; 1 where there were none."""
    return max(_counts(entries), default=1)


def per_core(entries: Sequence[Entry], cores: int) -> int:
    """Local. The largest number of threads that have a core each; where that is 1, the largest."""
    fitting = [count for count in _counts(entries) if 1 < count <= cores]
    return max(fitting, default=most_threads(entries))


def _counts(entries: Sequence[Entry]) -> list[int]:
    return [int(e.label("threads")) for e in entries if e.label("threads") not in ("", MAIN)]


def _best(entries: Sequence[Entry], pattern: str) -> Lines:
    """The main thread alone: two-sided, and of Put and Get the best synchronization each."""
    here = [
        e
        for e in entries
        if (e.label("pattern"), e.label("threads"), e.label("level")) == (pattern, MAIN, SINGLE)
    ]
    title = f"{pattern}, one thread, the best synchronization"
    whole = _lines(title, here, pattern, _sync_and_op)
    lines = dict(whole.lines)
    for op in dict.fromkeys(e.label("op") for e in here if e.label("op") != SEND):
        mine = {legend: line for legend, line in lines.items() if legend.endswith(f" {op}")}
        for legend in mine:
            if legend != best(mine, more=MEASURES[pattern].more):
                del lines[legend]
    return replace(whole, lines=lines)


def best(lines: Mapping[str, Sequence[Point]], *, more: bool) -> str:
    """Local. The line that is best on average over the sizes that all have.

    At every size a line counts relative to the best there.
    """
    common = set.intersection(*({x for x, _ in line} for line in lines.values()))
    values = {
        legend: {x: y for x, y in line if x in common or not common}
        for legend, line in lines.items()
    }

    def score(legend: str) -> float:
        relative = []
        for x, y in values[legend].items():
            every = [line[x] for line in values.values() if x in line]
            relative.append(y / max(every) if more else min(every) / y)
        return fmean(relative) if relative else 0.0

    return max(values, key=score)


def _threads(entries: Sequence[Entry]) -> Lines:
    """Bandwidth of Put under lock_all, a line for every number of threads, over all their bytes."""
    here = [
        e
        for e in entries
        if (e.label("pattern"), e.label("sync"), e.label("op"), e.label("level"))
        == (BANDWIDTH, LOCK_ALL, "put", MULTIPLE)
    ]
    whole = _lines(
        "bandwidth of Put under lock_all",
        here,
        BANDWIDTH,
        lambda e: _counted(int(e.label("threads"))),
        lambda e: int(e.label("threads")),
    )
    return replace(whole, across=SIZE.called("bytes of all threads together"))


def _syncs(entries: Sequence[Entry], pattern: str, threads: int, where: str = "") -> Lines:
    """All synchronizations and operations at so many threads; rates with the two-sided baseline."""
    here = [
        e
        for e in entries
        if e.label("pattern") == pattern
        and (
            (e.label("threads"), e.label("level")) == (str(threads), MULTIPLE)
            or (pattern == HALO and (e.label("sync"), e.label("level")) == (TWO_SIDED, SINGLE))
        )
    ]
    one_sided = any(e.label("sync") != TWO_SIDED for e in here)
    title = f"{pattern}, {_counted(threads)}{where}"
    return _lines(title, here if one_sided else [], pattern, _sync_and_op)


def _lines(
    title: str,
    entries: Sequence[Entry],
    pattern: str,
    legend: Callable[[Entry], str],
    factor: Callable[[Entry], int] = lambda entry: 1,
) -> Lines:
    """With the deviations of the runs; rows without a number are left out, as are wrong data."""
    measure, spread = MEASURES[pattern], dict[str, dict[float, float]]()
    points: list[tuple[str, float, float]] = []
    for entry in entries:
        x, y = entry.number("message_bytes"), entry.number(measure.value)
        if x is not None and y is not None and y > 0 and entry.values.get("verified") is not False:
            name, x = legend(entry), x * factor(entry)
            points.append((name, x, y))
            spread.setdefault(name, {})[x] = (entry.number("relative_spread") or 0.0) * y
    across = SIZE.called("bytes of a message")
    return Lines(title, across, measure.quantity, gathered(points), spread=spread)


def _sync_and_op(entry: Entry) -> str:
    return f"{entry.label('sync')} {entry.label('op')}"


def _counted(threads: int) -> str:
    return "1 thread" if threads == 1 else f"{threads} threads"
