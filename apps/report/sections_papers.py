"""``bench broadcast``: Figures 13 to 16 of paper 003, LogGP beside them, and the crossovers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onesided.apps.cli.report import BASELINE, byte_count, duration
from onesided.apps.report.figure import NOTHING, Bars, Figure, Lines, Point, Regions, Squares
from onesided.apps.report.markup import Fold, Table
from onesided.apps.report.page import Block
from onesided.apps.report.quantities import COUNT, RANKS, RATE, RATIO, SIZE, TIME, Quantity
from onesided.apps.report.result import METHOD, Entry, known
from onesided.apps.report.sections import (
    Kind,
    Sweep,
    largest,
    median_time,
    named,
    numbers,
    ratios_over_bytes,
    records,
    split,
    text,
    times_over_bytes,
)
from onesided.apps.report.threads import Panel, panels

# ``model``, ``bench model``: what is predicted, which method wins where, and how well it fits.

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
                    "An area for every number of ranks and of bytes, in the color of a method.",
                    SIZE,
                    RANKS,
                    sizes,
                    ranks,
                    [[best[count, size] for size in sizes] for count in ranks],
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


# ``bench partitioned``: Figures 3 to 6 of paper 004, bandwidth over the size of a partition.

PART = "partition_bytes"
PANELS = ("order", "threads")
MARKED = "marked"
PARTITION_NAMES = (METHOD, "aggregate")
MOST_FIGURES = 12


class Partitions(Kind):
    """Partitioned sends."""

    def figures(self) -> list[Figure]:
        """Local. By the order, the threads and the way of marking: a line for every mechanism."""
        timed = self.result.timed
        sweep = Sweep(PART, SIZE.called("bytes of a partition"), rate, RATE, PARTITION_NAMES)
        found: list[Figure] = []
        for words, entries in split(timed, PANELS).items():
            for marking, marked in by_marking(entries).items():
                found += sweep.figures(f"Bandwidth: {words}, marked {marking}", marked, timed)
        return found[:MOST_FIGURES] + self._threads(timed)

    def _threads(self, timed: Sequence[Entry]) -> list[Figure]:
        """Local. One by one with every number of threads, if there are several."""
        if len({entry.label("threads") for entry in timed}) < 2:
            return []
        names = (*PARTITION_NAMES, "threads")
        sweep = Sweep(PART, SIZE.called("bytes of a partition"), rate, RATE, names)
        chosen = [e for e in timed if e.method in ("persistent", "psend")]
        found: list[Figure] = []
        for words, entries in split(chosen, ("order", MARKED)).items():
            found += sweep.figures(f"Threads: {words}", entries)
        return found[:MOST_FIGURES]


def by_marking(entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    """Local. Rows by the way of marking; what is not marked at all belongs to every way."""
    ways = list(dict.fromkeys(e.label(MARKED) for e in entries if e.label(MARKED) != NOTHING))
    return {way: [e for e in entries if e.label(MARKED) in (way, NOTHING)] for way in ways}


def rate(entry: Entry) -> float | None:
    """Local. GB/s by the mean time, as paper 004 has it; None for wrong data."""
    speed = entry.number("mean_gigabytes_per_s") or entry.number("gigabytes_per_s")
    wrong = entry.values.get("verified") is False
    return None if wrong or speed is None or speed <= 0 else speed


# ``bench rma-mt``: Figures 1 to 7 of paper 002, multi-threaded one-sided messages.

#: What the failures are counted by, in the JSON file and in words.
COUNTS = {
    "by_kind": "kind",
    "by_sync": "synchronization",
    "by_op": "operation",
    "by_threads": "threads",
    "by_bytes": "bytes of a message",
}


def lines_of(panel: Panel) -> Lines:
    """Local. A part of a figure, with the deviations of the runs."""
    return Lines(
        panel.title,
        f"Lines of the {panel.up.name} over {panel.across.name}: {', '.join(panel.lines)}.",
        panel.across,
        panel.up,
        {name: [(x, y) for x, y, _ in line] for name, line in panel.lines.items()},
        spread={name: {x: off for x, _, off in line} for name, line in panel.lines.items()},
    )


class RmaMt(Kind):
    """Cells of the matrix."""

    def figures(self) -> list[Figure]:
        """Local. Those that there are data for."""
        timed = self.result.timed
        cores = known(self.result.machine.get("cores")) or 1.0
        return [lines_of(panel) for panel in panels(timed, timed, int(cores))]

    def tables(self) -> list[Block]:
        """Local. How many cells failed and in what way, before all cells."""
        failures = self.result.pattern.get("failures")
        if not isinstance(failures, dict):
            return super().tables()
        rows = [["cells", text(failures.get("cells"))], ["failed", text(failures.get("failed"))]]
        rows += [
            [f"failed, by {words}", text(failures[name])]
            for name, words in COUNTS.items()
            if failures.get(name)
        ]
        return [Table("Failures", ["what", "how many"], rows, prose=True), *super().tables()]


# ``bench patterns``: Figures 3 and 4 of paper 000, times and counts of irregular exchanges.

CASE = ("matrix", "pattern")
MOST_RANKS = 64  # of a picture of counts


def method_bars(title: str, entries: Sequence[Entry]) -> Bars:
    """Local. The time of an exchange by every method, a bar for each kind of memory."""
    groups: dict[str, dict[str, float]] = {}
    for entry in entries:
        groups.setdefault(entry.method, {})[entry.label("memory")] = entry.median or 0.0
    told = f"Bars of the time of an exchange: {', '.join(groups)}."
    return Bars(title, told, TIME, groups, "method")


class Patterns(Kind):
    """Exchanges with the patterns of sparse matrices."""

    def figures(self) -> list[Figure]:
        """Local. For every matrix and pattern the times, then the counts."""
        found: list[Figure] = []
        for words, entries in split(self.result.timed, CASE).items():
            found.append(method_bars(f"Time: {words}", entries))
        return found + [
            Squares(
                f"Elements from rank to rank: {name}, {pattern}",
                f"A square for every pair of {len(counts)} ranks, darker where more is sent.",
                "from rank",
                "to rank",
                [str(rank) for rank in range(len(counts))],
                [str(rank) for rank in range(len(counts))],
                counts,
                COUNT.called("elements"),
            )
            for name, pattern, counts in self._counts()
            if len(counts) <= MOST_RANKS
        ]

    def _counts(self) -> Iterator[tuple[str, str, list[list[float]]]]:
        matrices = self.result.pattern.get("matrices")
        for name, matrix in matrices.items() if isinstance(matrices, dict) else ():
            patterns = matrix.get("patterns") if isinstance(matrix, dict) else None
            for pattern, record in patterns.items() if isinstance(patterns, dict) else ():
                counts = record.get("counts") if isinstance(record, dict) else None
                if counts is not None and _is_square(counts):
                    yield str(name), str(pattern), counts


def _is_square(counts: Any) -> bool:
    """Whether these are as many rows as columns of numbers."""
    return (
        isinstance(counts, list)
        and bool(counts)
        and all(isinstance(row, list) and len(row) == len(counts) for row in counts)
        and all(known(each) is not None for row in counts for each in row)
    )


# ``bench alltoallv``: Figures 1 and 2 of paper 000, and times over that of the plain call.
#
# ``bench collectives``: the same of every collective.

MEMORY = "memory"


class Exchanges(Kind):
    """Uniform exchanges."""

    def figures(self) -> list[Figure]:
        """Local. By the memory received into: over the bytes, then over the ranks."""
        timed = self.result.timed
        found: list[Figure] = []
        for memory, entries in by_memory(timed).items():
            told = f"receiving into {memory!r} memory"
            most = largest(entries, "ranks")
            found += times_over_bytes(METHOD).figures(f"Time over bytes, {told}", most, timed)
            ratios = ratios_over_bytes("MPI_Alltoallv", METHOD)
            found += ratios.figures(f"Time over that of MPI_Alltoallv, {told}", most, timed)
        for memory, entries in by_memory(timed).items():
            found += self._scaling(memory, entries)
        return found

    def _scaling(self, memory: str, entries: Sequence[Entry]) -> list[Figure]:
        """Local. Over the ranks, for the most bytes of every series that the command measured."""
        chosen: dict[str, tuple[float, set[tuple[float | None, float | None]]]] = {}
        for series in records(self.result.pattern.get("series")):
            scaling, nbytes = str(series.get("scaling")), known(series.get("bytes"))
            places = {
                (known(place.get("ranks")), known(place.get("bytes")))
                for place in records(series.get("places"))
            }
            if nbytes and len(places) > 1 and nbytes > chosen.get(scaling, (0.0, places))[0]:
                chosen[scaling] = nbytes, places
        sweep = Sweep("ranks", RANKS, median_time, TIME, [METHOD])
        found: list[Figure] = []
        for scaling, (nbytes, places) in chosen.items():
            rows = [e for e in entries if (e.number("ranks"), e.number("bytes")) in places]
            told = f"receiving into {memory!r} memory"
            title = f"Time over ranks, {scaling} scaling, {SIZE.show(nbytes)}, {told}"
            found += sweep.figures(title, rows, self.result.timed)
        return found


class Collectives(Kind):
    """All collectives: ratios to the MPI's blocking call."""

    def figures(self) -> list[Figure]:
        """Local. One for every operation."""
        return over_blocking(self.result.timed, "{0}, time over that of MPI_{0}")


def over_blocking(entries: Sequence[Entry], title: str) -> list[Figure]:
    """Local. A figure for every operation, of whose name ``title`` makes one."""
    over = RATIO.called("time over that of the blocking call")
    sweep = Sweep("bytes", SIZE, lambda entry: entry.ratio(BASELINE), over, [METHOD], level=1.0)
    found: list[Figure] = []
    for name in dict.fromkeys(entry.label("operation") for entry in entries):
        mine = [entry for entry in entries if entry.label("operation") == name]
        found += sweep.figures(title.format(name), mine, entries)
    return found


def by_memory(entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    """Local. Rows by the memory of the request; what needs no set-up belongs to all of them."""
    others = [entry for entry in entries if entry.number("setup_s") is None]
    kinds = dict.fromkeys(e.label(MEMORY) for e in entries if e.number("setup_s") is not None)
    found = {
        kind: [
            *others,
            *(e for e in entries if e.number("setup_s") is not None and e.label(MEMORY) == kind),
        ]
        for kind in kinds
    }
    return found or {"plain": others}


BROADCAST_NAMES = (METHOD, "order")
FAR = float(1 << 50)  # bytes: what a model says beyond this is rounding


class Broadcasts(Kind):
    """One rank's data to all."""

    def figures(self) -> list[Figure]:
        """Local. Over the bytes on most ranks, over the ranks with most bytes, and the model."""
        timed = self.result.timed
        most = largest(timed, "ranks")
        ranks = RANKS.show(most[0].number("ranks") or 0.0) if most else ""
        times = times_over_bytes(*BROADCAST_NAMES)
        found = times.figures(f"Broadcast on {ranks} ranks", most, timed)
        ratios = ratios_over_bytes("MPI_Bcast", *BROADCAST_NAMES)
        found += ratios.figures(f"Time over that of MPI_Bcast on {ranks} ranks", most, timed)
        if len({entry.label("ranks") for entry in timed}) > 1:
            size = largest(timed, "bytes")
            told = SIZE.show(size[0].number("bytes") or 0.0)
            sweep = Sweep("ranks", RANKS, median_time, TIME, BROADCAST_NAMES)
            found += sweep.figures(f"Broadcast of {told}", size, timed)
        return found + _predicted(f"LogGP beside the times on {ranks} ranks", most)

    def tables(self) -> list[Block]:
        """Local. First where a tree overtakes the linear broadcast."""
        crossings = self.result.pattern.get("crossings")
        rows = [_crossing(each) for each in records(crossings)]
        columns = ["tree", "overtakes", "at", "from here on", "from here on, by LogGP"]
        crossed = Table("Where a tree overtakes the linear broadcast", columns, rows, heads=2)
        first: list[Block] = [Fold("Crossovers", crossed)] if rows else []
        return first + super().tables()


def _crossing(record: Mapping[str, Any]) -> list[str]:
    over, at = _OVER.get(str(record.get("over")), (_ranks, _bytes))

    def told(value: Any) -> str:
        place = known(value)
        return "nowhere" if place is None or not 0 < place < FAR else over(place)

    tree = f"{record.get('method')} {record.get('order')}".removesuffix(NOTHING).strip()
    model = told(record.get("predicted")) if record.get("modelled") else "no model"
    held = at(known(record.get("at")) or 0.0)
    return [tree, str(record.get("other")), held, told(record.get("measured")), model]


def _bytes(number: float) -> str:
    return SIZE.show(number)


def _ranks(number: float) -> str:
    return f"{number:.3g} ranks"


#: How what is found and what is held fixed are written.
_OVER: Mapping[str, tuple[Callable[[float], str], Callable[[float], str]]] = {
    "bytes": (_bytes, _ranks),
    "ranks": (_ranks, _bytes),
}


def _predicted(title: str, entries: Sequence[Entry]) -> list[Figure]:
    lines: dict[str, list[Point]] = {}
    for entry in entries:
        parts = entry.values.get("parts")
        predicted = known(parts.get("predicted")) if isinstance(parts, dict) else None
        nbytes, median = entry.number("bytes"), entry.median
        if predicted is not None and nbytes is not None and median is not None:
            name = named(entry, BROADCAST_NAMES)
            lines.setdefault(name, []).append((nbytes, median))
            lines.setdefault(f"{name}, LogGP", []).append((nbytes, predicted))
    if not lines:
        return []
    ordered = {name: sorted(points) for name, points in sorted(lines.items())}
    words = f"Lines over the bytes, measured and by the model LogGP: {', '.join(ordered)}."
    return [Lines(title, words, SIZE, TIME, ordered)]
