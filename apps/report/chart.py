"""Images of fields and atoms, on rank 0, by matplotlib."""

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


def _figure(title: str) -> tuple[Any, Any]:
    canvas = blank((6.0, 5.0))
    axes = canvas.add_subplot()
    axes.set_title(title)
    return canvas, axes


def blank(size: tuple[float, float]) -> Any:
    """Local. An empty figure of matplotlib, in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    return figure
