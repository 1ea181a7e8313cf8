"""What all figures share: a frame with axes, a legend, and their numbers as a table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree.ElementTree import Element

from onesided.apps.reporting.markup import Attributes, element
from onesided.apps.reporting.quantities import Quantity
from onesided.apps.reporting.scale import Scale
from onesided.apps.reporting.table import Table

WIDTH, HEIGHT = 460.0, 300.0  # of a drawing, in its own units
LEFT, RIGHT, TOP, BOTTOM = 74.0, 14.0, 10.0, 46.0  # margins
COLORS = 8  # how many the style sheet has
DASHES = ("", "6 3", "2 3")  # for the first eight names, the next eight, and so on
NOTHING = "-"
SHORT = 8  # rows; a longer table below a figure is folded


class Figure(ABC):
    """A title, and what the picture shows in words, for those who do not see it."""

    title: str
    words: str

    @abstractmethod
    def drawing(self) -> Element:
        """Local. An ``svg`` element."""

    @abstractmethod
    def numbers(self) -> Table:
        """Local. What is drawn, as a table."""

    @abstractmethod
    def values(self) -> tuple[list[str], list[list[object]]]:
        """Local. For CSV: the names of the columns, and rows in full precision."""

    @abstractmethod
    def paint(self, axes: Any) -> None:
        """Local. The same picture by matplotlib."""

    def legend(self) -> Element | None:
        """Local. Which mark belongs to which name; None where there is nothing to tell apart."""
        return None

    def block(self) -> Element:
        """Local. For the page."""
        parts = [element("figcaption", None, self.title), self.drawing()]
        legend = self.legend()
        if legend is not None:
            parts.append(legend)
        table = self.numbers()
        shown = {"open": "open"} if len(table.rows) <= SHORT else None
        summary = element("summary", None, "Numbers")
        return element("figure", None, *parts, element("details", shown, summary, table.block()))

    def canvas(self, *parts: Element, height: float = HEIGHT) -> Element:
        """Local. The ``svg`` around what is drawn, which tells its title and words."""
        about = {
            "viewBox": f"0 0 {WIDTH:.0f} {height:.0f}",
            "role": "img",
            "aria-label": f"{self.title}. {self.words}",
        }
        told = [element("title", None, self.title), element("desc", None, self.words)]
        return element("svg", about, *told, *parts)


@dataclass(frozen=True)
class Frame:
    """The two axes of a figure, and where a point lies between them."""

    x: Scale
    y: Scale

    def left(self, number: float) -> float:
        """Local. Distance from the left edge."""
        return LEFT + (WIDTH - LEFT - RIGHT) * self.x.place(number)

    def top(self, number: float) -> float:
        """Local. Distance from the upper edge."""
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * self.y.place(number)

    def drawing(self, across: Quantity, up: Quantity) -> Element:
        """Local. Axes, round numbers beside them, and faint lines at these."""
        right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
        parts = []
        for tick in self.x.ticks():
            at = self.left(tick)
            parts.append(_line("grid", at, TOP, at, bottom))
            place: Attributes = {"x": at, "y": bottom + 16, "text-anchor": "middle"}
            parts.append(element("text", place, across.tick(tick)))
        for tick in self.y.ticks():
            at = self.top(tick)
            parts.append(_line("grid", LEFT, at, right, at))
            place = {"x": LEFT - 6, "y": at + 4, "text-anchor": "end"}
            parts.append(element("text", place, up.tick(tick)))
        parts.append(_line("axis", LEFT, bottom, right, bottom))
        parts.append(_line("axis", LEFT, TOP, LEFT, bottom))
        middle: Attributes = {"x": (LEFT + right) / 2, "y": HEIGHT - 8, "text-anchor": "middle"}
        parts.append(element("text", middle, across.name))
        height = (TOP + bottom) / 2
        turned: Attributes = {
            "x": 12,
            "y": height,
            "text-anchor": "middle",
            "transform": f"rotate(-90 12 {height:.0f})",
        }
        parts.append(element("text", turned, up.name))
        return element("g", {"class": "frame"}, *parts)


def scale(numbers: Sequence[float], quantity: Quantity) -> Scale:
    """Local. The axis of a quantity."""
    return Scale.over(numbers, quantity.base if quantity.log else 0, zero=not quantity.log)


def mark(number: int, x: float, y: float, told: str = "") -> Element:
    """Local. The mark of the name with this number: eight colors, and a shape for each of six."""
    shape, size = _SHAPES[number % len(_SHAPES)], 3.6
    points = " ".join(f"{x + size * dx:.1f},{y + size * dy:.1f}" for dx, dy in shape)
    words = [element("title", None, told)] if told else []
    return element("polygon", {"class": f"mark c{number % COLORS}", "points": points}, *words)


def key(number: int, name: str, *, line: bool = True) -> Element:
    """Local. An entry of a legend."""
    about = {"viewBox": "0 0 30 14", "class": "key", "aria-hidden": "true"}
    if line:
        parts = [stroke(number, [(1.0, 7.0), (29.0, 7.0)]), mark(number, 15.0, 7.0)]
    else:
        box: Attributes = {
            "class": f"bar c{number % COLORS}", "x": 8, "y": 1, "width": 20, "height": 12
        }
        parts = [element("rect", box)]
    return element("li", None, element("svg", about, *parts), name)


def stroke(number: int, points: Sequence[tuple[float, float]]) -> Element:
    """Local. A line through points, in the color and the dashes of the name with this number."""
    dashes = DASHES[number // COLORS % len(DASHES)]
    return element(
        "polyline",
        {
            "class": f"line c{number % COLORS}",
            "points": " ".join(f"{x:.1f},{y:.1f}" for x, y in points),
            **({"stroke-dasharray": dashes} if dashes else {}),
        },
    )


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> Element:
    return element("line", {"class": kind, "x1": x1, "y1": y1, "x2": x2, "y2": y2})


_SHAPES: tuple[tuple[tuple[float, float], ...], ...] = (
    ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    ((0.0, -1.2), (1.1, 0.9), (-1.1, 0.9)),
    ((0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)),
    ((0.0, 1.2), (1.1, -0.9), (-1.1, -0.9)),
    ((-0.4, -1.2), (0.4, -1.2), (1.2, 0.0), (0.4, 1.2), (-0.4, 1.2), (-1.2, 0.0)),
    ((-1.2, -0.5), (1.2, -0.5), (1.2, 0.5), (-1.2, 0.5)),
)
