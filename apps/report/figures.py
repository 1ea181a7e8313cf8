"""Figures of results: which are drawn of each command, and how, by matplotlib.

A figure is one number of the rows over another, a line for every text of some labels, a panel for
every text of others; bars where there is one number only. The same figures are images of
``--picture``, and SVG in the page of ``onesided report``, where they take the colors of the page.
Images of fields are drawn here, too.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from html import escape
from itertools import accumulate
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.apps.cli.failures import CommandError
from onesided.apps.cli.report import BASELINE, METHOD, byte_count, duration, number
from onesided.apps.report.result import Entry, Result, known, part

Point = tuple[float, float]
BYTES, RANKS, TIME, RATIO, RATE, PLAIN = "bytes", "ranks", "time", "ratio", "GB/s", "number"
FORMATS: Mapping[str, Callable[[float], str]] = {
    BYTES: byte_count, RANKS: number, TIME: duration, RATIO: "{:.2f}".format,
    RATE: "{:.3g}".format, PLAIN: number,
}  # fmt: skip
MOST_LINES, MOST_PANELS, MOST_BARS = 20, 10, 60
MOST_RANKS = 64  # of a matrix of counts
LEAST_BARS = 3.0  # for which there is room in a figure


@dataclass(frozen=True)
class Plot:
    """``lines``: points by name; or ``bars``: numbers by group and name; or a ``matrix`` of counts.

    ``x`` and ``y`` are names for the axes with the kinds of their numbers.
    """

    title: str
    x: tuple[str, str] = ("", PLAIN)
    y: tuple[str, str] = ("", PLAIN)
    lines: Mapping[str, Sequence[Point]] = field(default_factory=dict)
    bars: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    matrix: Sequence[Sequence[float]] = ()
    level: float | None = None

    @property
    def height(self) -> int:
        """Bars below each other, with the space between their groups."""
        return sum(len(bars) + 1 for bars in self.bars.values())

    def table(self) -> tuple[list[str], list[list[Any]]]:
        """Columns and rows of its numbers; None where there is none."""
        if self.matrix:
            heads = ["from / to", *map(str, range(len(self.matrix)))]
            return heads, [[str(rank), *row] for rank, row in enumerate(self.matrix)]
        if self.bars:
            names = list(dict.fromkeys(name for bars in self.bars.values() for name in bars))
            return ["", *names], [[g, *map(bars.get, names)] for g, bars in self.bars.items()]
        xs = sorted({x for line in self.lines.values() for x, _ in line})
        found = {name: dict(line) for name, line in self.lines.items()}
        return [self.x[0], *found], [[x, *(line.get(x) for line in found.values())] for x in xs]


# -- which figures --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spec:
    """``y`` over ``x``, in panels of the labels ``panel`` a line for the labels ``line``.

    ``x`` and ``y``: a number of an entry, or what tells one, its name and kind. ``wanted``: which
    entries.
    """

    title: str
    x: tuple[str, str, str]
    y: tuple[str | Callable[[Entry], float | None], str, str]
    line: Sequence[str] = (METHOD,)
    panel: Sequence[str] = ()
    level: float | None = None
    wanted: Callable[[Entry], bool] = lambda entry: True

    def plots(self, entries: Sequence[Entry]) -> Iterator[Plot]:
        """A plot for every panel that has numbers."""
        for words, rows in _panels([e for e in entries if self.wanted(e)], self.panel):
            title = f"{self.title}: {words}" if words else self.title
            lines: dict[str, list[Point]] = {}
            for row in rows:
                x, how = row.number(self.x[0]), self.y[0]
                y = row.number(how) if isinstance(how, str) else how(row)
                if x is not None and y is not None:
                    lines.setdefault(_named(row, self.line), []).append((x, y))
            xs = {x for line in lines.values() for x, _ in line}
            if len(xs) > 1:
                for line in lines.values():
                    line.sort()
                title = _more(title, len(lines) - MOST_LINES, "line")
                lines = dict(list(lines.items())[:MOST_LINES])
                yield Plot(title, self.x[1:], self.y[1:], lines, level=self.level)
            elif xs:
                bars = {name: {self.y[1]: line[0][1]} for name, line in lines.items()}
                at = FORMATS[self.x[2]](xs.pop()) + (" ranks" if self.x[2] == RANKS else "")
                yield Plot(f"{title}, {at}", y=self.y[1:], bars=bars, level=self.level)


def _named(entry: Entry, names: Sequence[str]) -> str:
    """Local. By the texts of its labels; where the method is one, wrong data are told as well."""
    texts = [text for name in names if (text := entry.label(name))]
    texts += ["(wrong)"] if METHOD in names and not entry.right else []
    return " ".join(texts) or "all"


def _more(title: str, count: int, what: str) -> str:
    """Local. A title that says how many there are that are not drawn."""
    return f"{title} ({count} more {what}{'' if count == 1 else 's'})" if count > 0 else title


def _panels(entries: Sequence[Entry], names: Sequence[str]) -> list[tuple[str, list[Entry]]]:
    """Local. Rows by the texts of labels; what needs no set-up belongs to every kind of memory."""
    found: dict[tuple[str, ...], list[Entry]] = {}
    for entry in entries:
        found.setdefault(tuple(entry.label(name) for name in names), []).append(entry)
    if "memory" in names:
        place = list(names).index("memory")
        plain = [e for e in entries if e.values.get("setup_s") is None]
        found = {
            key: [e for e in plain if all(e.label(n) == k for n, k in
                                          zip(names, key, strict=True) if n != "memory")]
            + [e for e in rows if e not in plain]
            for key, rows in found.items() if key[place] and any(e not in plain for e in rows)
        } or found  # fmt: skip
    several = [len({key[i] for key in found}) > 1 for i in range(len(names))]
    words = {
        key: ", ".join(f"{name} {text}" for name, text, more in
                       zip(names, key, several, strict=True) if text and more)
        for key in found
    }  # fmt: skip
    return [(words[key], rows) for key, rows in found.items()]


def _over(name: str) -> Callable[[Entry], float | None]:
    return lambda entry: entry.ratio(name) if entry.method != name else None


def _is_large(large: bool, entry: Entry) -> bool:
    return ((entry.number("bytes") or 0) >= 1 << 20) == large


def _rate(entry: Entry) -> float | None:
    mean, nbytes = entry.number("mean_s"), entry.number("bytes")
    return nbytes / mean / 1e9 if mean and nbytes else None


ALLTOALLV = "time over that of MPI_Alltoallv"
SECONDS = ("median_s", "median time of an iteration", TIME)
OF_BYTES, OF_RANKS = ("bytes", "bytes", BYTES), ("ranks", "ranks", RANKS)
MINI = (
    Spec("Overhead (as Figure 8 of paper 002)", OF_RANKS,
         (_over("two-sided"), "time over that of two-sided", RATIO), (METHOD,), ("scaling",), 1.0),
)  # fmt: skip
SPECS: Mapping[str, Sequence[Spec]] = {
    "bench alltoallv": (
        Spec("Time over bytes (as Figure 2 of paper 000)", OF_BYTES, SECONDS, (METHOD,),
             ("ranks", "memory")),
        Spec("Over MPI_Alltoallv", OF_BYTES, (_over(BASELINE), ALLTOALLV, RATIO), (METHOD,),
             ("ranks", "memory"), 1.0, lambda e: not e.method.startswith("memcpy")),
        Spec("Time over ranks (as Figure 1 of paper 000)", OF_RANKS, SECONDS, (METHOD,),
             ("bytes", "memory")),
    ),
    "bench rounds": (
        Spec("Over MPI_Alltoallv", OF_BYTES, (_over(BASELINE), ALLTOALLV, RATIO), (METHOD,),
             ("memory",), 1.0),
    ),
    "bench collectives": (
        Spec("Over the blocking call", OF_BYTES, (_over(BASELINE), "time over MPI's", RATIO),
             (METHOD,), ("operation",), 1.0),
    ),
    "bench broadcast": tuple(
        Spec(f"Broadcast {what} (as Figure {number} of paper 003)", x, SECONDS, (METHOD, "order"),
             panel, wanted=partial(_is_large, large))
        for what, large, first in (("of 1 MiB and more", True, 13), ("below 1 MiB", False, 15))
        for number, x, panel in ((first, OF_BYTES, ["ranks"]), (first + 1, OF_RANKS, ["bytes"]))
    ),
    "bench partitioned": (
        Spec("Bandwidth (as Figures 3 to 6 of paper 004)",
             ("partition_bytes", "bytes of a partition", BYTES), (_rate, "GB/s", RATE),
             (METHOD, "aggregate", "marked"), ("order", "threads")),
    ),
    "bench rma-mt": (
        Spec("Latency (as Figures 1, 3, 6 of paper 002)", ("message_bytes", "bytes", BYTES),
             ("median_s", "latency", TIME), (METHOD, "op"), ("threads",),
             wanted=lambda e: e.label("pattern") == "latency"),
        Spec("Bandwidth (as Figures 1, 2, 5)", ("message_bytes", "bytes", BYTES),
             ("gigabytes_per_s", "GB/s", RATE), (METHOD, "op"), ("threads",),
             wanted=lambda e: e.label("pattern") == "bandwidth"),
        Spec("Message rate (as Figures 1, 4, 7)", ("message_bytes", "bytes", BYTES),
             ("messages_per_s", "messages/s", PLAIN), (METHOD, "op"),
             ("pattern", "threads"), wanted=lambda e: e.label("pattern").startswith("rate")),
    ),
    "hpccg": MINI, "minife": MINI, "minimd": MINI,
    "poisson": (
        Spec("Error over the spacing", ("spacing", "spacing", PLAIN),
             ("relative error", "relative error", PLAIN)),
    ),
}  # fmt: skip
#: What others are compared with, the first that a row has.
OPPONENTS = ("PETSc", "as is", "mpi4py-fft", "FFTW-MPI", "packed messages", "SciPy", "single",
             BASELINE, "two-sided")  # fmt: skip


def plots(result: Result) -> list[Plot]:
    """Local. All figures of a result."""
    if result.command == "bench all":
        return []
    entries, found = result.timed, list[Plot]()
    for spec in SPECS.get(result.command, ()):
        drawn = list(spec.plots(entries))
        found += _last([plot for plot in drawn if plot.lines] or drawn)
    if result.command not in SPECS:
        found += _against(entries)
    if result.command in PARTED:
        panels = _panels([e for e in entries if _parts(e)], _others(entries))
        found += _last([
            Plot(f"Where the time goes: {words}".removesuffix(": "), y=("seconds", TIME),
                 bars={_named(e, (METHOD, "order")): _parts(e) for e in rows})
            for words, rows in panels
        ])  # fmt: skip
    found += _matrices(result)
    outcomes = part(result.pattern, "outcomes")
    lines = {
        name: [(float(k), y) for k, y in enumerate(each.get("residuals") or []) if known(y)]
        for name, each in outcomes.items() if isinstance(each, dict)
    }  # fmt: skip
    if any(len(line) > 1 for line in lines.values()):
        found.append(Plot("Convergence", ("iteration", RANKS), ("residual", PLAIN), lines))
    return found


def _last(panels: list[Plot]) -> list[Plot]:
    """Local. The last ones; the title of the first of them says how many there are before it."""
    out = len(panels) - MOST_PANELS
    if out > 0:
        panels = panels[out:]
        panels[0] = replace(panels[0], title=f"{panels[0].title} ({out} more before it)")
    return panels


PARTED = ("bench apps", "bench fft", "hpccg", "minife", "minimd", "heat")


def _others(entries: Sequence[Entry]) -> list[str]:
    names = dict.fromkeys(name for entry in entries for name in entry.labels)
    return [name for name in names if name not in (METHOD, "order", "memory")]


def _parts(entry: Entry) -> dict[str, float]:
    numbers = {name: known(value) for name, value in part(entry.values, "parts").items()}
    return {name: value for name, value in numbers.items() if value is not None and value > 0}


def _against(entries: Sequence[Entry]) -> list[Plot]:
    """Local. Times over that of the opponent, or as they are where there is none, case by case: the
    first cases, at least one, whose bars have room."""
    names = {name for entry in entries for name in part(entry.values, "ratios")}
    opponent = next((name for name in OPPONENTS if name in names), "")
    others, bars = _others(entries), dict[str, dict[str, float]]()
    for entry in entries:
        value = _over(opponent)(entry) if opponent else entry.median
        if value is not None and not entry.method.startswith("memcpy"):
            bars.setdefault(_named(entry, others), {})[_named(entry, (METHOD, "order"))] = value
    if sum(map(len, bars.values())) < (1 if opponent else 2):
        return []
    count = max(1, sum(end <= MOST_BARS for end in accumulate(map(len, bars.values()))))
    title = f"Time over that of {opponent}" if opponent else "Time"
    told = (f"time over that of {opponent}", RATIO) if opponent else SECONDS[1:]
    shown = dict(list(bars.items())[:count])
    return [Plot(_more(title, len(bars) - count, "case"), y=told, bars=shown,
                 level=1.0 if opponent else None)]


def _matrices(result: Result) -> Iterator[Plot]:
    """Local. Times and counts of the exchanges of matrices: Figures 3 and 4 of paper 000."""
    if result.command != "bench patterns":
        return
    for words, rows in _panels(result.timed, ("matrix", "pattern")):
        bars: dict[str, dict[str, float]] = {}
        for row in rows:
            bars.setdefault(_named(row, (METHOD,)), {})[row.label("memory")] = row.median or 0.0
        yield Plot(f"Times (as Figure 3 of paper 000): {words}", y=("time", TIME), bars=bars)
    for name, matrix in part(result.pattern, "matrices").items():
        for pattern, record in part(matrix, "patterns").items():
            counts = record["counts"]
            if len(counts) <= MOST_RANKS:
                title = f"Elements from rank to rank (as Figure 4): {name}, {pattern}"
                yield Plot(title, matrix=counts)


# -- how they are drawn ---------------------------------------------------------------------------

#: Colors of the page (report.html), which stand in an SVG by these in an image.
INK = "#1b1f24"
COLORS = ("#0072b2", "#c44e00", "#008060", "#a8478a", "#8f6a00", "#2b87c4", "#4d4d4e", "#b0263c")
MARKS = "os^Dv<>P*X"
LEGEND: dict[str, Any] = {"fontsize": 7, "frameon": False, "labelcolor": INK, "loc": "upper left",
                          "bbox_to_anchor": (1.0, 1.0)}  # fmt: skip
LEVEL: dict[str, Any] = {"color": INK, "linewidth": 0.8, "linestyle": (0, (5, 3))}


def save(path: str, plots: Sequence[Plot]) -> None:
    """Local. One image, or several with numbers in their names; no other file is touched."""
    if not plots:
        raise CommandError(f"{path}: no figure is made of this: nothing is timed")
    file = Path(path)
    for place, plot in enumerate(plots, 1):
        canvas(plot).savefig(file if len(plots) == 1 else file.with_stem(f"{file.stem}-{place}"))


def draw(path: str, content: Mapping[str, Any]) -> None:
    """Local. The figures of what a command writes to JSON."""
    save(path, plots(Result("", content)))


def svg(plot: Plot, prefix: str) -> str:
    """Local. An ``svg`` element that takes the colors of its page; ids begin with ``prefix``."""
    import matplotlib

    out = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": prefix}):
        canvas(plot).savefig(out, format="svg", transparent=True, metadata={"Date": None})
    text = out.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    head, _, body = text.partition(">")
    box = re.search(r'viewBox="[^"]*"', head)
    body = re.sub(r'\bid="', f'id="{prefix}-', body)
    body = re.sub(r'(xlink:)?href="#', f'href="#{prefix}-', body)
    body = re.sub(r"url\(#", f"url(#{prefix}-", body)
    body = re.sub(r"font: ([^;\"]*?)'[^;\"]*", r"font: \1sans-serif", body)
    body = body.replace(INK, "currentColor")
    for place, color in enumerate(COLORS):
        body = body.replace(color, f"var(--c{place})")
    told = escape(f"{plot.title}. {plot.y[0]} over {plot.x[0] or 'cases'}")
    shown = box[0] if box else ""
    return f'<svg {shown} role="img" aria-label="{told}"><title>{escape(plot.title)}</title>{body}'


def canvas(plot: Plot) -> Any:
    size = (5.6, max(1.6, 0.55 + 0.2 * plot.height)) if plot.bars else (5.6, 3.6)
    figure = blank(size)
    axes = figure.add_subplot()
    axes.set_title(fill(plot.title, 44 if plot.matrix else 70), fontsize=9, color=INK, loc="left")
    axes.tick_params(colors=INK, labelsize=8, which="both")
    for side, spine in axes.spines.items():
        spine.set_color(INK)
        spine.set_visible(side in ("left", "bottom") or bool(plot.matrix))
    if plot.matrix:
        _matrix(figure, axes, plot)
    elif plot.bars:
        _bars(axes, plot)
    else:
        _lines(axes, plot)
    for name in (axes.xaxis.label, axes.yaxis.label):
        name.set(color=INK, fontsize=8)
    return figure


def _lines(axes: Any, plot: Plot) -> None:
    for place, (name, line) in enumerate(plot.lines.items()):
        dashes = ("-", "--", ":")[place // len(COLORS) % 3]
        shown = [(x, y) for x, y in line if y > 0]
        axes.plot([x for x, _ in shown], [y for _, y in shown], dashes, label=name, linewidth=1.4,
                  color=COLORS[place % len(COLORS)], marker=MARKS[place % len(MARKS)],
                  markersize=4)  # fmt: skip
    if plot.level is not None:
        axes.axhline(plot.level, **LEVEL)
    xs = sorted({x for line in plot.lines.values() for x, _ in line})
    ys = [y for line in plot.lines.values() for _, y in line if y > 0]
    _scale(axes.xaxis, plot.x[1], xs)
    _scale(axes.yaxis, plot.y[1], ys)
    axes.grid(color=INK, alpha=0.15, linewidth=0.6)
    axes.set(xlabel=plot.x[0], ylabel=plot.y[0])
    axes.legend(**LEGEND)


def _scale(axis: Any, kind: str, numbers: Sequence[float]) -> None:
    """Local. A logarithmic axis where numbers span more than a factor of three, and its ticks."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter

    least, most = min(numbers, default=1.0), max(numbers, default=1.0)
    if least > 0 and most / least > 3:
        base = 2 if kind in (BYTES, RANKS) else 10
        axis.axes.set(**{f"{axis.axis_name}scale": "log"})
        near = base == 10 and most / least < 100
        axis.set_major_locator(LogLocator(base, (1.0, 2.0, 5.0) if near else (1.0,), numticks=8))
        axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(FuncFormatter(lambda value, _: _tick(kind, value)))
    if kind in (BYTES, RANKS) and len(numbers) <= 7 and axis.axis_name == "x":
        kept: list[float] = []
        for x in numbers:  # names of neighbors would lie upon each other
            if not kept or x / kept[-1] > (most / least) ** 0.12:
                kept.append(x)
        axis.set_major_locator(FixedLocator(kept))
        axis.set_minor_locator(FixedLocator([]))


def _tick(kind: str, value: float) -> str:
    if kind == TIME and value > 0:
        return re.sub(r"\.0+ ", " ", duration(value))
    return number(value) if kind in (RATIO, PLAIN, RATE) else FORMATS[kind](value)


def _bars(axes: Any, plot: Plot) -> None:
    names = list(dict.fromkeys(name for bars in plot.bars.values() for name in bars))
    colors = {name: COLORS[place % len(COLORS)] for place, name in enumerate(names)}
    at, ticks = 0.0, []
    most = max((v for bars in plot.bars.values() for v in bars.values()), default=1.0) or 1.0
    for group, bars in plot.bars.items():
        ticks.append((at + (len(bars) - 1) / 2, group))
        for name, value in bars.items():
            axes.barh(at, value, 0.85, color=colors[name])
            axes.text(value + 0.01 * most, at, FORMATS[plot.y[1]](value), fontsize=7, color=INK,
                      verticalalignment="center")  # fmt: skip
            at += 1.0
        at += 0.6
    axes.set_yticks([place for place, _ in ticks], [text for _, text in ticks])
    axes.set_ylim(max(at, LEAST_BARS), -0.8)  # downwards; a bar alone is no wider than others
    axes.set_xlim(0, max(1.15 * most, 1.05 * (plot.level or 0.0)))
    if plot.level is not None:
        axes.axvline(plot.level, **LEVEL)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    axes.set_xlabel(plot.y[0])
    if len(names) > 1:
        from matplotlib.patches import Patch

        keys = [Patch(color=colors[name], label=name) for name in names]
        axes.legend(handles=keys, **LEGEND)


def _matrix(figure: Any, axes: Any, plot: Plot) -> None:
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import FuncFormatter, NullFormatter

    counts = np.array(plot.matrix, float)
    most = max(float(counts.max()), 2.0)
    least = float(counts[counts > 0].min(initial=most))
    shown = axes.pcolormesh(np.ma.masked_equal(counts, 0), cmap="viridis",
                            norm=LogNorm(min(least, most - 1), most))  # fmt: skip
    axes.invert_yaxis()
    axes.set_aspect("equal")
    places = range(0, len(counts), max(1, len(counts) // 8))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks([k + 0.5 for k in places], [str(k) for k in places])
    axes.set(xlabel="to rank", ylabel="from rank")
    if len(counts) <= 8:
        for row, line in enumerate(plot.matrix):
            for column, count in enumerate(line):
                if count:
                    dark = shown.norm(count) < 0.6
                    axes.text(column + 0.5, row + 0.5, number(count), fontsize=6, ha="center",
                              va="center", color="#ffffff" if dark else "#000000")  # fmt: skip
    bar = figure.colorbar(shown)
    told, narrow = FuncFormatter(lambda count, _: number(count)), most / least < 20
    bar.ax.yaxis.set_major_formatter(told)
    bar.ax.yaxis.set_minor_formatter(told if narrow else NullFormatter())
    bar.ax.tick_params(colors=INK, labelsize=7, which="both")


def save_slice(
    path: str, title: str, labels: tuple[str, str], values: NDArray[Any],
    lengths: tuple[float, float],
) -> None:
    """Local. Draw a periodic field of two dimensions, the first index along the first label."""
    figure = blank((6.0, 5.0))
    axes = figure.add_subplot()
    axes.set(title=title, xlabel=labels[0], ylabel=labels[1])
    ends = []
    for length, points in zip(lengths, values.shape, strict=True):
        half = 0.5 * length / points  # values belong to the middle of what is drawn for them
        ends += [-half, length - half]
    image = axes.imshow(np.asarray(values).T, origin="lower", extent=tuple(ends),
                        interpolation="bilinear", cmap="magma")  # fmt: skip
    figure.colorbar(image)
    figure.savefig(path)


def blank(size: tuple[float, float]) -> Any:
    """Local. An empty figure of matplotlib, in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=size, dpi=150, layout="constrained")
