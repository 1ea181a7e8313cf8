"""Images of the predictions, drawn by matplotlib without a display."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from onesided.apps.modelling.sweep import Regions

#: How opaque the color of a method is where others may be as fast.
PALE = 0.35
Points = Sequence[tuple[float, float]]


def save_regions(path: str, title: str, label: str, regions: Regions) -> None:
    """Local. Draw which method is the fastest: ranks over bytes, both logarithmic.

    Undecided places are pale, extrapolated ones are hatched.
    """
    from matplotlib import colormaps
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    figure = Figure(figsize=(7.0, 5.0), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    colors = [colormaps["tab20"](number) for number in range(len(regions.methods))]
    axes.pcolormesh(
        regions.nbytes,
        regions.ranks,
        regions.winner,
        cmap=ListedColormap(colors),
        vmin=-0.5,
        vmax=len(colors) - 0.5,
        alpha=np.where(regions.undecided, PALE, 1.0),
        shading="nearest",
    )
    if regions.extrapolated.any():
        axes.contourf(
            regions.nbytes, regions.ranks, regions.extrapolated.astype(float), levels=[0.5, 1.5],
            colors="none", hatches=["//"],
        )  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel(label)
    axes.set_ylabel("ranks")
    axes.set_title(title)
    seen = [number for number, name in enumerate(regions.methods) if name in regions.shares()]
    patches = [Patch(color=colors[number], label=regions.methods[number]) for number in seen]
    if regions.undecided.any():
        patches.append(Patch(color="0.5", alpha=PALE, label="undecided: pale"))
    if regions.extrapolated.any():
        patches.append(Patch(facecolor="none", edgecolor="black", hatch="//", label="extrapolated"))
    axes.legend(handles=patches, loc="upper left", framealpha=0.9)
    figure.savefig(path)


def save_points_and_lines(
    path: str,
    title: str,
    labels: tuple[str, str],
    points: Mapping[str, Points],
    lines: Mapping[str, Points],
) -> None:
    """Local. Draw what is known as points and what is predicted as lines, by the same names."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter

    figure = Figure(figsize=(6.0, 5.0), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    places = sorted({x for line in lines.values() for x, _ in line})
    for number, (name, line) in enumerate(lines.items()):
        color = f"C{number}"
        axes.loglog(*zip(*line, strict=True), color=color, label=f"{name}, model")
        known = points.get(name, ())
        if known:
            axes.loglog(*zip(*known, strict=True), "o", color=color, label=f"{name}, paper")
    axes.set_xticks(places, [f"{x:g}" for x in places])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    axes.set_title(title)
    axes.grid(True, which="major", alpha=0.3)
    axes.legend()
    figure.savefig(path)
