"""What the report draws of the papers' experiments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from onesided.apps.cli.report import BASELINE
from onesided.apps.report.figure import NOTHING, Bars, Figure, Lines, Squares, gathered
from onesided.apps.report.markup import Fold, Table
from onesided.apps.report.page import Block
from onesided.apps.report.quantities import COUNT, RANKS, RATE, RATIO, SIZE, TIME
from onesided.apps.report.result import METHOD, Entry, Result, known
from onesided.apps.report.sections import (
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
    usual_tables,
)
from onesided.apps.report.threads import panels

# ``bench partitioned``: Figures 3 to 6 of paper 004, bandwidth over the size of a partition.

PART = "partition_bytes"
MARKED = "marked"
PARTITION_NAMES = (METHOD, "aggregate")
MOST_FIGURES = 12


def partitions(result: Result) -> list[Figure]:
    """Local. By the order, the threads and the way of marking: a line for every mechanism. Then by
    the order and the way of marking all numbers of threads, if there are several."""
    timed = result.timed
    across = SIZE.called("bytes of a partition")
    sweep = Sweep(PART, across, rate, RATE, PARTITION_NAMES)
    found: list[Figure] = []
    for words, entries in split(timed, ("order", "threads")).items():
        for marking, marked in by_marking(entries).items():
            found += sweep.figures(f"Bandwidth: {words}, marked {marking}", marked, timed)
    sweep = Sweep(PART, across, rate, RATE, (*PARTITION_NAMES, "threads"))
    threaded: list[Figure] = []
    if len({entry.label("threads") for entry in timed}) > 1:
        chosen = [entry for entry in timed if entry.method in ("persistent", "psend")]
        for words, entries in split(chosen, ("order", MARKED)).items():
            threaded += sweep.figures(f"Threads: {words}", entries)
    return found[:MOST_FIGURES] + threaded[:MOST_FIGURES]


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


def cells(result: Result) -> list[Figure]:
    """Local. Those that there are data for."""
    timed = result.timed
    return list(panels(timed, timed, int(known(result.machine.get("cores")) or 1.0)).values())


def cells_tables(result: Result) -> list[Block]:
    """Local. How many cells failed and in what way, before all cells."""
    failures = result.pattern.get("failures")
    if not isinstance(failures, dict):
        return usual_tables(result)
    rows = [["cells", text(failures.get("cells"))], ["failed", text(failures.get("failed"))]]
    rows += [
        [f"failed, by {words}", text(failures[name])]
        for name, words in COUNTS.items()
        if failures.get(name)
    ]
    return [Table("Failures", ["what", "how many"], rows, prose=True), *usual_tables(result)]


# ``bench patterns``: Figures 3 and 4 of paper 000, times and counts of irregular exchanges.

MOST_RANKS = 64  # of a picture of counts


def method_bars(title: str, entries: Sequence[Entry]) -> Bars:
    """Local. The time of an exchange by every method, a bar for each kind of memory."""
    groups: dict[str, dict[str, float]] = {}
    for entry in entries:
        groups.setdefault(entry.method, {})[entry.label("memory")] = entry.median or 0.0
    return Bars(title, TIME, groups, METHOD)


def patterns(result: Result) -> list[Figure]:
    """Local. For every matrix and pattern the times, then the counts."""
    found: list[Figure] = [
        method_bars(f"Time: {words}", entries)
        for words, entries in split(result.timed, ("matrix", "pattern")).items()
    ]
    for name, pattern, counts in _counts(result.pattern.get("matrices")):
        if len(counts) <= MOST_RANKS:
            title = f"Elements from rank to rank: {name}, {pattern}"
            ranks = [str(rank) for rank in range(len(counts))]
            elements = COUNT.called("elements")
            found.append(Squares(title, "from rank", "to rank", ranks, ranks, counts, elements))
    return found


def _counts(matrices: Any) -> Iterator[tuple[str, str, list[list[float]]]]:
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


def exchanges(result: Result) -> list[Figure]:
    """Local. By the memory received into: over the bytes, then over the ranks."""
    timed = result.timed
    found: list[Figure] = []
    for memory, entries in by_memory(timed).items():
        told = f"receiving into {memory!r} memory"
        most = largest(entries, "ranks")
        found += times_over_bytes(METHOD).figures(f"Time over bytes, {told}", most, timed)
        ratios = ratios_over_bytes("MPI_Alltoallv", METHOD)
        found += ratios.figures(f"Time over that of MPI_Alltoallv, {told}", most, timed)
    for memory, entries in by_memory(timed).items():
        found += _scaling(result, memory, entries)
    return found


def _scaling(result: Result, memory: str, entries: Sequence[Entry]) -> list[Figure]:
    """Over the ranks, for the most bytes of every series that the command measured."""
    chosen: dict[str, tuple[float, set[tuple[float | None, float | None]]]] = {}
    for series in records(result.pattern.get("series")):
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
        found += sweep.figures(title, rows, result.timed)
    return found


def collectives(result: Result) -> list[Figure]:
    """Local. Ratios to the MPI's blocking call, a figure for every operation."""
    return over_blocking(result.timed, "{0}, time over that of MPI_{0}")


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
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.number("setup_s") is not None:
            found.setdefault(entry.label("memory"), [*others]).append(entry)
    return found or {"plain": others}


# ``bench broadcast``: Figures 13 to 16 of paper 003, LogGP beside them, and the crossovers.

BROADCAST_NAMES = (METHOD, "order")
FAR = float(1 << 50)  # bytes: what a model says beyond this is rounding


def broadcasts(result: Result) -> list[Figure]:
    """Local. Over the bytes on most ranks, over the ranks with most bytes, and the model."""
    timed = result.timed
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
    points: list[tuple[str, float | None, float | None]] = []
    for entry in most:
        predicted = numbers(entry, "parts").get("predicted")
        if predicted is not None:
            name = named(entry, BROADCAST_NAMES)
            points.append((name, entry.number("bytes"), entry.median))
            points.append((f"{name}, LogGP", entry.number("bytes"), predicted))
    lines = dict(sorted(gathered(points).items()))
    title = f"LogGP beside the times on {ranks} ranks"
    return found + ([Lines(title, SIZE, TIME, lines)] if lines else [])


def broadcasts_tables(result: Result) -> list[Block]:
    """Local. First where a tree overtakes the linear broadcast."""
    rows = [_crossing(each) for each in records(result.pattern.get("crossings"))]
    columns = ["tree", "overtakes", "at", "from here on", "from here on, by LogGP"]
    crossed = Table("Where a tree overtakes the linear broadcast", columns, rows, heads=2)
    first: list[Block] = [Fold("Crossovers", crossed)] if rows else []
    return first + usual_tables(result)


def _crossing(record: Mapping[str, Any]) -> list[str]:
    over, at = (_ranks, SIZE.show) if record.get("over") == "ranks" else (SIZE.show, _ranks)

    def told(value: Any) -> str:
        place = known(value)
        return "nowhere" if place is None or not 0 < place < FAR else over(place)

    tree = f"{record.get('method')} {record.get('order')}".removesuffix(NOTHING).strip()
    predicted = told(record.get("predicted")) if record.get("modelled") else "no model"
    held = at(known(record.get("at")) or 0.0)
    return [tree, str(record.get("other")), held, told(record.get("measured")), predicted]


def _ranks(number: float) -> str:
    return f"{number:.3g} ranks"
