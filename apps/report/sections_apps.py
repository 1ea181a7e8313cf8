"""``bench apps``: applications end to end, communication and compute apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onesided.apps.report.figure import Bars, Figure, Lines, Point
from onesided.apps.report.markup import Table
from onesided.apps.report.page import Block
from onesided.apps.report.quantities import COUNT, RANKS, RATIO, TIME, Quantity, number
from onesided.apps.report.result import DEVIATION, METHOD, REFERENCE, SECONDS, known
from onesided.apps.report.sections import Kind, named, numbers, split

# ``bench fft --targets``, ``bench spmv --targets``: ours against others, case by case.

#: What a comparison is, by the words of its bound.
WORDS = {
    "at least": "How many times as fast as",
    "at most": "Time over that of",
}
LEFT_OUT = (METHOD, "opponent", "bound", "product")


class Suite(Kind):
    """Comparisons."""

    def figures(self) -> list[Figure]:
        """Local. One for every opponent: how many times as fast, or the time over its time."""
        found: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
        for entry in self.result.timed:
            reached = entry.number("reached")
            if reached is not None:
                labels = [name for name in entry.labels if name not in LEFT_OUT]
                group = found.setdefault((entry.label("bound"), entry.label("opponent")), {})
                group.setdefault(named(entry, labels), {})[entry.method or "ours"] = reached
        figures: list[Figure] = []
        for (bound, opponent), groups in found.items():
            title = f"{WORDS.get(bound, 'Against')} {opponent}"
            words = f"Bars, in groups: {', '.join(groups)}."
            figures.append(Bars(title, words, RATIO.called(title), groups))
        return figures


# ``bench spmv``: products by method.


class Products(Kind):
    """A sparse matrix times a vector."""

    def figures(self) -> list[Figure]:
        """Local. A bar for every method."""
        groups = {
            f"{entry.method} ({entry.label('product')})": {"time": entry.median or 0.0}
            for entry in self.result.timed
        }
        words = f"Bars of the time of a product: {', '.join(groups)}."
        return [Bars("Time of a product", words, TIME, groups, "method")] if groups else []


# Mini-applications: their overheads as in Figure 8 of paper 002, and where their time goes.

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


# MiniFE: what all mini-applications have, and the order of convergence.

LEVELS = "levels"
AXES = ("x", "y", "z")
ERRORS = ("max error", "rms error")
ERROR = Quantity("relative error", lambda value: f"{value:.2e}", number)


class MiniFe(MiniApps):
    """The figures of a mini-application, and one of errors on finer and finer meshes."""

    def figures(self) -> list[Figure]:
        """Local. The errors last."""
        lines: dict[str, list[Point]] = {}
        for record in self.result.listings.get(LEVELS, []):
            counts = [known(record.get(axis)) for axis in AXES]
            fewest = min((count for count in counts if count is not None), default=None)
            for name in ERRORS:
                error = known(record.get(name))
                if fewest is not None and error is not None:
                    lines.setdefault(name, []).append((fewest, error))
        found = super().figures()
        if any(len(line) > 1 for line in lines.values()):
            words = "Lines of the largest error and of the root of the mean square."
            across = COUNT.called("elements along the axis that has fewest")
            found.append(Lines("Errors on finer and finer meshes", words, across, ERROR, lines))
        return found


# ``bench all``: which experiments came to their end; their results have sections of their own.

STATES = ("experiment", "repeats", "command", "state")


class Experiments(Kind):
    """A row for every experiment; nothing to draw."""

    def figures(self) -> list[Figure]:
        """Local. None."""
        return []

    def tables(self) -> list[Block]:
        """Local. What became of each, and why one is missing."""
        entries = self.result.entries
        rows = [[*(entry.label(name) for name in STATES), entry.reason] for entry in entries]
        return [Table("Experiments", [*STATES, "reason"], rows, prose=True)] if rows else []


APPLICATION = "application"


class Applications(Kind):
    """A Fourier transform, conjugate gradients, by every method and by others."""

    def figures(self) -> list[Figure]:
        """Local. For every application the time of a run by method, and its parts."""
        found: list[Figure] = []
        for words, entries in split(self.result.timed, [APPLICATION]).items():
            groups = {
                entry.method: {"whole run": entry.median or 0.0, **numbers(entry, "parts")}
                for entry in entries
            }
            told = f"Bars of the time of a run and of its parts: {', '.join(groups)}."
            title = f"Time of a run: {words or self.result.command}"
            found.append(Bars(title, told, TIME.called("median time of a run"), groups, "method"))
        return found
