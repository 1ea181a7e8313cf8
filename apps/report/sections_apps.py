"""What the report draws of applications, mini-applications, comparisons and whole suites."""

from __future__ import annotations

from collections.abc import Iterator

from onesided.apps.report.figure import Figure, Lines, gathered
from onesided.apps.report.markup import Table
from onesided.apps.report.page import Block
from onesided.apps.report.quantities import COUNT, RANKS, RATIO, TIME, Quantity, number
from onesided.apps.report.result import DEVIATION, METHOD, REFERENCE, SECONDS, Result, known
from onesided.apps.report.sections import bars, named, parts_by_method, split

#: What a comparison is, by the words of its bound.
WORDS = {
    "at least": "How many times as fast as",
    "at most": "Time over that of",
}
LEFT_OUT = (METHOD, "opponent", "bound", "product")


def comparisons(result: Result) -> list[Figure]:
    """Local. Ours against others, case by case, a figure for every opponent: how many times as
    fast, or the time over its time."""
    found: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
    for entry in result.timed:
        reached = entry.number("reached")
        if reached is not None:
            labels = [name for name in entry.labels if name not in LEFT_OUT]
            group = found.setdefault((entry.label("bound"), entry.label("opponent")), {})
            group.setdefault(named(entry, labels), {})[entry.method or "ours"] = reached
    figures: list[Figure] = []
    for (bound, opponent), groups in found.items():
        title = f"{WORDS.get(bound, 'Against')} {opponent}"
        figures += bars(title, RATIO.called(title), groups, "case")
    return figures


def products(result: Result) -> list[Figure]:
    """Local. A sparse matrix times a vector: a bar for every method."""
    groups = {
        f"{entry.method} ({entry.label('product')})": {"time": entry.median or 0.0}
        for entry in result.timed
    }
    return bars("Time of a product", TIME, groups)


def mini_apps(result: Result) -> list[Figure]:
    """Local. By every way to communicate: overheads over the number of ranks as in Figure 8 of
    paper 002, then, for every number of ranks, where the time goes."""
    found = list(_overheads(result))
    for words, entries in split(result.timed, ["scaling", "ranks"]).items():
        title = f"Where the time goes: {words or 'all ranks'}"
        found.append(parts_by_method(title, "whole", TIME, entries))
    return found


def _overheads(result: Result) -> Iterator[Figure]:
    """A line for every way; bars where there is one number of ranks only."""
    over = RATIO.called(f"time over that of {REFERENCE}")
    for name, records in result.listings.items():
        if not name.startswith("overhead"):
            continue
        lines = gathered(
            (way, known(record.get("ranks")), known(value))
            for record in records
            for way, value in record.items()
            if way != "ranks" and not way.endswith((DEVIATION, SECONDS))
        )
        scaling = name.removeprefix("overhead").strip("_")
        what = f"{scaling} scaling" if scaling else "all ranks"
        title = f"{result.command}, {what}: time over that of {REFERENCE}"
        if len(records) == 1:
            groups = {way: {"overhead": line[0][1]} for way, line in lines.items()}
            yield from bars(title, over, groups)
        elif lines:
            yield Lines(title, RANKS, over, lines, level=1.0)


AXES = ("x", "y", "z")
ERROR = Quantity("relative error", "{:.2e}".format, number)


def minife(result: Result) -> list[Figure]:
    """Local. What all mini-applications have, and errors on finer and finer meshes."""
    lines = gathered(
        (
            name,
            min((x for axis in AXES if (x := known(record.get(axis))) is not None), default=None),
            known(record.get(name)),
        )
        for record in result.listings.get("levels", [])
        for name in ("max error", "rms error")
    )
    found = mini_apps(result)
    if any(len(line) > 1 for line in lines.values()):
        across = COUNT.called("elements along the axis that has fewest")
        found.append(Lines("Errors on finer and finer meshes", across, ERROR, lines))
    return found


def applications(result: Result) -> list[Figure]:
    """Local. For every application the time of a run by method, and its parts."""
    time = TIME.called("median time of a run")
    return [
        parts_by_method(f"Time of a run: {words or result.command}", "whole run", time, entries)
        for words, entries in split(result.timed, ["application"]).items()
    ]


STATES = ("experiment", "repeats", "command", "state")


def experiments(result: Result) -> list[Block]:
    """Local. What became of each, and why one is missing; their results have their own sections."""
    entries = result.entries
    rows = [[*(entry.label(name) for name in STATES), entry.reason] for entry in entries]
    return [Table("Experiments", [*STATES, "reason"], rows, prose=True)] if rows else []
