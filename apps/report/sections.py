"""What every result says in the report; a command's own section says more of it in figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onesided.apps.cli.report import BASELINE, duration
from onesided.apps.report.figure import NOTHING, Bars, Figure, Lines, gathered
from onesided.apps.report.markup import Fold, Paragraph, Table
from onesided.apps.report.page import Block, Section
from onesided.apps.report.quantities import PLAIN, RATIO, SIZE, TIME, Quantity, number
from onesided.apps.report.result import METHOD, Entry, Result, known

# The rows of a result as a table, with the columns that the command itself prints.

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


# Figures of rows: one number of each over another, and rows told apart by their labels; pure.

Value = Callable[[Entry], float | None]


def median_time(entry: Entry) -> float | None:
    """Local. Seconds of an iteration."""
    return entry.median


def over_baseline(entry: Entry) -> float | None:
    """Local. The time over that of ``mpi``; None for what needs no set-up, as that itself."""
    return None if entry.number("setup_s") is None else entry.ratio(BASELINE)


@dataclass(frozen=True)
class Sweep:
    """What is drawn: the number ``key`` of a row across, ``value`` up, and what names a line.

    ``names``: the labels whose texts together name it.
    """

    key: str
    across: Quantity
    value: Value
    up: Quantity
    names: Sequence[str]
    level: float | None = None

    def figures(
        self, title: str, entries: Sequence[Entry], among: Sequence[Entry] = ()
    ) -> list[Figure]:
        """Local. Lines; bars where there is a single x; nothing where there are no numbers.

        ``among``: the rows of several figures, in which a name is to look the same.
        """
        lines = gathered(
            (named(entry, self.names), entry.number(self.key), self.value(entry))
            for entry in entries
        )
        xs = {x for line in lines.values() for x, _ in line}
        if len(xs) > 1:
            palette = list(dict.fromkeys(named(entry, self.names) for entry in among))
            return [Lines(title, self.across, self.up, lines, self.level, palette)]
        shown = "".join(map(self.across.show, xs))
        groups = {name: {shown: line[0][1]} for name, line in lines.items()}
        return bars(f"{title}, {shown}", self.up, groups, " ".join(self.names))


def bars(
    title: str, along: Quantity, groups: Mapping[str, Mapping[str, float]], about: str = METHOD
) -> list[Figure]:
    """Local. Nothing where there are no groups."""
    return [Bars(title, along, groups, about)] if groups else []


def parts_by_method(title: str, whole: str, along: Quantity, entries: Sequence[Entry]) -> Bars:
    """Local. The time of a row under the name ``whole``, and its parts."""
    groups = {e.method: {whole: e.median or 0.0, **numbers(e, "parts")} for e in entries}
    return Bars(title, along, groups, METHOD)


def times_over_bytes(*names: str) -> Sweep:
    """Local. Medians over the bytes of a message."""
    return Sweep("bytes", SIZE, median_time, TIME, names)


def ratios_over_bytes(call: str, *names: str) -> Sweep:
    """Local. Times over that of ``mpi``, which is the plain ``call``: below the line is faster."""
    over = RATIO.called(f"time over that of {call}")
    return Sweep("bytes", SIZE, over_baseline, over, names, level=1.0)


def named(entry: Entry, names: Sequence[str]) -> str:
    """Local. The texts of some labels, those left out that say nothing."""
    return " ".join(text for name in names if (text := entry.label(name)) not in ("", "-")) or "all"


def split(entries: Sequence[Entry], names: Sequence[str]) -> dict[str, list[Entry]]:
    """Local. Rows whose labels ``names`` are the same, in words and in order."""
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        words = ", ".join(
            f"{name} {entry.label(name)}" for name in names if entry.label(name) not in ("", "-")
        )
        found.setdefault(words, []).append(entry)
    return found


def varying(entries: Sequence[Entry]) -> list[str]:
    """Local. The labels that are not the same in all rows."""
    names = dict.fromkeys(name for entry in entries for name in entry.labels)
    return [name for name in names if len({entry.label(name) for entry in entries}) > 1]


def numeric(entries: Sequence[Entry], name: str) -> bool:
    """Local. Whether a label is a number in all rows that have it."""
    having = [entry for entry in entries if name in entry.labels]
    return bool(having) and all(entry.number(name) is not None for entry in having)


def largest(entries: Sequence[Entry], name: str) -> list[Entry]:
    """Local. The rows with the largest number of this name; all, where none has it."""
    numbers = [found for entry in entries if (found := entry.number(name)) is not None]
    if not numbers:
        return list(entries)
    most = max(numbers)
    return [entry for entry in entries if entry.number(name) == most]


MOST_LINES = 12  # in a figure that nobody has designed
MOST_BARS = 40
MOST_FIGURES = 6
FEW_ROWS = 8  # a longer table is folded
NO_SETTING: tuple[object, ...] = (None, {}, [])


def usual_figures(result: Result) -> list[Figure]:
    """Local. The medians over the first label that is a number; else bars of them."""
    timed = result.timed
    labels = varying(timed)
    keys = sorted((name for name in labels if numeric(timed, name)), key=_preference)
    if keys:
        return _lines(timed, keys[0], labels)
    return _bars(f"Time of {result.command}", timed, labels)


def usual_tables(result: Result) -> list[Block]:
    """Local. The rows, the lists of records beside them, and what was verified."""
    found: list[Block] = []
    entries = result.entries
    if entries:
        table = rows_table(f"Everything that {result.command} measured", entries)
        found.append(_folded(f"All {len(entries)} rows", table))
    for name, listed in result.listings.items():
        words = name.replace("_", " ")
        found.append(_folded(f"{words}: all {len(listed)}", records_table(words, listed)))
    verdicts = result.content.get("verdicts")
    if verdicts:
        rows = [[what, text(each)] for what, each in verdicts.items()]
        found.append(Table("What was verified", ["what", "outcome"], rows, prose=True))
    return found


def section(
    result: Result,
    figures: Callable[[Result], list[Figure]] = usual_figures,
    tables: Callable[[Result], list[Block]] = usual_tables,
) -> Section:
    """Local. Everything that a result says: figures, tables and remarks."""
    asked = [f"{k} {text(v)}" for k, v in result.settings.items() if v not in NO_SETTING]
    about = f"From {result.name}: {', '.join(asked) or 'no settings'}."
    verified = result.content.get("verified")
    about += " The data were verified." if verified is True else ""
    about += " WRONG DATA WERE FOUND." if verified is False else ""
    blocks: list[Block] = [Paragraph(about, "source"), *figures(result), *tables(result)]
    blocks += [Paragraph(remark, "remark") for remark in result.remarks]
    return Section(f"{result.command} ({result.layout})", blocks)


def _folded(summary: str, table: Table) -> Block:
    return Fold(summary, table) if len(table.rows) > FEW_ROWS else table


def _preference(name: str) -> tuple[bool, str]:
    return name != "bytes", name


def _quantity(name: str) -> Quantity:
    return SIZE.called(name) if name == "bytes" else PLAIN.called(name)


def _lines(timed: Sequence[Entry], key: str, labels: Sequence[str]) -> list[Figure]:
    """One figure, or one for every value of the label that tells the fewest rows apart."""
    names = [name for name in labels if name != key]
    panels: list[str] = []
    while len({named(entry, names) for entry in timed}) > MOST_LINES:
        counts = {
            name: len({entry.label(name) for entry in timed}) for name in names if name != METHOD
        }
        if not counts:
            break
        fewest = min(counts, key=lambda name: counts[name])
        names.remove(fewest)
        panels.append(fewest)
    sweep = Sweep(key, _quantity(key), median_time, TIME, names)
    figures: list[Figure] = []
    for words, entries in split(timed, panels).items():
        figures += sweep.figures(f"Time over {key}{words and f': {words}'}", entries, timed)
    return figures[:MOST_FIGURES]


def _bars(title: str, timed: Sequence[Entry], labels: Sequence[str]) -> list[Figure]:
    """A bar for every row; those that differ in more than the method are in groups."""
    if not 1 < len(timed) <= MOST_BARS:
        return []
    rest = [name for name in labels if name != METHOD] or labels
    groups: dict[str, dict[str, float]] = {}
    for entry in timed:
        name = "time" if METHOD in rest else entry.method or "time"
        groups.setdefault(named(entry, rest), {})[name] = entry.median or 0.0
    return bars(title, TIME, groups, " ".join(rest) or "case")
