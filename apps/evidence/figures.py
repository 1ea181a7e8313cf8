"""Figures 1 and 2 of paper 000: times over the number of ranks, and over bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from mpi4py import MPI

from onesided.apps.evidence.exchange import PLAIN
from onesided.apps.evidence.sweep import Place, Series
from onesided.apps.picture import check_picture, save_lines
from onesided.apps.report import Row, byte_count

PAPERS_BYTES = 2 << 20  # of Figure 1


@dataclass(frozen=True)
class Figure:
    """Medians at some places, over the ranks or the bytes of a place."""

    name: str
    title: str
    label: str
    scale: str
    places: Sequence[Place]
    x: Callable[[Place], int]

    def path(self, prefix: str) -> str:
        """Local. Where it is written."""
        return f"{prefix}-{self.name}.png"

    def draw(self, prefix: str, rows: Sequence[Row], memory: str) -> None:
        """Local. A line for every method with receive memory of one kind, and what needs none."""
        places = {(str(each.ranks), each.nbytes): self.x(each) for each in self.places}
        points: dict[str, list[tuple[float, float]]] = {}
        for row in rows:
            key = (row.labels["ranks"], row.nbytes)
            if not row.reason and key in places and row.labels["memory"] in (memory, PLAIN):
                point = (float(places[key]), median(row.times))
                points.setdefault(row.labels["method"], []).append(point)
        lines = {name: _columns(found) for name, found in points.items()}
        labels = (self.label, "median time in s")
        save_lines(self.path(prefix), self.title, labels, lines, x_scale=self.scale)


def _columns(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Local. x and y of points, by x."""
    ordered = sorted(points)
    return [x for x, _ in ordered], [y for _, y in ordered]


def scaling_figures(every: Sequence[Series]) -> list[Figure]:
    """Local. Those that a sweep has data for.

    1: weak scaling at the paper's 2 MiB per rank, or the size next to it; ``strong`` at that size,
    too; 2: over the sizes, on the largest number of ranks.
    """
    found = []
    for scaling, name in (("weak", "1"), ("strong", "strong")):
        mine = [each for each in every if each.scaling == scaling and len(each.places) > 1]
        if mine:
            each = min(mine, key=lambda one: abs(one.places[0].nbytes - PAPERS_BYTES))
            title = f"{scaling} scaling, {byte_count(each.nbytes)} " + (
                "per rank (as Figure 1)" if name == "1" else "of all ranks together"
            )
            found.append(Figure(name, title, "ranks", "linear", each.places, _ranks))
    largest = max(place.ranks for each in every for place in each.places)
    over = sorted({p for each in every for p in each.places if p.ranks == largest})
    if len(over) > 1:
        title = f"Alltoallv, {largest} ranks (as Figure 2)"
        found.append(Figure("2", title, "bytes per rank", "log", over, _bytes))
    return found


def _ranks(place: Place) -> int:
    return place.ranks


def _bytes(place: Place) -> int:
    return place.nbytes


def check_figures(comm: MPI.Intracomm, prefix: str | None, figures: Sequence[Figure]) -> None:
    """Collective. :class:`CommandError` before the work where one of them cannot be written."""
    for figure in figures if prefix is not None else ():
        check_picture(comm, figure.path(str(prefix)))


def draw_figures(
    prefix: str | None, figures: Sequence[Figure], rows: Sequence[Row], memory: str
) -> None:
    """Local. All of them, where a prefix was given."""
    for figure in figures if prefix is not None else ():
        figure.draw(str(prefix), rows, memory)
