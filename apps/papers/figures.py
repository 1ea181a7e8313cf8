"""Figures of the papers from the rows of a benchmark, each into an image of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from mpi4py import MPI

from onesided.apps.cli.failures import by_rank_0
from onesided.apps.cli.options import Picture
from onesided.apps.cli.report import Row
from onesided.apps.report import figure
from onesided.apps.report.chart import save
from onesided.apps.report.result import Entry
from onesided.apps.report.sections import Sweep


@dataclass(frozen=True)
class Figure:
    """What is drawn over what, and from which rows; ``panels`` divides these, by their titles."""

    name: str
    title: str
    sweep: Sweep
    takes: Callable[[Entry], bool]
    panels: Callable[[Sequence[Entry]], Mapping[str, Sequence[Entry]]] | None = None

    def drawings(self, rows: Iterable[Row]) -> list[figure.Figure]:
        """Local. Lines of everything that was timed; none where nothing was."""
        timed = (Entry.of(row.record()) for row in rows if not row.reason)
        shown = [entry for entry in timed if self.takes(entry)]
        panels = {self.title: shown} if self.panels is None else self.panels(shown)
        return [
            drawing
            for title, entries in panels.items()
            for drawing in self.sweep.figures(title, entries, shown)
        ]


def draw(
    comm: MPI.Intracomm, picture: Picture | None, figures: Iterable[Figure], rows: Sequence[Row]
) -> None:
    """Collective. Rank 0, which has the rows, writes the images where any are wanted."""

    def paint(picture: Picture) -> None:
        for each in figures:
            save(picture.of(each.name), each.title, each.drawings(rows))

    if picture is not None:
        by_rank_0(comm, partial(paint, picture))
