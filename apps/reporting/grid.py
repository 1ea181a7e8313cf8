"""A figure of squares: a number for every row and column, or the name of what is best there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree.ElementTree import Element

from onesided.apps.reporting.figure import COLORS, WIDTH, Figure, key
from onesided.apps.reporting.markup import Attributes, element
from onesided.apps.reporting.quantities import Quantity
from onesided.apps.reporting.scale import MOST
from onesided.apps.reporting.table import Table

LEFT, TOP = 62.0, 8.0
LARGEST = 40.0  # side of a square
LETTER = 6.6  # width of one in a name beside the axis
LINE = 13.0  # height of such a name
FAINTEST = 0.12  # opacity of the smallest number that is not zero


@dataclass(frozen=True)
class Squares(Figure):
    """Rows of numbers; the darker a square, the larger its number, by logarithms; zero is empty."""

    title: str
    words: str
    down: str
    across: str
    rows: Sequence[str]
    columns: Sequence[str]
    counts: Sequence[Sequence[float]]
    quantity: Quantity

    def drawing(self) -> Element:
        """Local. An ``svg`` element."""
        known = [count for row in self.counts for count in row if count > 0]
        most, least = max(known, default=1.0), min(known, default=1.0)
        span = math.log(most / least) or 1.0

        def square(row: int, column: int) -> Element | None:
            count = self.counts[row][column]
            if not count > 0:
                return None
            share = 1.0 - math.log(most / count) / span
            name = f"{self.rows[row]} to {self.columns[column]}: {self.quantity.show(count)}"
            opacity = f"{FAINTEST + (1 - FAINTEST) * share:.2f}"
            return element(
                "rect",
                {"class": "bar c0", "fill-opacity": opacity},
                element("title", None, name),
            )

        return _squares(self, self.down, self.across, self.rows, self.columns, square)

    def numbers(self) -> Table:
        """Local. The same rows and columns."""
        rows = [
            [name, *(self.quantity.show(count) for count in row)]
            for name, row in zip(self.rows, self.counts, strict=True)
        ]
        caption = f"{self.title}: {self.quantity.name}"
        return Table(caption, [f"{self.down} / {self.across}", *self.columns], rows)

    def values(self) -> tuple[list[str], list[list[object]]]:
        """Local. For CSV."""
        rows: list[list[object]] = [
            [name, *row] for name, row in zip(self.rows, self.counts, strict=True)
        ]
        return [f"{self.down} / {self.across}", *self.columns], rows

    def paint(self, axes: Any) -> None:
        """Local. By matplotlib."""
        from matplotlib.colors import LogNorm

        known = [count for row in self.counts for count in row if count > 0]
        most = max(known, default=2.0)
        norm = LogNorm(min(min(known, default=1.0), 0.999 * most), most)
        shown = [[count if count > 0 else math.nan for count in row] for row in self.counts]
        image = axes.imshow(shown, norm=norm, interpolation="nearest", cmap="viridis")
        _name_axes(axes, self.down, self.across, self.rows, self.columns)
        axes.figure.colorbar(image, label=self.quantity.name)


@dataclass(frozen=True)
class Regions(Figure):
    """Rows of names, each with a color: where which of them is best."""

    title: str
    words: str
    down: str
    across: str
    rows: Sequence[str]
    columns: Sequence[str]
    best: Sequence[Sequence[str]]

    def drawing(self) -> Element:
        """Local. An ``svg`` element."""
        names = self._names()

        def square(row: int, column: int) -> Element:
            name = self.best[row][column]
            told = f"{self.rows[row]}, {self.columns[column]}: {name}"
            kind = {"class": f"bar c{names[name] % COLORS}"}
            return element("rect", kind, element("title", None, told))

        return _squares(self, self.down, self.across, self.rows, self.columns, square)

    def legend(self) -> Element:
        """Local. Which color belongs to which name."""
        entries = (key(number, name, line=False) for name, number in self._names().items())
        return element("ul", {"class": "legend"}, *entries)

    def numbers(self) -> Table:
        """Local. The same rows and columns."""
        rows = [[name, *row] for name, row in zip(self.rows, self.best, strict=True)]
        return Table(self.title, [f"{self.down} / {self.across}", *self.columns], rows)

    def values(self) -> tuple[list[str], list[list[object]]]:
        """Local. For CSV."""
        rows: list[list[object]] = [
            [name, *row] for name, row in zip(self.rows, self.best, strict=True)
        ]
        return [f"{self.down} / {self.across}", *self.columns], rows

    def paint(self, axes: Any) -> None:
        """Local. By matplotlib."""
        names = self._names()
        numbers = [[names[name] % 10 for name in row] for row in self.best]
        axes.imshow(numbers, vmin=0, vmax=9, cmap="tab10", interpolation="nearest", aspect="auto")
        _name_axes(axes, self.down, self.across, self.rows, self.columns)
        for name, number in names.items():
            axes.plot([], [], "s", color=f"C{number % 10}", label=name)
        axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))

    def _names(self) -> dict[str, int]:
        return {
            name: number
            for number, name in enumerate(sorted({name for row in self.best for name in row}))
        }


def _squares(
    figure: Figure,
    down: str,
    across: str,
    rows: Sequence[str],
    columns: Sequence[str],
    square: Any,
) -> Element:
    """The squares with names beside them, of which some are left out where they are many."""
    side = min((WIDTH - LEFT) / max(len(columns), 1), LARGEST)
    parts = []
    for row in range(len(rows)):
        for column in range(len(columns)):
            drawn = square(row, column)
            if drawn is not None:
                corner = {"x": LEFT + side * column, "y": TOP + side * row}
                for name, value in (corner | {"width": 0.96 * side, "height": 0.96 * side}).items():
                    drawn.set(name, f"{value:.1f}")
                parts.append(drawn)
    bottom = TOP + side * len(rows)
    for row in range(0, len(rows), math.ceil(LINE / side)):
        place: Attributes = {"x": LEFT - 6, "y": TOP + side * (row + 0.5) + 4, "text-anchor": "end"}
        parts.append(element("text", place, rows[row]))
    widest = LETTER * (1 + max((len(name) for name in columns), default=0))
    for column in range(0, len(columns), math.ceil(widest / side)):
        place = {"x": LEFT + side * (column + 0.5), "y": bottom + 14, "text-anchor": "middle"}
        parts.append(element("text", place, columns[column]))
    center = LEFT + 0.5 * side * len(columns)
    middle: Attributes = {"x": center, "y": bottom + 32, "text-anchor": "middle"}
    parts.append(element("text", middle, f"{down} (down), {across} (across)"))
    return figure.canvas(element("g", {"class": "frame"}, *parts), height=bottom + 40)


def _name_axes(
    axes: Any, down: str, across: str, rows: Sequence[str], columns: Sequence[str]
) -> None:
    """Names beside the axes of matplotlib."""
    for names, choose in ((rows, axes.set_yticks), (columns, axes.set_xticks)):
        every = -(-len(names) // MOST) or 1
        choose(range(0, len(names), every), names[::every])
    axes.set_ylabel(down)
    axes.set_xlabel(across)
