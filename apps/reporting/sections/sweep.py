"""Figures of rows: one number of each over another, and rows told apart by their labels; pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from onesided.apps.reporting.bars import Bars
from onesided.apps.reporting.figure import Figure
from onesided.apps.reporting.lines import Lines
from onesided.apps.reporting.quantities import RATIO, SIZE, TIME, Quantity
from onesided.apps.reporting.result import Entry
from onesided.apps.selection import BASELINE

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
        lines: dict[str, dict[float, float]] = {}
        for entry in entries:
            x, y = entry.number(self.key), self.value(entry)
            if x is not None and y is not None:
                lines.setdefault(named(entry, self.names), {})[x] = y
        xs = {x for line in lines.values() for x in line}
        if not xs:
            return []
        if len(xs) == 1:
            shown = self.across.show(next(iter(xs)))
            groups = {name: {shown: next(iter(line.values()))} for name, line in lines.items()}
            words = f"Bars of the {self.up.name} at {shown}."
            return [Bars(f"{title}, {shown}", words, self.up, groups, " ".join(self.names))]
        points = {name: sorted(line.items()) for name, line in lines.items()}
        words = f"Lines of the {self.up.name} over {self.across.name}: {', '.join(lines)}."
        palette = list(dict.fromkeys(named(entry, self.names) for entry in among))
        return [Lines(title, words, self.across, self.up, points, self.level, palette)]


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
