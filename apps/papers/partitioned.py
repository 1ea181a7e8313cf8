"""``onesided bench partitioned``: Listing 1 of the paper on partitioned communication in Open MPI.

Two ranks, a buffer in partitions, one side marks them ready; mechanisms, orders, numbers of threads
and sizes of partitions vary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from mpi4py import MPI
from rich.console import Group
from rich.table import Table

from onesided.apps.bench.store import Parts
from onesided.apps.cli.failures import CommandError
from onesided.apps.cli.options import ALL, Options, Picture, size
from onesided.apps.cli.progress import console, progress
from onesided.apps.cli.report import (
    NOTHING,
    Report,
    Row,
    any_missed,
    byte_count,
    compared,
    conclusions,
    duration,
)
from onesided.apps.cli.statistics import Target, Verdict
from onesided.apps.papers.options import AGGREGATES, MESSAGE_SIZES
from onesided.apps.papers.partitioned_sends import (
    AUTO,
    BULK,
    LEFT_TO_RIGHT,
    NATIVE,
    NEIGHBORHOOD,
    ONE_BY_ONE,
    RANDOMIZED,
    RANKS,
    SINGLE,
    Entry,
    Marking,
    contestants,
    entries,
)
from onesided.apps.papers.partitioned_sweep import Place, Result, Sweep, whole_sweep
from onesided.apps.report.chart import save
from onesided.apps.report.figure import Point, drawn
from onesided.apps.report.quantities import RATE, SIZE

# What the benchmark says: a row per place and contestant, and for a person a table over sizes.

WRONG = " !"
ENTRY = ("method", "aggregate", "marked")
BANDWIDTH = "GB/s and per cent of the single message's"
PERCEIVED = "perceived GB/s: bytes over the time after the last partition was ready"


def bandwidth(row: Row) -> str:
    """Local. GB/s by the median, and per cent of the single message's."""
    relative = row.ratios.get(SINGLE.method)
    share = f" {100 / relative:.0f}%" if relative else ""
    return _speed(row.nbytes, row.times) + share + _fault(row)


def perceived(row: Row) -> str:
    """Local. GB/s if only the time after the last partition was ready counts."""
    return _speed(row.nbytes, row.details["after last"]) + _fault(row)


def _fault(row: Row) -> str:
    """A sign for wrong data."""
    return "" if row.verdict is None or row.verdict.passed else WRONG


def _speed(nbytes: int, times: Sequence[float]) -> str:
    """GB/s by the median, short."""
    speed = nbytes / median(times) / 1e9
    return f"{speed:.3g}" if speed >= 1 else f"{speed:.2g}"


@dataclass
class SweepReport(Report):
    """A report with a table per order and number of threads, a column per size of partitions.

    ``lines``: what is timed, in the order of the tables, as labels.
    """

    lines: Sequence[Mapping[str, str]] = ()

    def table(self, title: str) -> Group:
        """Local. Bandwidths; where there is computing, also the perceived ones."""
        tables: list[str | Table] = [f"{title}, {BANDWIDTH}"]
        tables += self._tables(bandwidth)
        if self.settings["compute"]:
            tables += [PERCEIVED, *self._tables(perceived)]
        return Group(*tables)

    def _tables(self, cell: Callable[[Row], str]) -> list[Table]:
        rows = [row for row in self.rows if not row.reason]
        places = dict.fromkeys((row.labels["order"], row.labels["threads"]) for row in rows)
        return [self._place([row for row in rows if _place(row) == key], cell) for key in places]

    def _place(self, rows: Sequence[Row], cell: Callable[[Row], str]) -> Table:
        order, threads = _place(rows[0])
        table = Table(title=f"{order}, {number_of_threads(int(threads))}", title_justify="left")
        for name in ENTRY:
            table.add_column(name, no_wrap=True)
        sizes = list(dict.fromkeys(row.labels["partition"] for row in rows))
        for name in sizes:
            table.add_column(name, justify="right", no_wrap=True)
        cells = {(*_entry(row.labels), row.labels["partition"]): cell(row) for row in rows}
        for line in map(_entry, self.lines):
            found = [cells.get((*line, name)) for name in sizes]
            if any(found):
                table.add_row(*line, *(text or NOTHING for text in found))
        return table


def number_of_threads(count: int) -> str:
    """Local. In words."""
    return "1 thread" if count == 1 else f"{count} threads"


def _place(row: Row) -> tuple[str, str]:
    return row.labels["order"], row.labels["threads"]


def _entry(labels: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(labels[name] for name in ENTRY)


def timed_row(place: Place, result: Result, others: Sequence[Result], nbytes: int) -> Row:
    """Local. ``others``: all results of the place, for those to compare with."""
    labels = {
        "partition": byte_count(place.part),
        "order": place.order,
        "threads": str(place.threads),
        **result.entry.labels,
    }
    partitions = nbytes // place.part
    return Row(
        labels,
        result.times,
        setup=result.setup,
        nbytes=nbytes,
        against=opponents_of(result, others),
        details={"mean": [fmean(result.times)], "after last": result.tails},
        values={
            "partition_bytes": place.part,
            "mean_gigabytes_per_s": nbytes / fmean(result.times) / 1e9,
            "perceived_gigabytes_per_s": nbytes / median(result.tails) / 1e9,
            "wrong_partitions": result.wrong,
        },
        verdict=Verdict(result.wrong / partitions, 0.0),
    )


def opponents_of(result: Result, others: Sequence[Result]) -> dict[str, Sequence[float]]:
    """Local. Times of the single message, and of the MPI's own partitioned send marked alike."""
    found: dict[str, Sequence[float]] = {}
    for other in others:
        alike = other.entry.marking is result.entry.marking
        if other.times and other.entry.contestant is SINGLE:
            found[SINGLE.method] = other.times
        elif other.times and other.entry.contestant is NATIVE and alike:
            found[NATIVE.method] = other.times
    return found


def reasons(sweep: Sweep) -> list[Row]:
    """Local. Why contestants were not made or not timed; the same reason is told once."""
    places: dict[tuple[tuple[str, str], ...], list[Place]] = {}
    paces: dict[tuple[tuple[str, str], ...], list[float]] = {}
    for part, pairs in sweep.refused.items():
        for contestant, reason in pairs:
            key = (*contestant.labels.items(), ("reason", reason))
            places.setdefault(key, []).append(Place(part, "", 0))
    for place, found in sweep.results.items():
        for result in found:
            if result.reason:
                key = (*result.entry.labels.items(), ("reason", result.reason))
                places.setdefault(key, []).append(place)
                paces.setdefault(key, []).append(result.pace)
    return [_reason(dict(key), where, paces.get(key, [])) for key, where in places.items()]


def _reason(labels: dict[str, str], places: Sequence[Place], paces: Sequence[float]) -> Row:
    """Local. A row of :func:`reasons`; the times of rounds are told where there are any."""
    reason = labels.pop("reason")
    if paces:
        least, most = duration(min(paces)), duration(max(paces))
        reason += f" (a round: {least if least == most else f'{least} to {most}'})"
    parts = dict.fromkeys(byte_count(place.part) for place in places)
    orders = dict.fromkeys(place.order for place in places if place.order)
    threads = dict.fromkeys(str(place.threads) for place in places if place.threads)
    named = {"partition": parts, "order": orders, "threads": threads}
    where = {name: ", ".join(texts) for name, texts in named.items() if texts}
    return Row(where | labels, reason=reason)


def facts(sweep_results: Mapping[Place, Sequence[Result]]) -> dict[str, Any]:
    """Local. For JSON: how many checks there were, and where data were wrong."""
    every = [(place, result) for place, found in sweep_results.items() for result in found]
    return {
        "checked": len(every),
        "wrong": [
            f"{place.part} {place.order} {place.threads} {result.entry.name}"
            for place, result in every
            if result.wrong
        ],
    }


# Figures 3 to 6 of the paper on partitioned communication: bandwidth over the partition size.

Results = Mapping[Place, Sequence[Result]]
PERSISTENT, PARTITIONED = "persistent", "psend"
MESSAGES = ("send", PERSISTENT, "isend")


@dataclass(frozen=True)
class Figure:
    """One of them: its name, its title, and which results are in it; ``legend`` names a line."""

    name: str
    title: str
    takes: Callable[[Place, Result], bool]
    legend: Callable[[Place, Result], str]

    def draw(self, picture: Picture, results: Results, nbytes: int) -> None:
        """Local. Bandwidths as in Listing 1, by the mean; no figure where nothing was timed."""
        lines = self.lines(results, nbytes)
        across = SIZE.called("bytes of a partition")
        panels = [drawn(self.title, across, RATE, lines)] if lines else []
        save(picture.of(self.name), self.title, panels)

    def lines(self, results: Results, nbytes: int) -> dict[str, list[Point]]:
        """Local. By legend: sizes of partitions, and bandwidths in GB/s."""
        found: dict[str, list[Point]] = {}
        for place, each in sorted(results.items(), key=lambda entry: entry[0].part):
            for result in each:
                if result.times and self.takes(place, result):
                    point = (float(place.part), nbytes / fmean(result.times) / 1e9)
                    found.setdefault(self.legend(place, result), []).append(point)
        return found


def figures(options: Options) -> list[Figure]:
    """Local. Those of the paper's four that a sweep has data for, the last one in two parts."""
    order, count = options.orders[0], options.threads[0]
    aggregated = {
        "6a": [each for each in (LEFT_TO_RIGHT, NEIGHBORHOOD) if each in options.orders],
        "6b": [each for each in (RANDOMIZED,) if each in options.orders],
    }
    return [
        _mechanisms(order, count),
        _threads(order),
        _orders(count),
        *(_aggregated(name, orders, count) for name, orders in aggregated.items() if orders),
    ]


def _mechanisms(order: str, count: int) -> Figure:
    def takes(place: Place, result: Result) -> bool:
        here = (place.order, place.threads) == (order, count)
        return here and _one_by_one(result, *MESSAGES, PARTITIONED)

    title = f"Messages and partitions, {order}, {number_of_threads(count)}"
    return Figure("3", title, takes, lambda place, result: result.entry.contestant.name)


def _threads(order: str) -> Figure:
    def takes(place: Place, result: Result) -> bool:
        return place.order == order and _one_by_one(result, PERSISTENT, PARTITIONED)

    def legend(place: Place, result: Result) -> str:
        return f"{result.entry.contestant.name} {number_of_threads(place.threads)}"

    return Figure("4", f"Persistent and partitioned, {order}", takes, legend)


def _orders(count: int) -> Figure:
    def takes(place: Place, result: Result) -> bool:
        return place.threads == count and _one_by_one(result, PARTITIONED)

    title = f"Partitioned in different orders, {number_of_threads(count)}"
    return Figure("5", title, takes, _with_order)


def _aggregated(name: str, orders: Sequence[str], count: int) -> Figure:
    def takes(place: Place, result: Result) -> bool:
        entry = result.entry
        grouped = bool(entry.contestant.aggregate) and entry.marking is ONE_BY_ONE
        here = place.order in orders and place.threads == count
        return here and (grouped or _one_by_one(result, PARTITIONED))

    title = f"Aggregated, {' and '.join(orders)}, {number_of_threads(count)}"
    return Figure(name, title, takes, _with_order)


def _one_by_one(result: Result, *methods: str) -> bool:
    entry = result.entry
    return entry.contestant.method in methods and entry.marking is ONE_BY_ONE


def _with_order(place: Place, result: Result) -> str:
    return f"{result.entry.contestant.name} {place.order}"


# What partitioned sends have to reach, and in which cases: the numbers of ``--targets``.

KIBI = 1024
BUFFER = 1 << 20  # for which the targets hold
GOALS_REMARK = (
    "Reached: the median over the rounds of how many times as fast ours is. One thread, from left "
    "to right; psend, the MPI's own, is marked in the same way as ours."
)


@dataclass(frozen=True)
class Goal:
    """A bound for partitions of ``least`` bytes and more, below ``below``.

    ``marking``: of ours, None for any; ``mpi``: the MPI for which it holds, "" for any.
    """

    opponent: str
    bound: float
    least: int
    below: int = 1 << 62
    marking: Marking | None = None
    mpi: str = ""

    def holds(self, part: int, entry: Entry, vendor: str) -> bool:
        """Local. Whether a measurement has this target."""
        marked = self.marking is None or entry.marking is self.marking
        return self.least <= part < self.below and marked and self.mpi in ("", vendor)


GOALS = (
    Goal(SINGLE.method, 0.85, 64, marking=BULK),
    Goal(SINGLE.method, 0.85, 16 * KIBI, marking=ONE_BY_ONE),
    Goal(SINGLE.method, 0.60, 4 * KIBI, 16 * KIBI, ONE_BY_ONE),
    Goal(NATIVE.method, 1.8, 64 * KIBI, mpi="MPICH"),
    Goal(NATIVE.method, 50.0, 256, 257, mpi="Open MPI"),
    Goal(NATIVE.method, 0.95, 4 * KIBI),
)


def bound(opponent: str, part: int, entry: Entry, vendor: str) -> float | None:
    """Local. The highest bound that holds; None where there is no target."""
    bounds = [
        goal.bound
        for goal in GOALS
        if goal.opponent == opponent and goal.holds(part, entry, vendor)
    ]
    return max(bounds, default=None)


def narrowed(options: Options) -> Options:
    """Local. The options of the cases that have targets; ``all`` becomes what a user gets."""
    asked = AUTO if options.comm == ALL else options.comm
    changed = {
        "comm": f"{NATIVE.method},{asked}",
        "orders": [LEFT_TO_RIGHT],
        "threads": [1],
        "aggregates": [AGGREGATES[-1]],
        "compute": 0.0,
    }
    return options.but(**changed)


def goal_report(sweep: Sweep) -> Report:
    """Local. A row for every size of partitions, marking and opponent of ours."""
    options = sweep.options
    pattern = {"ranks": RANKS, "buffer_bytes": options.buffer, **facts(sweep.results)}
    given = options.settings()
    report = Report("bench partitioned --targets", given, pattern, remarks=[GOALS_REMARK])
    for place, found in sweep.results.items():
        for result in found:
            report.rows += _rows(place, result, found, options.buffer)
    report.rows += [_without_place(row) for row in reasons(sweep)]
    wrong = {each.entry.name for found in sweep.results.values() for each in found if each.wrong}
    report.remarks += [f"WRONG data: {name}" for name in sorted(wrong)]
    nothing = f"no targets are set for a buffer of {byte_count(options.buffer)}"
    report.remarks += conclusions(report.rows, nothing)
    return report


def _without_place(row: Row) -> Row:
    """Local. A reason without order and threads, of which there is one."""
    labels = {name: text for name, text in row.labels.items() if name not in ("order", "threads")}
    return Row(labels, reason=row.reason)


def _rows(place: Place, result: Result, others: list[Result], nbytes: int) -> Iterator[Row]:
    contestant = result.entry.contestant
    labels = {"partition": byte_count(place.part), **result.entry.labels}
    if contestant.aggregate is None or not result.times:
        return
    vendor = MPI.get_vendor()[0]
    for opponent, times in opponents_of(result, others).items():
        rounds = min(len(times), len(result.times))
        found = bound(opponent, place.part, result.entry, vendor)
        least = None if contestant.python else found
        yield compared(
            labels,
            result.times[:rounds],
            times[:rounds],
            Target(opponent, 1.0 if least is None else least),
            wanted=least is not None and nbytes == BUFFER,
            nbytes=nbytes,
        )


REMARK = (
    "Times go from a barrier until both ranks have completed, after a millisecond of the same that "
    "does not count; GB/s by their medians, those by the mean, as in the paper, are in the JSON "
    "file. Contestants take turns; per cent: median of the ratios to the single message of the "
    "same round. Every partition is checked with data that change from round to round."
)
THREADS = (
    "Threads mark under Python's lock, one at a time; they overlap only where MPI, NumPy or the "
    "simulated work let go of it."
)
FOREIGN = (
    "!: WRONG data, the receiver found others than were sent; the times say how long that took. "
    "psend is the MPI's own partitioned send as it is."
)


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; 1 where data were wrong with anything but the MPI's own."""
    if comm.size != RANKS:
        raise CommandError(
            f"it needs a sender and a receiver, {RANKS} ranks; the job has {comm.size}"
        )
    options = narrowed(options) if options.targets else options
    parts = partition_sizes(options)
    field = contestants(options.comm, options.aggregates, options.python)
    places = whole_sweep(
        parts, list(dict.fromkeys(options.orders)), list(dict.fromkeys(options.threads))
    )
    out = console(options.terminal) if comm.rank == 0 else None
    sweep = Sweep(options, field, options.seconds / len(places))
    store = Parts(comm, Report("bench partitioned", options.settings(), {}), options.json)
    with progress(out, "sending", len(places)) as tick:
        sweep.run(comm, places, tick, store)
    if comm.rank == 0 and options.picture is not None:
        for figure in figures(options):
            figure.draw(options.picture, sweep.results, options.buffer)
    report = goal_report(sweep) if options.targets else _report(sweep)
    report.finish(comm, out, options.json)
    missed = comm.bcast(options.strict and any_missed(report.rows))
    return int(missed or _failed(sweep))


def partition_sizes(options: Options) -> list[int]:
    """Local. Bytes of a partition, ascending; :class:`CommandError` for one that does not fit."""
    nbytes = options.buffer
    if options.sizes is None:
        found = [part for part in map(size, MESSAGE_SIZES.split()) if nbytes % part == 0]
        return found or [nbytes]
    for part in options.sizes:
        if nbytes % part:
            raise CommandError(f"partitions of {part} bytes do not divide a buffer of {nbytes}")
    return sorted(set(options.sizes))


def _report(sweep: Sweep) -> Report:
    """Local. Of the whole sweep."""
    options = sweep.options
    rows = [
        timed_row(place, result, found, options.buffer)
        for place, found in sweep.results.items()
        for result in found
        if not result.reason
    ]
    remarks = [REMARK]
    if any(place.threads > 1 for place in sweep.results):
        remarks.append(THREADS)
    if any(_fault(row) for row in rows):
        remarks.append(FOREIGN)
    pattern = {"ranks": RANKS, "buffer_bytes": options.buffer, **facts(sweep.results)}
    report = SweepReport("bench partitioned", options.settings(), pattern, remarks=remarks)
    report.rows = [*rows, *reasons(sweep)]
    report.lines = [entry.labels for entry in entries(sweep.contestants)]
    return report


def _failed(sweep: Sweep) -> bool:
    """Local. Whether data were wrong with a contestant that the MPI is not to be blamed for."""
    return any(
        result.wrong and not result.entry.contestant.foreign
        for found in sweep.results.values()
        for result in found
    )
