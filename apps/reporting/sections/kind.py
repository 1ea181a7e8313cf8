"""What every result says in the report; a command's own section says more of it in figures."""

from __future__ import annotations

from collections.abc import Sequence

from onesided.apps.reporting.bars import Bars
from onesided.apps.reporting.figure import Figure
from onesided.apps.reporting.fold import Fold
from onesided.apps.reporting.quantities import PLAIN, SIZE, TIME, Quantity
from onesided.apps.reporting.result import METHOD, Entry, Result
from onesided.apps.reporting.section import Block, Section
from onesided.apps.reporting.sections.rows import records_table, rows_table, text
from onesided.apps.reporting.sections.sweep import (
    Sweep,
    median_time,
    named,
    numeric,
    split,
    varying,
)
from onesided.apps.reporting.table import Paragraph, Table

MOST_LINES = 12  # in a figure that nobody has designed
MOST_BARS = 40
MOST_FIGURES = 6
FEW_ROWS = 8  # a longer table is folded
NO_SETTING: tuple[object, ...] = (None, {}, [])


class Kind:
    """The section of a result of any command: rows, lists, verdicts and remarks.

    A command that has figures of its own is a class of its own, with other :meth:`figures`.
    """

    def __init__(self, result: Result) -> None:
        self.result = result

    def figures(self) -> list[Figure]:
        """Local. The medians over the first label that is a number; else bars of them."""
        timed = self.result.timed
        labels = varying(timed)
        keys = sorted((name for name in labels if numeric(timed, name)), key=_preference)
        if keys:
            return _lines(timed, keys[0], labels)
        return _bars(f"Time of {self.result.command}", timed, labels)

    def section(self) -> Section:
        """Local. Everything."""
        blocks: list[Block] = [Paragraph(self._about(), "source"), *self.figures()]
        blocks += self.tables()
        blocks += [Paragraph(remark, "remark") for remark in self.result.remarks]
        return Section(f"{self.result.command} ({self.result.layout})", blocks)

    def tables(self) -> list[Block]:
        """Local. The rows, the lists of records beside them, and what was verified."""
        found: list[Block] = []
        entries = self.result.entries
        if entries:
            table = rows_table(f"Everything that {self.result.command} measured", entries)
            folded = len(entries) > FEW_ROWS
            found.append(Fold(f"All {len(entries)} rows", table) if folded else table)
        found += [
            records_table(name.replace("_", " "), records)
            for name, records in self.result.listings.items()
        ]
        verdicts = self.result.content.get("verdicts")
        if verdicts:
            rows = [[what, text(each)] for what, each in verdicts.items()]
            found.append(Table("What was verified", ["what", "outcome"], rows, prose=True))
        return found

    def _about(self) -> str:
        asked = [f"{k} {text(v)}" for k, v in self.result.settings.items() if v not in NO_SETTING]
        verified = self.result.content.get("verified")
        told = " The data were verified." if verified is True else ""
        wrong = " WRONG DATA WERE FOUND." if verified is False else ""
        return f"From {self.result.name}: {', '.join(asked) or 'no settings'}.{told}{wrong}"


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
    words = f"Bars of the {TIME.name}, in groups: {', '.join(groups)}."
    return [Bars(title, words, TIME, groups, " ".join(rest) or "case")]
