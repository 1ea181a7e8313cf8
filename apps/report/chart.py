"""Images, drawn by matplotlib without a display on rank 0.

Figures of a report, one or several side by side with what they have in common written once, and
fields, atoms and traffic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.apps.report.figure import Figure

PANEL = (4.6, 3.6)  # inches
ALONE = (7.0, 4.8)
LEGEND = 2.2
MOST_ACROSS = 3
WIDEST = 60  # letters of a title in a line


def save(path: str, title: str, panels: Sequence[Figure]) -> None:
    """Local. Draw figures into one image by matplotlib; no file is left where there is none.

    The titles of several are those of the panels. Names that a reader tells apart stand beside
    the panels, each once.
    """
    if not panels:
        Path(path).unlink(missing_ok=True)  # of a run before
        return
    few = len(panels) <= MOST_ACROSS
    across = len(panels) if few else min(MOST_ACROSS, math.ceil(math.sqrt(len(panels))))
    down = math.ceil(len(panels) / across)
    width, height = (ALONE[0], ALONE[1]) if len(panels) == 1 else PANEL
    size = (width * across + (LEGEND if len(panels) > 1 else 0.0), height * down + 0.4)
    canvas = _canvas(size)
    canvas.suptitle(_lines(title, round(WIDEST * size[0] / ALONE[0])), fontsize="large")
    handles: dict[str, Any] = {}
    for place, panel in enumerate(panels, 1):
        axes = canvas.add_subplot(down, across, place)
        panel.paint(axes)
        if len(panels) > 1:
            axes.set_title(panel.title, fontsize="medium")
        shown, names = axes.get_legend_handles_labels()
        handles |= dict(zip(names, shown, strict=True))
    if len(handles) > 1:
        canvas.legend(list(handles.values()), list(handles), loc="outside right center",
                      fontsize="small")  # fmt: skip
    canvas.savefig(path)


def _lines(title: str, most: int) -> str:
    """Words in lines of so many letters."""
    lines = [""]
    for word in title.split():
        if len(lines[-1]) + len(word) > most:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(lines)


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
    canvas = _canvas((6.0, 5.0))
    axes = canvas.add_subplot()
    axes.set_title(title)
    return canvas, axes


def _canvas(size: tuple[float, float]) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=size, dpi=150, layout="constrained")
    FigureCanvasAgg(canvas)
    return canvas
