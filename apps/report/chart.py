"""Images on rank 0: figures of a report, and fields, atoms and traffic; by matplotlib.

The figures are painted from the same elements as in the page, one or several side by side with
what they have in common written once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from textwrap import wrap
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np
from numpy.typing import NDArray

from onesided.apps.report.figure import WIDTH, Figure
from onesided.apps.report.markup import element

MOST_ACROSS = 3
GAP = 16.0  # around drawings, in their units, of which an inch has 72
LETTER, LINE = 7.0, 18.0  # width of a letter of a legend or a title, height of a line


def save(path: str, title: str, panels: Sequence[Figure]) -> None:
    """Local. Draw figures into one image by matplotlib; no file is left where there is none."""
    if not panels:
        Path(path).unlink(missing_ok=True)  # of a run before
        return
    drawing = sheet(title, panels)
    width, height = float(drawing.get("width", 0)), float(drawing.get("height", 0))
    canvas = _canvas((width / 72, height / 72))
    axes = canvas.add_axes((0.0, 0.0, 1.0, 1.0), xlim=(0.0, width), ylim=(height, 0.0))
    axes.set_axis_off()
    _paint(axes, drawing, _inks(), 0.0, 0.0)
    canvas.savefig(path)


def sheet(title: str, panels: Sequence[Figure]) -> Element:
    """Local. An ``svg`` element with figures side by side.

    The titles of several are those of the panels. Names that a reader tells apart stand beside
    the panels, each once.
    """
    few = len(panels) <= MOST_ACROSS
    across = len(panels) if few else min(MOST_ACROSS, math.ceil(math.sqrt(len(panels))))
    left = GAP + across * (WIDTH + GAP)
    parts = _title(title, 0.5 * left, GAP, across)
    top = GAP + LINE * len(parts)
    keys: dict[str, Element] = {}
    for first in range(0, len(panels), across):
        height = 0.0
        for place, panel in enumerate(panels[first : first + across]):
            x = GAP + place * (WIDTH + GAP)
            told = _title(panel.title, x + 0.5 * WIDTH, top, 1) if len(panels) > 1 else []
            drawn = panel.drawing()
            begin = top + LINE * len(told)
            parts += [*told, element("svg", {"x": x, "y": begin}, *drawn)]
            height = max(height, begin - top + float(drawn.get("viewBox", "").split()[3]))
            keys |= panel.keys()
        top += height + GAP
    if keys:
        for place, (name, key) in enumerate(keys.items()):
            y = GAP + LINE * (place + 2)
            parts.append(element("svg", {"x": left, "y": y}, *key))
            parts.append(element("text", {"class": "name", "x": left + 36, "y": y + 11}, name))
        top = max(top, GAP + LINE * (len(keys) + 3))
        left += 36 + LETTER * max(map(len, keys)) + GAP
    return element("svg", {"width": left, "height": top}, *parts)


def _title(text: str, x: float, y: float, across: int) -> list[Element]:
    return [
        element("text", {"class": "head", "x": x, "y": y + LINE * k, "text-anchor": "middle"}, line)
        for k, line in enumerate(wrap(text, round(across * WIDTH / LETTER)))
    ]


#: Of what :mod:`.figure` draws, by its class: color, width and dashes of lines, and opacity.
LOOKS: Mapping[str, Mapping[str, Any]] = {
    "axis": {"color": "black", "linewidth": 1.0},
    "grid": {"color": "black", "linewidth": 1.0, "alpha": 0.15},
    "level": {"color": "black", "linewidth": 1.5, "alpha": 0.7, "dashes": (5.0, 3.0)},
    "line": {"linewidth": 1.8},
    "mark": {},
    "bar": {"linewidth": 0.0, "antialiased": False},
}
ANCHORS = {"start": "left", "middle": "center", "end": "right"}


def _inks() -> dict[str, str]:
    """The colors of the style sheet in light."""
    style = (files("onesided.apps") / "data" / "report.css").read_text(encoding="utf-8")
    return dict(re.findall(r"--(c\d): (#\w+)", style[: style.index("@media")]))


def _paint(axes: Any, node: Element, inks: Mapping[str, str], x: float, y: float) -> None:
    """An element and what is in it; x and y: the place of the drawing that it belongs to."""
    from matplotlib.patches import Polygon, Rectangle

    kinds = node.get("class", "").split()
    look: dict[str, Any] = {}
    for kind in kinds:
        look |= {"color": inks[kind]} if kind in inks else LOOKS.get(kind, {})
    at = {name: float(node.get(name, 0)) for name in ("x", "y", "x1", "y1", "x2", "y2")}
    if node.tag in ("svg", "g"):
        for child in node:
            _paint(axes, child, inks, x + at["x"], y + at["y"])
    elif node.tag == "text":
        axes.text(
            x + at["x"], y + at["y"], node.text, fontsize=13 if "head" in kinds else 10.5,
            horizontalalignment=ANCHORS[node.get("text-anchor", "start")],
            rotation=90 if "transform" in node.attrib else 0, rotation_mode="anchor",
        )  # fmt: skip
    elif node.tag == "rect":
        width, height = float(node.get("width", 0)), float(node.get("height", 0))
        opacity = float(node.get("fill-opacity", 1))
        axes.add_patch(Rectangle((x + at["x"], y + at["y"]), width, height, alpha=opacity, **look))
    elif node.tag == "polygon":
        points = [(x + one, y + other) for one, other in _points(node.get("points", ""))]
        axes.add_patch(Polygon(points, **look))
    elif node.tag == "line":
        axes.plot([x + at["x1"], x + at["x2"]], [y + at["y1"], y + at["y2"]], **look)
    elif node.tag in ("polyline", "path"):
        if "stroke-dasharray" in node.attrib:
            look["dashes"] = [float(each) for each in node.get("stroke-dasharray", "").split()]
        for piece in node.get("points", node.get("d", "")).split("M"):
            points = _points(piece)
            axes.plot([x + one for one, _ in points], [y + other for _, other in points], **look)


def _points(text: str) -> list[tuple[float, float]]:
    pairs = re.findall(r"(-?[\d.]+)[ ,](-?[\d.]+)", text)
    return [(float(one), float(other)) for one, other in pairs]


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
    canvas = _canvas((6.0, 5.0), "constrained")
    axes = canvas.add_subplot()
    axes.set_title(title)
    return canvas, axes


def _canvas(size: tuple[float, float], layout: Any = "none") -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=size, dpi=150, layout=layout)
    FigureCanvasAgg(canvas)
    return canvas
