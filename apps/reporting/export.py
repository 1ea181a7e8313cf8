"""The figures of a report as files of their own: PNG where matplotlib is installed, and CSV."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from onesided.apps.failures import CommandError, words
from onesided.apps.picture import NEEDS
from onesided.apps.reporting.figure import Figure
from onesided.apps.reporting.markup import slug

LONGEST = 80  # letters of a title in the name of a file


def export(figures: Sequence[Figure], path: str) -> list[str]:
    """Local. Write every figure into the folder ``path``, which is made if need be.

    Returns the names of the pictures that were skipped, for want of matplotlib. Figures are
    numbered, so that none of the same title overwrites another. :class:`CommandError` where
    nothing can be written.
    """
    folder = Path(path)
    drawn = find_spec("matplotlib") is not None
    skipped = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number, figure in enumerate(figures, 1):
            name = f"{number:02d}-{slug(figure.title)[:LONGEST].strip('-')}"
            _write_csv(folder / f"{name}.csv", figure)
            if drawn:
                _draw(folder / f"{name}.png", figure)
            else:
                skipped.append(f"{name}.png")
    except OSError as error:
        raise CommandError(words(error)) from error
    return skipped


def sentence(skipped: Sequence[str]) -> str:
    """Local. Which pictures are missing, and why; empty where none is."""
    return f"PNG skipped, it {NEEDS}: {', '.join(skipped)}" if skipped else ""


def _write_csv(path: Path, figure: Figure) -> None:
    columns, rows = figure.values()
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)


def _draw(path: Path, figure: Figure) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    canvas: Any = Canvas(figsize=(7.0, 5.0), dpi=150, layout="constrained")
    FigureCanvasAgg(canvas)
    axes = canvas.add_subplot()
    axes.set_title(figure.title, fontsize="medium", wrap=True)
    figure.paint(axes)
    canvas.savefig(path)
