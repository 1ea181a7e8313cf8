"""Images of fields, atoms and traffic, on rank 0, by matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


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
