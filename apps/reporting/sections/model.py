"""``model``, ``bench model``: what is predicted, which method wins where, and how well it fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onesided.apps.report import byte_count, duration
from onesided.apps.reporting.figure import NOTHING, Figure
from onesided.apps.reporting.grid import Regions
from onesided.apps.reporting.lines import Lines, Point
from onesided.apps.reporting.quantities import RANKS, SIZE, TIME, Quantity
from onesided.apps.reporting.result import METHOD, known
from onesided.apps.reporting.section import Block
from onesided.apps.reporting.sections.kind import Kind
from onesided.apps.reporting.sections.rows import numbers, records
from onesided.apps.reporting.table import Table

PREDICTED = TIME.called("predicted time of an iteration")
MICRO = 1e-6


@dataclass(frozen=True)
class Prediction:
    """Seconds by method, on so many ranks that send so many bytes each."""

    ranks: float
    nbytes: float
    seconds: Mapping[str, float]

    @property
    def fastest(self) -> str:
        """Local. The method of the least time."""
        return min(self.seconds, key=lambda method: self.seconds[method])


class Model(Kind):
    """Predictions; nothing was measured."""

    def figures(self) -> list[Figure]:
        """Local. Over the ranks with most bytes, over the bytes on most ranks; who wins where."""
        points = self._points()
        ranks = sorted({point.ranks for point in points})
        sizes = sorted({point.nbytes for point in points})
        found: list[Figure] = []
        if len(ranks) > 1:
            lines = _lines((p.ranks, p.seconds) for p in points if p.nbytes == sizes[-1])
            found.append(_figure(f"Prediction, {SIZE.show(sizes[-1])} per rank", RANKS, lines))
        if len(sizes) > 1:
            lines = _lines((p.nbytes, p.seconds) for p in points if p.ranks == ranks[-1])
            found.append(_figure(f"Prediction on {RANKS.show(ranks[-1])} ranks", SIZE, lines))
        best = {(point.ranks, point.nbytes): point.fastest for point in points}
        if len(ranks) > 1 and len(sizes) > 1 and len(best) == len(ranks) * len(sizes):
            found.append(
                Regions(
                    "The fastest method, by the model",
                    "A square for every number of ranks and of bytes, in the color of a method.",
                    "bytes",
                    "ranks",
                    [SIZE.show(size) for size in sizes],
                    [RANKS.show(count) for count in ranks],
                    [[best[count, size] for count in ranks] for size in sizes],
                )
            )
        return found + self._paper()

    def tables(self) -> list[Block]:
        """Local. All predictions, and those beside what paper 000 tells."""
        points = self._points()
        methods = list(dict.fromkeys(method for point in points for method in point.seconds))
        rows = [
            [
                RANKS.show(point.ranks),
                SIZE.show(point.nbytes),
                *(duration(point.seconds[m]) if m in point.seconds else NOTHING for m in methods),
                point.fastest,
            ]
            for point in points
        ]
        columns = ["ranks", "bytes", *methods, "fastest"]
        found: list[Block] = [Table("Predictions", columns, rows, heads=2)] if rows else []
        told = [_told(each) for each in records(self._part("paper").get("told"))]
        if told:
            heads = ["figure", "ranks", "block", "method", "paper 000", "model"]
            found.append(Table("Beside the paper", heads, told, heads=4))
        return found

    def _points(self) -> list[Prediction]:
        found = []
        for entry in self.result.entries:
            ranks, nbytes = entry.number("ranks"), entry.number("bytes")
            seconds = {name: s for name, s in numbers(entry, "seconds").items() if s > 0}
            if ranks is not None and nbytes is not None and seconds:
                found.append(Prediction(ranks, nbytes, seconds))
        return found

    def _paper(self) -> list[Figure]:
        """Local. Figure 1 of paper 000 by the model."""
        figure = self._part("paper").get("figure_1")
        if not isinstance(figure, dict) or not isinstance(figure.get("seconds"), dict):
            return []
        ranks = figure.get("ranks")
        lines = {
            str(method): _points(ranks, times)
            for method, times in figure["seconds"].items()
            if isinstance(ranks, list) and isinstance(times, list)
        }
        return [_figure("Figure 1 of paper 000, by the model", RANKS, lines)] if lines else []

    def _part(self, name: str) -> Mapping[str, Any]:
        part = self.result.content.get(name)
        return part if isinstance(part, dict) else {}


class Check(Kind):
    """The parameters as they were measured, and predictions beside times."""

    def figures(self) -> list[Figure]:
        """Local. Two lines for every method."""
        lines: dict[str, list[Point]] = {}
        for entry in self.result.timed:
            size, predicted = entry.number("bytes"), entry.number("predicted us")
            name = entry.label(METHOD)
            if size is not None and predicted is not None:
                lines.setdefault(name, []).append((size, entry.median or 0.0))
                lines.setdefault(f"{name}, model", []).append((size, predicted * MICRO))
        ordered = {name: sorted(points) for name, points in lines.items()}
        return [_figure("The model beside the times", SIZE, ordered, TIME)] if ordered else []


def _figure(
    title: str, across: Quantity, lines: Mapping[str, list[Point]], up: Quantity = PREDICTED
) -> Lines:
    words = f"Lines of the {up.name} over {across.name}: {', '.join(lines)}."
    return Lines(title, words, across, up, lines)


def _lines(points: Any) -> dict[str, list[Point]]:
    found: dict[str, list[Point]] = {}
    for x, seconds in points:
        for method, time in seconds.items():
            found.setdefault(method, []).append((x, time))
    return {method: sorted(line) for method, line in found.items()}


def _points(xs: Sequence[Any], ys: Sequence[Any]) -> list[Point]:
    pairs = ((known(x), known(y)) for x, y in zip(xs, ys, strict=False))
    return [(x, y) for x, y in pairs if x is not None and y is not None]


def _told(record: Mapping[str, Any]) -> list[str]:
    block = known(record.get("block_bytes"))
    times = (known(record.get(name)) for name in ("seconds", "predicted_s"))
    return [
        *(str(record.get(name, NOTHING)) for name in ("figure", "ranks")),
        NOTHING if block is None else byte_count(int(block)),
        str(record.get("method", NOTHING)),
        *(NOTHING if time is None else duration(time) for time in times),
    ]
