"""Images of results, drawn by matplotlib without a display, on rank 0."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

COLORS = 10  # that matplotlib has for lines; then the style changes
STYLES = ("-", "--", ":")
MARKERS = "osD^v<>pXP*"


def save_lines(
    path: str,
    title: str,
    labels: tuple[str, str],
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    *,
    x_scale: str = "log",
    marker: str = "o",
) -> None:
    """Local. Draw y over x, one line for every name; y and, if not linear, x logarithmic."""
    figure, axes = _figure(title)
    for name, (x, y) in lines.items():
        axes.semilogy(x, y, marker=marker, label=name)
    axes.set_xscale(x_scale)
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    axes.grid(True, which="major", alpha=0.3)
    axes.legend()
    figure.savefig(path)


def save_spreads(
    path: str,
    title: str,
    labels: tuple[str, str],
    ticks: tuple[Callable[[float], str], Callable[[float], str]],
    lines: Mapping[str, tuple[Sequence[float], Sequence[float], Sequence[float]]],
) -> None:
    """Local. Draw y over x with a bar of its spread, one line for every name, both logarithmic.

    ``ticks`` write the numbers at the axes, with their units.
    """
    figure, axes = _figure(title)
    for name, (x, y, spread) in lines.items():
        below = [min(one, 0.99 * value) for one, value in zip(spread, y, strict=True)]
        axes.errorbar(x, y, yerr=[below, list(spread)], marker="o", capsize=3, label=name)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    across, up = ticks
    axes.xaxis.set_major_formatter(lambda value, _: across(value))
    axes.yaxis.set_major_formatter(lambda value, _: up(value))
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    axes.grid(True, which="major", alpha=0.3)
    axes.legend(fontsize="small")
    figure.savefig(path)


def save_overheads(
    path: str,
    title: str,
    label: str,
    lines: Mapping[str, tuple[Sequence[int], Sequence[float], Sequence[float]]],
) -> None:
    """Local. Draw times over that of a reference, ``label``, with bars of their spread.

    A line over the number of ranks for every name, and one at 1; the names are beside them.
    """
    figure, axes = _figure(title)
    counts = sorted({count for x, _, _ in lines.values() for count in x})
    axes.axhline(1.0, color="black", linewidth=0.8)
    for number, (name, (x, y, spread)) in enumerate(lines.items()):
        look = {"color": f"C{number % COLORS}", "fmt": STYLES[number // COLORS % len(STYLES)]}
        axes.errorbar(x, y, spread, marker="o", capsize=3, elinewidth=0.8, label=name, **look)
    axes.set_xscale("log", base=2)
    axes.set_xticks(counts, [str(count) for count in counts], minor=False)
    axes.set_xlabel("ranks")
    axes.set_ylabel(label)
    axes.grid(True, which="major", alpha=0.3)
    if lines:
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize="small")
    figure.savefig(path)


def save_panels(
    path: str,
    title: str,
    ticks: tuple[Callable[[float], str], Callable[[float], str]],
    panels: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]],
) -> None:
    """Local. Draw ratios over x, both logarithmic, a small picture for every name.

    In each a line at 1, and one for every name of its own, which looks the same in all of them;
    points side by side where there is a single x. ``ticks`` write the numbers at the axes.
    """
    from matplotlib.ticker import LogLocator, NullLocator

    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    across = min(4, math.ceil(math.sqrt(len(panels))))
    down = math.ceil(len(panels) / max(1, across))
    beside = max(1, min(len(names), int(1.9 * across)))
    legend = 0.25 * math.ceil(len(names) / beside)
    figure = _canvas((max(4.5, 3.4 * across), max(2.6 * down, 3.0) + legend + 0.5))
    figure.suptitle(title)
    shown: dict[str, Any] = {}
    for place, (panel, lines) in enumerate(panels.items()):
        axes = figure.add_subplot(down, across, place + 1)
        axes.set_title(panel, fontsize="medium")
        axes.axhline(1.0, color="black", linewidth=0.8)
        single = len({x for points in lines.values() for x, _ in points}) == 1
        for name, points in lines.items():
            number = names.index(name)
            x, y = [x for x, _ in points], [y for _, y in points]
            look = {"color": f"C{number % COLORS}", "marker": MARKERS[number % len(MARKERS)],
                    "linestyle": STYLES[number // COLORS % len(STYLES)]}  # fmt: skip
            (shown[name],) = axes.plot([number] if single else x, y, markersize=4, **look)
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(lambda value, _: ticks[1](value))
        if single:
            axes.set_xticks([])
        else:
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_locator(LogLocator(base=2, numticks=5))
            axes.xaxis.set_major_formatter(lambda value, _: ticks[0](value))
        axes.tick_params(labelsize="small")
        axes.grid(True, which="major", alpha=0.3)
    if shown:
        handles = [shown[name] for name in names]
        figure.legend(handles, names, loc="outside lower center", ncols=beside, fontsize="small")
    figure.savefig(path)


def save_slice(
    path: str,
    title: str,
    labels: tuple[str, str],
    values: NDArray[Any],
    lengths: tuple[float, float],
) -> None:
    """Local. Draw a periodic field of two dimensions, the first index along the first label."""
    figure, axes = _figure(title)
    ends = []
    for length, points in zip(lengths, values.shape, strict=True):
        half = 0.5 * length / points  # values belong to the middle of what is drawn for them
        ends += [-half, length - half]
    image = axes.imshow(
        np.asarray(values).T,
        origin="lower",
        extent=tuple(ends),
        interpolation="bilinear",
        cmap="magma",
    )
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    figure.colorbar(image)
    figure.savefig(path)


def save_atoms(
    path: str,
    title: str,
    places: tuple[NDArray[Any], NDArray[Any]],
    speeds: NDArray[Any],
    lengths: Sequence[float],
    cuts: Sequence[Sequence[float]],
) -> None:
    """Local. Draw atoms in a plane, colored by their speed; ``cuts``: where the parts of the ranks
    end, by axis."""
    figure, axes = _figure(title)
    size = max(1.0, 20000.0 / max(speeds.size, 100))
    dots = axes.scatter(*places, c=speeds, s=size, cmap="magma")
    for at in cuts[0]:
        axes.axvline(at, color="gray", linewidth=0.8)
    for at in cuts[1]:
        axes.axhline(at, color="gray", linewidth=0.8)
    axes.set_xlim(0.0, lengths[0])
    axes.set_ylim(0.0, lengths[1])
    axes.set_aspect("equal")
    axes.set_xlabel("x")
    axes.set_ylabel("y")
    figure.colorbar(dots, label="speed")
    figure.savefig(path)


def save_bars(path: str, title: str, label: str, bars: Mapping[str, float]) -> None:
    """Local. Draw a bar for every name, from the first at the top, over a logarithmic axis."""
    figure, axes = _figure(title)
    axes.barh(list(bars), list(bars.values()), log=True)
    axes.invert_yaxis()
    axes.tick_params(axis="y", labelsize="small")
    axes.set_xlabel(label)
    axes.grid(True, axis="x", which="major", alpha=0.3)
    figure.savefig(path)


def save_traffic(
    path: str, title: str, sent: NDArray[np.int64], label: str = "bytes per product"
) -> None:
    """Local. Draw who sends how many bytes to whom: a row per sender, a column per receiver.

    Nothing is drawn where nothing is sent. The colors are those of a logarithmic scale.
    """
    from matplotlib.colors import LogNorm

    figure, axes = _figure(title)
    most = max(int(sent.max(initial=0)), 2)
    least = int(sent[sent > 0].min(initial=most))
    image = axes.imshow(
        np.ma.masked_equal(sent, 0),
        norm=LogNorm(min(least, most - 1), most),
        interpolation="nearest",
        cmap="viridis",
    )
    axes.set_xlabel("to rank")
    axes.set_ylabel("from rank")
    for axis in (axes.xaxis, axes.yaxis):
        axis.get_major_locator().set_params(integer=True)
    figure.colorbar(image, label=label)
    figure.savefig(path)


def _figure(title: str) -> tuple[Any, Any]:
    figure = _canvas((6.0, 5.0))
    axes = figure.add_subplot()
    axes.set_title(title)
    return figure, axes


def _canvas(size: tuple[float, float]) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    return figure
