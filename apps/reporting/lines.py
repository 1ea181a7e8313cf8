"""A figure of lines: one quantity over another, a line for every name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree.ElementTree import Element

from onesided.apps.reporting.figure import NOTHING, Figure, Frame, key, mark, scale, stroke
from onesided.apps.reporting.markup import element
from onesided.apps.reporting.quantities import Quantity
from onesided.apps.reporting.table import Table

Point = tuple[float, float]


@dataclass(frozen=True)
class Lines(Figure):
    """Points by name, in order of x; ``level`` is drawn across, as what others compare with.

    ``palette``: names whose places decide the colors and marks, so that they are the same in
    several figures.

    What has no place on a logarithmic axis is left out of the picture, and stays in the table.
    """

    title: str
    words: str
    across: Quantity
    up: Quantity
    lines: Mapping[str, Sequence[Point]]
    level: float | None = None
    palette: Sequence[str] = ()

    def drawing(self) -> Element:
        """Local. An ``svg`` element."""
        points = [point for line in self.lines.values() for point in line]
        heights = [y for _, y in points]
        if self.level is not None:
            heights.append(self.level)
        frame = Frame(scale([x for x, _ in points], self.across), scale(heights, self.up))
        parts = [frame.drawing(self.across, self.up)]
        if self.level is not None:
            ends = [(frame.left(x), frame.top(self.level)) for x in (frame.x.low, frame.x.high)]
            ends_text = " ".join(f"{x:.1f},{y:.1f}" for x, y in ends)
            parts.append(element("polyline", {"class": "level", "points": ends_text}))
        numbers = self._marks()
        for name, line in self.lines.items():
            number = numbers[name]
            shown = [(x, y) for x, y in line if frame.x.shows(x) and frame.y.shows(y)]
            places = [(frame.left(x), frame.top(y)) for x, y in shown]
            marks = (
                mark(number, *place, f"{name}, {self.across.show(x)}: {self.up.show(y)}")
                for place, (x, y) in zip(places, shown, strict=True)
            )
            parts.append(element("g", None, stroke(number, places), *marks))
        return self.canvas(*parts)

    def legend(self) -> Element:
        """Local. Which line belongs to which name."""
        entries = (key(number, name) for name, number in self._marks().items())
        return element("ul", {"class": "legend"}, *entries)

    def numbers(self) -> Table:
        """Local. A row for every x, a column for every name."""
        found = [dict(line) for line in self.lines.values()]
        rows = [
            [
                self.across.show(x),
                *(self.up.show(line[x]) if x in line else NOTHING for line in found),
            ]
            for x in self._xs()
        ]
        caption = f"{self.title}: {self.up.name} by {self.across.name}"
        return Table(caption, [self.across.name, *self.lines], rows)

    def values(self) -> tuple[list[str], list[list[object]]]:
        """Local. For CSV."""
        found = [dict(line) for line in self.lines.values()]
        rows: list[list[object]] = [[x, *(line.get(x, "") for line in found)] for x in self._xs()]
        return [self.across.name, *self.lines], rows

    def paint(self, axes: Any) -> None:
        """Local. By matplotlib."""
        for name, line in self.lines.items():
            axes.plot([x for x, _ in line], [y for _, y in line], marker="o", label=name)
        for quantity, choose in ((self.across, axes.set_xscale), (self.up, axes.set_yscale)):
            if quantity.log:
                choose("log", base=quantity.base)
        if self.level is not None:
            axes.axhline(self.level, color="gray", linewidth=1.0)
        axes.xaxis.set_major_formatter(lambda x, place: self.across.tick(x))
        axes.yaxis.set_major_formatter(lambda y, place: self.up.tick(y))
        axes.set_xlabel(self.across.name)
        axes.set_ylabel(self.up.name)
        axes.grid(True, alpha=0.3)
        axes.legend(fontsize="small")

    def _marks(self) -> dict[str, int]:
        """By name the number of its color and mark."""
        places = list(dict.fromkeys([*self.palette, *self.lines]))
        return {name: places.index(name) for name in self.lines}

    def _xs(self) -> list[float]:
        return sorted({x for line in self.lines.values() for x, _ in line})
