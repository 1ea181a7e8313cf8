"""A figure of lines: one quantity over another, a line for every name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree.ElementTree import Element

from onesided.apps.reporting.figure import COLORS, NOTHING, Figure, Frame, key, mark, scale, stroke
from onesided.apps.reporting.markup import element
from onesided.apps.reporting.quantities import Quantity
from onesided.apps.reporting.table import Table

Point = tuple[float, float]
MARKERS = "s^Dvho"  # of matplotlib, in the order of our own
STYLES = ("-", "--", ":")


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
        frame = self._frame()
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
        numbers = self._marks()
        for name, line in self.lines.items():
            look = {
                "color": f"C{numbers[name] % 10}",
                "marker": MARKERS[numbers[name] % len(MARKERS)],
                "linestyle": STYLES[numbers[name] // COLORS % len(STYLES)],
            }
            axes.plot([x for x, _ in line], [y for _, y in line], label=name, **look)
        if self.level is not None:
            axes.axhline(self.level, color="gray", linewidth=1.0)
        frame = self._frame()
        for quantity, one, set_scale, set_ticks in (
            (self.across, frame.x, axes.set_xscale, axes.set_xticks),
            (self.up, frame.y, axes.set_yscale, axes.set_yticks),
        ):
            if quantity.log:
                set_scale("log", base=quantity.base)
            set_ticks(one.ticks(), [quantity.tick(tick) for tick in one.ticks()])
        axes.minorticks_off()
        axes.set_xlim(frame.x.low, frame.x.high)
        axes.set_ylim(frame.y.low, frame.y.high)
        axes.set_xlabel(self.across.name)
        axes.set_ylabel(self.up.name)
        axes.grid(True, alpha=0.3)
        axes.legend(fontsize="small")

    def _frame(self) -> Frame:
        """The axes, on which everything can be seen."""
        points = [point for line in self.lines.values() for point in line]
        heights = [y for _, y in points]
        if self.level is not None:
            heights.append(self.level)
        return Frame(scale([x for x, _ in points], self.across), scale(heights, self.up))

    def _marks(self) -> dict[str, int]:
        """By name the number of its color and mark."""
        places = list(dict.fromkeys([*self.palette, *self.lines]))
        return {name: places.index(name) for name in self.lines}

    def _xs(self) -> list[float]:
        return sorted({x for line in self.lines.values() for x, _ in line})
