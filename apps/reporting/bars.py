"""A figure of bars that lie: a number for every name, in groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from xml.etree.ElementTree import Element

from onesided.apps.reporting.figure import COLORS, NOTHING, WIDTH, Figure, key
from onesided.apps.reporting.markup import Attributes, element
from onesided.apps.reporting.quantities import Quantity
from onesided.apps.reporting.table import Table

NAME, BAR, GAP = 16.0, 14.0, 8.0  # heights
ROOM = 74.0  # for the number behind a bar


@dataclass(frozen=True)
class Bars(Figure):
    """Numbers by group and name, of one quantity, from zero on.

    A group is a line of text with its bars below; the color tells the name.
    """

    title: str
    words: str
    along: Quantity
    groups: Mapping[str, Mapping[str, float]]
    about: str = "case"

    def drawing(self) -> Element:
        """Local. An ``svg`` element."""
        names = self._names()
        most = max((value for group in self.groups.values() for value in group.values()), default=0)
        unit = (WIDTH - ROOM) / (most if most > 0 else 1.0)
        parts, top = [], 0.0
        for group, bars in self.groups.items():
            parts.append(element("text", {"x": 0, "y": top + NAME - 4}, group))
            top += NAME
            for name, value in bars.items():
                length = max(unit * value, 1.0)
                about: Attributes = {
                    "class": f"bar c{names[name] % COLORS}",
                    "x": 0,
                    "y": top + 1,
                    "width": length,
                    "height": BAR - 2,
                }
                told = element("title", None, f"{group}, {name}: {self.along.show(value)}")
                place = {"x": length + 5, "y": top + BAR - 3}
                parts.append(element("rect", about, told))
                parts.append(element("text", place, self.along.show(value)))
                top += BAR
            top += GAP
        return self.canvas(element("g", {"class": "frame"}, *parts), height=max(top, 1.0))

    def legend(self) -> Element | None:
        """Local. Which color belongs to which name; None for one name."""
        names = self._names()
        if len(names) < 2:
            return None
        entries = (key(number, name, line=False) for name, number in names.items())
        return element("ul", {"class": "legend"}, *entries)

    def numbers(self) -> Table:
        """Local. A row for every group, a column for every name."""
        names = self._names()
        rows = [
            [group, *(self.along.show(bars[name]) if name in bars else NOTHING for name in names)]
            for group, bars in self.groups.items()
        ]
        return Table(f"{self.title}: {self.along.name}", [self.about, *names], rows)

    def values(self) -> tuple[list[str], list[list[object]]]:
        """Local. For CSV."""
        names = self._names()
        rows: list[list[object]] = [
            [group, *(bars.get(name, "") for name in names)] for group, bars in self.groups.items()
        ]
        return [self.about, *names], rows

    def paint(self, axes: Any) -> None:
        """Local. By matplotlib."""
        names = self._names()
        thick = 0.8 / max(len(names), 1)
        for name, number in names.items():
            shown = [(k, bars[name]) for k, bars in enumerate(self.groups.values()) if name in bars]
            places = [k + thick * (number - 0.5 * (len(names) - 1)) for k, _ in shown]
            axes.barh(places, [value for _, value in shown], thick, label=name)
        axes.set_yticks(range(len(self.groups)), list(self.groups))
        axes.invert_yaxis()
        axes.xaxis.set_major_formatter(lambda x, place: self.along.tick(x))
        axes.set_xlabel(self.along.name)
        if len(names) > 1:
            axes.legend(fontsize="small")

    def _names(self) -> dict[str, int]:
        names = dict.fromkeys(name for bars in self.groups.values() for name in bars)
        return {name: number for number, name in enumerate(names)}
