"""Figures 1 to 7 of paper 002, from the rows of a result; pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from onesided.apps.report.quantities import RATE, SIZE, TIME, Quantity, number
from onesided.apps.report.result import Entry

MULTIPLE, SINGLE = "multiple", "single"  # thread levels
MAIN = "main"  # the label of cells without threads: the main thread alone transfers
TWO_SIDED, SEND = "two-sided", "send"  # in the places of synchronization and operation
LOCK_ALL = "lock_all"

Point = tuple[float, float, float]
LATENCY, BANDWIDTH, HALO = "latency", "bandwidth", "rate-halo"
BYTES = SIZE.called("bytes of a message")
TOTAL = SIZE.called("bytes of all threads together")


def _rounded(value: float) -> str:
    return f"{value:.3g}"


@dataclass(frozen=True)
class Measure:
    """What a pattern is about: the number of a row and its axis; whether more is better."""

    value: str
    quantity: Quantity
    more: bool


MEASURES = {
    LATENCY: Measure("latency_s", TIME.called("latency"), False),
    BANDWIDTH: Measure("mean_gigabytes_per_s", RATE, True),
    HALO: Measure("messages_per_s", Quantity("messages/s", _rounded, number), True),
}


@dataclass(frozen=True)
class Panel:
    """A part of a figure: points of x, y and the spread of y, by legend."""

    name: str
    title: str
    across: Quantity
    up: Quantity
    lines: dict[str, list[Point]]


def panels(
    entries: Sequence[Entry], second: Sequence[Entry], cores: int, name: str = ""
) -> list[Panel]:
    """Local. All that there are data for; ``second``: results of another MPI, or the same.

    ``cores``: of the machine, for one thread per core; ``name``: of the second MPI, for the titles.
    """
    where = f" ({name})" if name else ""
    many, each = most_threads(entries), per_core(entries, cores)
    others, other_each = most_threads(second), per_core(second, cores)
    found = [
        _best("1a", entries, BANDWIDTH),
        _best("1b", entries, LATENCY),
        _best("1c", entries, HALO),
        _threads("2", entries),
        _syncs("3a", entries, LATENCY, 1),
        _syncs("3b", entries, LATENCY, many),
        _syncs("4a", entries, HALO, 1),
        _syncs("4b", entries, HALO, each),
        _syncs("5a", second, BANDWIDTH, 1, where),
        _syncs("5b", second, BANDWIDTH, others, where),
        _syncs("6a", second, LATENCY, 1, where),
        _syncs("6b", second, LATENCY, others, where),
        _syncs("7a", second, HALO, 1, where),
        _syncs("7b", second, HALO, other_each, where),
    ]
    return [panel for panel in found if panel.lines]


def most_threads(entries: Sequence[Entry]) -> int:
    """Local. The largest number of threads that was measured; 1 where there were none."""
    return max(_counts(entries), default=1)


def per_core(entries: Sequence[Entry], cores: int) -> int:
    """Local. The largest number of threads that have a core each; where that is 1, the largest."""
    fitting = [count for count in _counts(entries) if 1 < count <= cores]
    return max(fitting, default=most_threads(entries))


def _counts(entries: Sequence[Entry]) -> list[int]:
    return [int(e.label("threads")) for e in entries if e.label("threads") not in ("", MAIN)]


def _best(name: str, entries: Sequence[Entry], pattern: str) -> Panel:
    """The main thread alone: two-sided, and of Put and Get the best synchronization each."""
    here = [
        e
        for e in entries
        if (e.label("pattern"), e.label("threads"), e.label("level")) == (pattern, MAIN, SINGLE)
    ]
    lines = _lines(here, pattern, lambda e: _words(e, "sync", "op"))
    for op in dict.fromkeys(e.label("op") for e in here if e.label("op") != SEND):
        mine = {legend: line for legend, line in lines.items() if legend.endswith(f" {op}")}
        for legend in mine:
            if legend != best(mine, more=MEASURES[pattern].more):
                del lines[legend]
    title = f"Figure {name}: {pattern}, one thread, the best synchronization"
    return Panel(name, title, BYTES, MEASURES[pattern].quantity, lines)


def best(lines: dict[str, list[Point]], *, more: bool) -> str:
    """Local. The line that is best on average over the sizes that all have.

    At every size a line counts relative to the best there.
    """
    common = set.intersection(*({x for x, _, _ in line} for line in lines.values()))
    values = {
        legend: {x: y for x, y, _ in line if x in common or not common}
        for legend, line in lines.items()
    }

    def score(legend: str) -> float:
        relative = []
        for x, y in values[legend].items():
            every = [line[x] for line in values.values() if x in line]
            relative.append(y / max(every) if more else min(every) / y)
        return fmean(relative) if relative else 0.0

    return max(values, key=score)


def _threads(name: str, entries: Sequence[Entry]) -> Panel:
    """Bandwidth of Put under lock_all, a line for every number of threads, over all their bytes."""
    here = [
        e
        for e in entries
        if (e.label("pattern"), e.label("sync"), e.label("op"), e.label("level"))
        == (BANDWIDTH, LOCK_ALL, "put", MULTIPLE)
    ]
    lines = _lines(
        here,
        BANDWIDTH,
        lambda e: _counted(int(e.label("threads"))),
        lambda e: int(e.label("threads")),
    )
    title = f"Figure {name}: bandwidth of Put under lock_all"
    return Panel(name, title, TOTAL, MEASURES[BANDWIDTH].quantity, lines)


def _syncs(
    name: str, entries: Sequence[Entry], pattern: str, threads: int, where: str = ""
) -> Panel:
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
    one_sided = [e for e in here if e.label("sync") != TWO_SIDED]
    lines = _lines(here, pattern, lambda e: _words(e, "sync", "op")) if one_sided else {}
    title = f"Figure {name}: {pattern}, {_counted(threads)}{where}"
    return Panel(name, title, BYTES, MEASURES[pattern].quantity, lines)


def _lines(
    entries: Sequence[Entry],
    pattern: str,
    legend: Callable[[Entry], str],
    factor: Callable[[Entry], int] = lambda entry: 1,
) -> dict[str, list[Point]]:
    """By legend the points in order; rows without a number are left out, as are wrong data."""
    measure, found = MEASURES[pattern], dict[str, list[Point]]()
    for entry in entries:
        x, y = entry.number("message_bytes"), entry.number(measure.value)
        spread = entry.number("relative_spread") or 0.0
        if x is not None and y is not None and y > 0 and entry.values.get("verified") is not False:
            found.setdefault(legend(entry), []).append((x * factor(entry), y, spread * y))
    return {name: sorted(points) for name, points in found.items()}


def _words(entry: Entry, *names: str) -> str:
    return " ".join(entry.label(name) for name in names)


def _counted(threads: int) -> str:
    return "1 thread" if threads == 1 else f"{threads} threads"
