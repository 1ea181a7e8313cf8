"""Mini-applications: their overheads as in Figure 8 of paper 002, and where their time goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onesided.apps.mini.overhead import DEVIATION, SECONDS
from onesided.apps.mini.way import REFERENCE
from onesided.apps.reporting.bars import Bars
from onesided.apps.reporting.figure import Figure
from onesided.apps.reporting.lines import Lines, Point
from onesided.apps.reporting.quantities import RANKS, RATIO, TIME
from onesided.apps.reporting.result import known
from onesided.apps.reporting.sections.kind import Kind
from onesided.apps.reporting.sections.rows import numbers
from onesided.apps.reporting.sections.sweep import split

LIST = "overhead"  # what the names of the lists begin with
UP = RATIO.called(f"time over that of {REFERENCE}")


class MiniApps(Kind):
    """HPCCG and others, by every way to communicate."""

    def figures(self) -> list[Figure]:
        """Local. Overheads over the number of ranks, then the parts of the time."""
        lists = self.result.listings
        found: list[Figure] = []
        for name, records in lists.items():
            if name.startswith(LIST):
                scaling = name.removeprefix(LIST).strip("_")
                found += self._overheads(f"{scaling} scaling" if scaling else "all ranks", records)
        return found + self._parts()

    def _overheads(self, what: str, records: Sequence[Mapping[str, Any]]) -> list[Figure]:
        """Local. A line for every way; bars where there is one number of ranks only."""
        lines: dict[str, list[Point]] = {}
        for record in records:
            ranks = known(record.get("ranks"))
            for name, value in record.items():
                over = known(value)
                if name == "ranks" or name.endswith((DEVIATION, SECONDS)):
                    continue
                if ranks is not None and over is not None:
                    lines.setdefault(name, []).append((ranks, over))
        title = f"{self.result.command}, {what}: time over that of {REFERENCE}"
        words = f"By way to communicate: {', '.join(lines)}."
        if len(records) == 1:
            groups = {name: {"overhead": line[0][1]} for name, line in lines.items()}
            return [Bars(title, words, UP, groups, "method")] if groups else []
        return [Lines(title, words, RANKS, UP, lines, level=1.0)] if lines else []

    def _parts(self) -> list[Figure]:
        """Local. For every number of ranks the time of each way, and its parts."""
        found: list[Figure] = []
        for words, entries in split(self.result.timed, ["scaling", "ranks"]).items():
            groups = {
                entry.method: {"whole": entry.median or 0.0, **numbers(entry, "parts")}
                for entry in entries
            }
            told = f"Bars of the time and of its parts: {', '.join(groups)}."
            title = f"Where the time goes: {words or 'all ranks'}"
            found.append(Bars(title, told, TIME, groups, "method"))
        return found
