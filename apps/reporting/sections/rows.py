"""The rows of a result as a table, with the columns that the command itself prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onesided.apps.report import duration
from onesided.apps.reporting.figure import NOTHING
from onesided.apps.reporting.quantities import number
from onesided.apps.reporting.result import Entry, known
from onesided.apps.reporting.table import Table

#: What a row has besides labels and numbers of its own.
KNOWN = frozenset(
    "labels error verified setup_s iterations median_s quartile_1_s quartile_3_s bytes "
    "gigabytes_per_s ratios break_even parts times_s opponents_times_s reason".split()
)


def rows_table(caption: str, entries: Sequence[Entry]) -> Table:
    """Local. A line for every row; those that were not measured come with the reason."""
    cells = [_cells(entry) for entry in entries]
    labels = list(dict.fromkeys(name for entry in entries for name in entry.labels))
    others = list(dict.fromkeys(name for row in cells for name in row if name not in labels))
    columns = [*labels, *others]
    rows = [[row.get(name, NOTHING) for name in columns] for row in cells]
    return Table(caption, columns, rows, heads=len(labels))


def records_table(caption: str, records: Sequence[Mapping[str, Any]]) -> Table:
    """Local. A line for every record of a list that is none of rows."""
    columns = list(dict.fromkeys(name for record in records for name in record))
    rows = [[text(record.get(name)) for name in columns] for record in records]
    texts = sum(all(isinstance(r.get(name), str) for r in records) for name in columns[:1])
    return Table(caption, columns, rows, heads=texts)


def records(value: Any) -> list[Mapping[str, Any]]:
    """Local. The objects of a list in a JSON file; none where it is no list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def text(value: Any) -> str:
    """Local. A value of a JSON file for a person."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return number(value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {text(each)}" for name, each in value.items())
    if isinstance(value, list):
        return ", ".join(text(each) for each in value)
    return str(value)


def _cells(entry: Entry) -> dict[str, str]:
    shown = dict(entry.labels)
    if entry.reason:
        return shown | {"not measured": entry.reason}
    setup = entry.number("setup_s")
    if setup is not None:
        shown["set-up"] = duration(setup)
    shown |= {name: duration(value) for name, value in numbers(entry, "parts").items()}
    if entry.median is not None:
        shown["median"] = duration(entry.median)
        first, third = entry.number("quartile_1_s"), entry.number("quartile_3_s")
        if first is not None and third is not None:
            shown["quartiles"] = f"{duration(first)} to {duration(third)}"
    rate = entry.number("gigabytes_per_s")
    if rate:
        shown["GB/s"] = f"{rate:.2f}"
    shown |= {f"vs {name}": f"{value:.2f}" for name, value in numbers(entry, "ratios").items()}
    if entry.values.get("break_even") is not None:
        shown["break-even"] = text(entry.values["break_even"])
    if entry.number("error") is not None:
        passed = "ok" if entry.values.get("verified") is True else "WRONG"
        shown["error"] = f"{entry.number('error'):.1e} {passed}"
    for name, value in entry.values.items():
        if name not in KNOWN and name not in entry.labels:
            shown[name] = text(value)
    return shown


def numbers(entry: Entry, part: str) -> dict[str, float]:
    """Local. The numbers by name in a part of a row; none where there is no such part."""
    found = entry.values.get(part)
    if not isinstance(found, dict):
        return {}
    every = {str(name): known(value) for name, value in found.items()}
    return {name: value for name, value in every.items() if value is not None}
