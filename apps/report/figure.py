"""What all figures share: a frame with axes, a legend, and their numbers as a table."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from xml.etree.ElementTree import Element

from onesided.apps.report.markup import Attributes, Table, element
from onesided.apps.report.quantities import Quantity

# Where a number lies on an axis, and which round numbers are written beside it; no drawing.

MOST = 7  # numbers beside an axis
STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)  # between two of them, times a power of ten
FINE = (1.0, 2.0, 5.0)  # in a decade of a logarithmic axis that has few decades


@dataclass(frozen=True)
class Scale:
    """An axis from ``low`` to ``high``; a logarithmic one has a ``base``, a linear one 0.

    ``whole``: beside it there are only whole numbers.
    """

    low: float
    high: float
    base: int = 0
    whole: bool = False

    @classmethod
    def over(cls, numbers: Iterable[float], base: int = 0, *, zero: bool = False) -> Scale:
        """Local. One on which all numbers can be seen that it can show; ``zero``: that one too."""
        shown = [number for number in numbers if math.isfinite(number) and (number > 0 or not base)]
        if zero and not base:
            shown.append(0.0)
        if not shown:
            return cls(1.0, 10.0, base)
        low, high = min(shown), max(shown)
        if base:
            if low == high:
                return cls(low / base, high * base, base)
            margin = (high / low) ** 0.04
            return cls(low / margin, high * margin, base)
        if low == high:
            return cls(low - 0.5 * (abs(low) or 1.0), high + 0.5 * (abs(high) or 1.0))
        margin = 0.04 * (high - low)
        bottom = low if zero and low == 0 else low - margin
        return cls(bottom, high + margin)

    def shows(self, number: float) -> bool:
        """Local. Whether a number has a place on this axis."""
        return math.isfinite(number) and (number > 0 or not self.base)

    def place(self, number: float) -> float:
        """Local. 0 at the low end, 1 at the high end."""
        if not self.base:
            return (number - self.low) / (self.high - self.low)
        return math.log(number / self.low) / math.log(self.high / self.low)

    def ticks(self) -> list[float]:
        """Local. Round numbers within the axis, at most about :data:`MOST`."""
        if not self.base:
            return self._linear()
        found = self._powers()
        if len(found) < 3 and self.base == 10:
            found = self._within(
                step * 10.0**power
                for power in range(*self._exponents(10))
                for step in FINE
            )
        return found if len(found) > 1 else self._linear()

    def _powers(self) -> list[float]:
        powers = self._within(float(self.base) ** k for k in range(*self._exponents(self.base)))
        stride = -(-len(powers) // MOST)
        return powers[:: stride or 1]

    def _exponents(self, base: int) -> tuple[int, int]:
        return math.floor(math.log(self.low, base)), math.ceil(math.log(self.high, base)) + 1

    def _within(self, numbers: Iterable[float]) -> list[float]:
        return [each for each in numbers if self.low <= each <= self.high]

    def _linear(self) -> list[float]:
        raw = (self.high - self.low) / (MOST - 1)
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(each * power for each in STEPS if each * power >= 0.999 * raw)
        if self.whole:
            step = max(1.0, round(step))
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [k * step for k in range(first, last + 1)]


WIDTH, HEIGHT = 460.0, 300.0  # of a drawing, in its own units
LEFT, RIGHT, TOP, BOTTOM = 74.0, 14.0, 10.0, 46.0  # margins
COLORS = 8  # how many the style sheet has
DASHES = ("", "6 3", "2 3")  # for the first eight names, the next eight, and so on
NOTHING = "-"
SHORT = 8  # rows; a longer table below a figure is folded


class Figure(ABC):
    """A title, and what the picture shows in words, for those who do not see it."""

    title: str

    @property
    @abstractmethod
    def words(self) -> str:
        """Local. What is drawn, in words."""

    @abstractmethod
    def drawing(self) -> Element:
        """Local. An ``svg`` element, which images are painted from as well."""

    @abstractmethod
    def values(self) -> tuple[list[str], list[list[Any]]]:
        """Local. The names of the columns, and rows in full precision; None where there is none."""

    @abstractmethod
    def shown(self, column: int, value: Any) -> str:
        """Local. One of the values for a person."""

    @property
    @abstractmethod
    def caption(self) -> str:
        """Local. Of the table of the values."""

    def names(self) -> dict[str, int]:
        """Local. What a reader tells apart, with the number of its color and mark."""
        return {}

    def key(self, name: str, number: int) -> list[Element]:
        """Local. What stands for a name in the legend, in 30 by 14."""
        box = {"x": 8, "y": 1, "width": 20, "height": 12}
        return [element("rect", {"class": f"bar c{number % COLORS}", **box})]

    def keys(self) -> dict[str, Element]:
        """Local. The legend, by name."""
        about = {"viewBox": "0 0 30 14", "class": "key", "aria-hidden": "true"}
        return {
            name: element("svg", about, *self.key(name, number))
            for name, number in self.names().items()
        }

    def block(self) -> Element:
        """Local. For the page."""
        parts = [element("figcaption", None, self.title), self.drawing()]
        keys = self.keys()
        if keys:
            entries = (element("li", None, key, name) for name, key in keys.items())
            parts.append(element("ul", {"class": "legend"}, *entries))
        heads, rows = self.values()
        cells = [
            [NOTHING if x is None else self.shown(place, x) for place, x in enumerate(row)]
            for row in rows
        ]
        shown = {"open": "open"} if len(rows) <= SHORT else None
        table = Table(self.caption, heads, cells).block()
        summary = element("summary", None, "Numbers")
        return element("figure", None, *parts, element("details", shown, summary, table))

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
    #: Where numbers stand below; if there are none, where the axis has them.
    at: Sequence[float] = ()

    @property
    def below(self) -> Sequence[float]:
        """Local. The numbers below."""
        return self.at or self.x.ticks()

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
        for tick in self.below:
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
    found = Scale.over(numbers, quantity.base if quantity.log else 0, zero=not quantity.log)
    return replace(found, whole=quantity.whole)


def mark(number: int, x: float, y: float, told: str = "") -> Element:
    """Local. The mark of the name with this number: eight colors, and a shape for each of six."""
    shape, size = _SHAPES[number % len(_SHAPES)], 3.6
    points = " ".join(f"{x + size * dx:.1f},{y + size * dy:.1f}" for dx, dy in shape)
    words = [element("title", None, told)] if told else []
    return element("polygon", {"class": f"mark c{number % COLORS}", "points": points}, *words)


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


# A figure of bars that lie: a number for every name, in groups.

NAME, BAR, GAP = 16.0, 14.0, 8.0  # heights
ROOM = 74.0  # for the number behind a bar


@dataclass(frozen=True)
class Bars(Figure):
    """Numbers by group and name, of one quantity, from zero on.

    A group is a line of text with its bars below; the color tells the name.
    """

    title: str
    along: Quantity
    groups: Mapping[str, Mapping[str, float]]
    about: str = "case"

    @property
    def words(self) -> str:
        return f"Bars of the {self.along.name}, in groups: {', '.join(self.groups)}."

    def drawing(self) -> Element:
        names = self.names()
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

    @property
    def caption(self) -> str:
        return f"{self.title}: {self.along.name}"

    def values(self) -> tuple[list[str], list[list[Any]]]:
        """Local. A row for every group, a column for every name."""
        names = self.names()
        rows = [[group, *map(bars.get, names)] for group, bars in self.groups.items()]
        return [self.about, *names], rows

    def shown(self, column: int, value: Any) -> str:
        return self.along.show(value) if column else value

    def names(self) -> dict[str, int]:
        names = dict.fromkeys(name for bars in self.groups.values() for name in bars)
        return {name: number for number, name in enumerate(names)}

    def keys(self) -> dict[str, Element]:
        """Local. None for a single name."""
        return super().keys() if len(self.names()) > 1 else {}


# A figure of lines: one quantity over another, a line for every name.

Point = tuple[float, float]


@dataclass(frozen=True)
class Lines(Figure):
    """Points by name, in order of x; ``level`` is drawn across, as what others compare with.

    ``palette``: names whose places decide the colors and marks, so that they are the same in
    several figures. ``spread``: by name and x, how far y may be off.

    What has no place on a logarithmic axis is left out of the picture, and stays in the table.
    """

    title: str
    across: Quantity
    up: Quantity
    lines: Mapping[str, Sequence[Point]]
    level: float | None = None
    palette: Sequence[str] = ()
    spread: Mapping[str, Mapping[float, float]] = field(default_factory=dict)

    @property
    def words(self) -> str:
        return f"Lines of the {self.up.name} over {self.across.name}: {', '.join(self.lines)}."

    def drawing(self) -> Element:
        frame = self._frame()
        parts = [frame.drawing(self.across, self.up)]
        if self.level is not None:
            ends = [(frame.left(x), frame.top(self.level)) for x in (frame.x.low, frame.x.high)]
            ends_text = " ".join(f"{x:.1f},{y:.1f}" for x, y in ends)
            parts.append(element("polyline", {"class": "level", "points": ends_text}))
        numbers = self.names()
        for name, line in self.lines.items():
            number = numbers[name]
            shown = [(x, y) for x, y in line if frame.x.shows(x) and frame.y.shows(y)]
            places = [(frame.left(x), frame.top(y)) for x, y in shown]
            marks = (
                mark(number, *place, f"{name}, {self.across.show(x)}: {self.up.show(y)}")
                for place, (x, y) in zip(places, shown, strict=True)
            )
            bars = (
                _line(f"line c{number % COLORS}", x, frame.top(low), x, frame.top(high))
                for (x, _), (low, high) in zip(places, self._ends(name, shown), strict=True)
                if low < high
            )
            parts.append(element("g", None, stroke(number, places), *bars, *marks))
        return self.canvas(*parts)

    def _ends(self, name: str, shown: Sequence[Point]) -> list[tuple[float, float]]:
        """From where to where y may lie, above zero where it is."""
        known = self.spread.get(name, {})
        return [(max(y - known.get(x, 0.0), 0.01 * y), y + known.get(x, 0.0)) for x, y in shown]

    @property
    def caption(self) -> str:
        return f"{self.title}: {self.up.name} by {self.across.name}"

    def values(self) -> tuple[list[str], list[list[Any]]]:
        """Local. A row for every x, a column for every name."""
        found = [dict(line) for line in self.lines.values()]
        rows = [[x, *(line.get(x) for line in found)] for x in self._xs()]
        return [self.across.name, *self.lines], rows

    def shown(self, column: int, value: Any) -> str:
        return self.up.show(value) if column else self.across.show(value)

    def names(self) -> dict[str, int]:
        places = list(dict.fromkeys([*self.palette, *self.lines]))
        return {name: places.index(name) for name in self.lines}

    def key(self, name: str, number: int) -> list[Element]:
        return [stroke(number, [(1.0, 7.0), (29.0, 7.0)]), mark(number, 15.0, 7.0)]

    def _frame(self) -> Frame:
        """The axes, on which everything can be seen."""
        points = [point for line in self.lines.values() for point in line]
        heights = [y for _, y in points]
        for name, line in self.lines.items():
            heights += [end for ends in self._ends(name, line) for end in ends]
        if self.level is not None:
            heights.append(self.level)
        xs = self._xs()
        few = self.across.whole and len(xs) <= MOST and all(float(x).is_integer() for x in xs)
        return Frame(scale(xs, self.across), scale(heights, self.up), xs if few else ())

    def _xs(self) -> list[float]:
        return sorted({x for line in self.lines.values() for x, _ in line})


def gathered(points: Iterable[tuple[str, float | None, float | None]]) -> dict[str, list[Point]]:
    """Local. Lines of points by name, in order of x, of which each is there once; a point that has
    no x or no y is left out."""
    found: dict[str, dict[float, float]] = {}
    for name, x, y in points:
        if x is not None and y is not None:
            found.setdefault(name, {})[x] = y
    return {name: sorted(line.items()) for name, line in found.items()}


# A figure of squares: a number for every row and column.

GRID_LEFT, GRID_TOP = 62.0, 8.0
LARGEST = 40.0  # side of a square
LETTER = 6.6  # width of one in a name beside the axis
LINE = 13.0  # height of such a name
FAINTEST = 0.12  # opacity of the smallest number that is not zero


@dataclass(frozen=True)
class Squares(Figure):
    """Rows of numbers; the darker a square, the larger its number, by logarithms; zero is empty."""

    title: str
    down: str
    across: str
    rows: Sequence[str]
    columns: Sequence[str]
    counts: Sequence[Sequence[float]]
    quantity: Quantity

    @property
    def words(self) -> str:
        return f"{len(self.counts)} rows of squares, darker where {self.quantity.name} are more."

    def drawing(self) -> Element:
        known = [count for row in self.counts for count in row if count > 0]
        most, least = max(known, default=1.0), min(known, default=1.0)
        span = math.log(most / least) or 1.0

        side = min((WIDTH - GRID_LEFT) / max(len(self.columns), 1), LARGEST)
        parts = []
        for row, counts in enumerate(self.counts):
            for column, count in enumerate(counts):
                if count > 0:
                    share = 1.0 - math.log(most / count) / span
                    about: Attributes = {
                        "class": "bar c0",
                        "fill-opacity": f"{FAINTEST + (1 - FAINTEST) * share:.2f}",
                        "x": GRID_LEFT + side * column,
                        "y": GRID_TOP + side * row,
                        "width": 0.96 * side,
                        "height": 0.96 * side,
                    }
                    name = f"{self.rows[row]} to {self.columns[column]}"
                    told = element("title", None, f"{name}: {self.quantity.show(count)}")
                    parts.append(element("rect", about, told))
        bottom = GRID_TOP + side * len(self.rows)
        for row in range(0, len(self.rows), math.ceil(LINE / side)):
            place: Attributes = {
                "x": GRID_LEFT - 6, "y": GRID_TOP + side * (row + 0.5) + 4, "text-anchor": "end"
            }
            parts.append(element("text", place, self.rows[row]))
        widest = LETTER * (1 + max((len(name) for name in self.columns), default=0))
        for column in range(0, len(self.columns), math.ceil(widest / side)):
            middle = GRID_LEFT + side * (column + 0.5)
            place = {"x": middle, "y": bottom + 14, "text-anchor": "middle"}
            parts.append(element("text", place, self.columns[column]))
        center = GRID_LEFT + 0.5 * side * len(self.columns)
        place = {"x": center, "y": bottom + 32, "text-anchor": "middle"}
        parts.append(element("text", place, f"{self.down} (down), {self.across} (across)"))
        return self.canvas(element("g", {"class": "frame"}, *parts), height=bottom + 40)

    @property
    def caption(self) -> str:
        return f"{self.title}: {self.quantity.name}"

    def values(self) -> tuple[list[str], list[list[Any]]]:
        """Local. The same rows and columns."""
        rows = [[name, *row] for name, row in zip(self.rows, self.counts, strict=True)]
        return [f"{self.down} / {self.across}", *self.columns], rows

    def shown(self, column: int, value: Any) -> str:
        return self.quantity.show(value) if column else value


# A figure of areas: which of some names is best, over two quantities with logarithmic axes.
