"""Images of the predictions, drawn by matplotlib without a display."""

from __future__ import annotations

from onesided.apps.modelling.sweep import Regions


def save_regions(path: str, title: str, label: str, regions: Regions) -> None:
    """Local. Draw which method is the fastest: ranks over bytes, both logarithmic."""
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
        shading="nearest",
    )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel(label)
    axes.set_ylabel("ranks")
    axes.set_title(title)
    seen = [number for number, name in enumerate(regions.methods) if name in regions.shares()]
    patches = [Patch(color=colors[number], label=regions.methods[number]) for number in seen]
    axes.legend(handles=patches, loc="upper left", framealpha=0.9)
    figure.savefig(path)
