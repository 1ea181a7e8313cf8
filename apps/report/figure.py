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
#: Those of the style sheet in light.
INKS = (
    "#0072b2", "#c44e00", "#008060", "#a8478a", "#8f6a00", "#2b87c4", "#4d4d4d", "#b0263c"
)  # fmt: skip
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


# A figure of bars that lie: a number for every name, in groups.

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
            look = {"color": INKS[number % COLORS], "label": name if len(names) > 1 else None}
            axes.barh(places, [value for _, value in shown], thick, **look)
        axes.set_yticks(range(len(self.groups)), list(self.groups))
        axes.invert_yaxis()
        axes.xaxis.set_major_formatter(lambda x, place: self.along.tick(x))
        axes.set_xlabel(self.along.name)

    def _names(self) -> dict[str, int]:
        names = dict.fromkeys(name for bars in self.groups.values() for name in bars)
        return {name: number for number, name in enumerate(names)}


# A figure of lines: one quantity over another, a line for every name.

Point = tuple[float, float]
MARKERS = "s^Dvho"  # of matplotlib, in the order of our own
STYLES = ("-", "--", ":")
MOST_MARKS = 20  # of a line as an image


@dataclass(frozen=True)
class Lines(Figure):
    """Points by name, in order of x; ``level`` is drawn across, as what others compare with.

    ``palette``: names whose places decide the colors and marks, so that they are the same in
    several figures. ``spread``: by name and x, how far y may be off.

    What has no place on a logarithmic axis is left out of the picture, and stays in the table.
    """

    title: str
    words: str
    across: Quantity
    up: Quantity
    lines: Mapping[str, Sequence[Point]]
    level: float | None = None
    palette: Sequence[str] = ()
    spread: Mapping[str, Mapping[float, float]] = field(default_factory=dict)

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
            number = numbers[name]
            look = {
                "color": INKS[number % COLORS],
                "marker": MARKERS[number % len(MARKERS)],
                "linestyle": STYLES[number // COLORS % len(STYLES)],
                "markersize": 5,
                "markevery": -(-len(line) // MOST_MARKS) or 1,
            }
            off = [(y - low, high - y) for (_, y), (low, high) in
                   zip(line, self._ends(name, line), strict=True)]  # fmt: skip
            bars = {"yerr": list(zip(*off, strict=True)), "capsize": 2} if self.spread else {}
            # side by side, where bars would hide each other
            aside = 1.01 ** (number - 0.5 * len(numbers)) if self.spread else 1.0
            xs = [x * aside for x, _ in line]
            axes.errorbar(xs, [y for _, y in line], label=name, **bars, **look)
        if self.level is not None:
            axes.axhline(self.level, color="gray", linewidth=1.0)
        frame = self._frame()
        for quantity, ticks, set_scale, set_ticks in (
            (self.across, frame.below, axes.set_xscale, axes.set_xticks),
            (self.up, frame.y.ticks(), axes.set_yscale, axes.set_yticks),
        ):
            if quantity.log:
                set_scale("log", base=quantity.base)
            set_ticks(ticks, [quantity.tick(tick) for tick in ticks])
        axes.minorticks_off()
        wider = 1.01 ** len(numbers) if self.spread else 1.0
        axes.set_xlim(frame.x.low / wider, frame.x.high * wider)
        axes.set_ylim(frame.y.low, frame.y.high)
        axes.set_xlabel(self.across.name)
        axes.set_ylabel(self.up.name)
        axes.grid(True, alpha=0.3)

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

    def _marks(self) -> dict[str, int]:
        """By name the number of its color and mark."""
        places = list(dict.fromkeys([*self.palette, *self.lines]))
        return {name: places.index(name) for name in self.lines}

    def _xs(self) -> list[float]:
        return sorted({x for line in self.lines.values() for x, _ in line})


def drawn(
    title: str,
    across: Quantity,
    up: Quantity,
    lines: Mapping[str, Sequence[Point]],
    *,
    level: float | None = None,
    palette: Sequence[str] = (),
    spread: Mapping[str, Mapping[float, float]] | None = None,
) -> Lines:
    """Local. Lines with the words that tell of them."""
    words = f"Lines of the {up.name} over {across.name}: {', '.join(lines)}."
    return Lines(title, words, across, up, lines, level, palette, spread or {})


# A figure of squares: a number for every row and column, or the name of what is best there.

GRID_LEFT, GRID_TOP = 62.0, 8.0
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
    side = min((WIDTH - GRID_LEFT) / max(len(columns), 1), LARGEST)
    parts = []
    for row in range(len(rows)):
        for column in range(len(columns)):
            drawn = square(row, column)
            if drawn is not None:
                corner = {"x": GRID_LEFT + side * column, "y": GRID_TOP + side * row}
                for name, value in (corner | {"width": 0.96 * side, "height": 0.96 * side}).items():
                    drawn.set(name, f"{value:.1f}")
                parts.append(drawn)
    bottom = GRID_TOP + side * len(rows)
    for row in range(0, len(rows), math.ceil(LINE / side)):
        middle = GRID_TOP + side * (row + 0.5)
        place: Attributes = {"x": GRID_LEFT - 6, "y": middle + 4, "text-anchor": "end"}
        parts.append(element("text", place, rows[row]))
    widest = LETTER * (1 + max((len(name) for name in columns), default=0))
    for column in range(0, len(columns), math.ceil(widest / side)):
        place = {"x": GRID_LEFT + side * (column + 0.5), "y": bottom + 14, "text-anchor": "middle"}
        parts.append(element("text", place, columns[column]))
    center = GRID_LEFT + 0.5 * side * len(columns)
    below: Attributes = {"x": center, "y": bottom + 32, "text-anchor": "middle"}
    parts.append(element("text", below, f"{down} (down), {across} (across)"))
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
