"""``onesided bench partitioned``: Listing 1 of the paper on partitioned communication in Open MPI.

Two ranks, a buffer in partitions, one side marks them ready; mechanisms, orders, numbers of threads
and sizes of partitions vary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any

from mpi4py import MPI
from rich.console import Group
from rich.table import Table

from onesided.apps.bench.store import Parts
from onesided.apps.cli.failures import CommandError
from onesided.apps.cli.options import ALL, Options, size
from onesided.apps.cli.progress import progress
from onesided.apps.cli.report import (
    NOTHING,
    Report,
    Row,
    any_missed,
    byte_count,
    compared,
    conclusions,
    duration,
    tables_over_bytes,
)
from onesided.apps.cli.statistics import Target
from onesided.apps.papers.figures import Figure, draw
from onesided.apps.papers.goals import Goal, wanted
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
    Contestant,
    Marking,
    contestants,
)
from onesided.apps.papers.partitioned_sweep import Measurement, whole_sweep
from onesided.apps.report.quantities import RATE, SIZE
from onesided.apps.report.result import METHOD, Entry
from onesided.apps.report.sections import Sweep
from onesided.apps.report.sections_papers import rate

# What the benchmark says: a row per place and contestant, and for a person a table over sizes.

WRONG = " !"
PLACE = ("partition", "order", "threads")
ENTRY = ("method", "aggregate", "marked")
COLUMNS = 16  # sizes in a table
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


class SweepReport(Report):
    """A report with a table per order and number of threads, a column per size of partitions."""

    def table(self, title: str) -> Group:
        """Local. Bandwidths; where there is computing, also the perceived ones."""
        tables: list[str | Table] = [f"{title}, {BANDWIDTH}", *self._tables(bandwidth)]
        if self.settings["compute"]:
            tables += [PERCEIVED, *self._tables(perceived)]
        return Group(*tables)

    def _tables(self, cell: Callable[[Row], str]) -> Iterator[Table]:
        places: dict[str, list[Row]] = {}
        for row in self.rows:
            if not row.reason:
                title = f"{row.labels['order']}, {number_of_threads(row.labels['threads'])}"
                places.setdefault(title, []).append(row)
        for title, rows in places.items():
            yield from tables_over_bytes(title, rows, ENTRY, "partition_bytes", cell, COLUMNS)


def number_of_threads(count: str) -> str:
    """Local. In words."""
    return "1 thread" if count == "1" else f"{count} threads"


def reasons(rows: Sequence[Row]) -> list[Row]:
    """Local. Why contestants were not made or not timed; the same reason is told once."""
    alike: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if row.reason:
            labels = {name: text for name, text in row.labels.items() if name not in PLACE}
            alike.setdefault((*labels.items(), row.reason), []).append(row)
    return [_reason(dict(key[:-1]), key[-1], found) for key, found in alike.items()]


def _reason(labels: dict[str, str], reason: str, rows: Sequence[Row]) -> Row:
    """Local. A row of :func:`reasons`; the times of rounds are told where there are any."""
    paces = [row.facts["round_s"] for row in rows if "round_s" in row.facts]
    if paces:
        least, most = duration(min(paces)), duration(max(paces))
        reason += f" (a round: {least if least == most else f'{least} to {most}'})"
    where = {
        name: ", ".join(dict.fromkeys(row.labels[name] for row in rows))
        for name in PLACE
        if name in rows[0].labels
    }
    return Row(where | labels, reason=reason)


def facts(rows: Sequence[Row]) -> dict[str, Any]:
    """Local. For JSON: how many checks there were, and where data were wrong."""
    checked = [row for row in rows if "wrong_partitions" in row.facts]
    return {
        "checked": len(checked),
        "wrong": [_name(row, *PLACE, *ENTRY) for row in checked if row.facts["wrong_partitions"]],
    }


def _name(row: Row, *names: str) -> str:
    """Local. The texts of labels that say something."""
    return " ".join(row.labels[name] for name in names if row.labels[name] != NOTHING)


# Figures 3 to 6 of the paper on partitioned communication: bandwidth over the partition size.

PERSISTENT, PARTITIONED = "persistent", NATIVE.method
MESSAGES = ("send", PERSISTENT, "isend")


def _figure(
    name: str, title: str, takes: Callable[[Entry], bool], names: Sequence[str]
) -> Figure:
    """Local. Bandwidths as in Listing 1, by the mean, of what is marked one by one."""
    sweep = Sweep("partition_bytes", SIZE.called("bytes of a partition"), rate, RATE, names)
    return Figure(
        name, title, sweep, lambda row: row.label("marked") == ONE_BY_ONE.name and takes(row)
    )


def figures(options: Options) -> list[Figure]:
    """Local. Those of the paper's four that a sweep has data for, the last one in two parts."""
    order, count = options.orders[0], str(options.threads[0])
    threads = number_of_threads(count)

    def mechanisms(row: Entry) -> bool:
        here = (row.label("order"), row.label("threads")) == (order, count)
        return here and row.method in (*MESSAGES, PARTITIONED)

    def by_threads(row: Entry) -> bool:
        return row.label("order") == order and row.method in (PERSISTENT, PARTITIONED)

    def by_order(row: Entry) -> bool:
        return row.label("threads") == count and row.method == PARTITIONED

    found = [
        _figure("3", f"Messages and partitions, {order}, {threads}", mechanisms, [METHOD]),
        _figure("4", f"Persistent and partitioned, {order}, by threads", by_threads,
               [METHOD, "threads"]),
        _figure("5", f"Partitioned in different orders, {threads}", by_order, [METHOD, "order"]),
    ]  # fmt: skip
    for name, schemes in (("6a", (LEFT_TO_RIGHT, NEIGHBORHOOD)), ("6b", (RANDOMIZED,))):
        orders = [each for each in schemes if each in options.orders]
        if orders:
            found.append(_aggregated(name, orders, count))
    return found


def _aggregated(name: str, orders: Sequence[str], count: str) -> Figure:
    def takes(row: Entry) -> bool:
        here = row.label("order") in orders and row.label("threads") == count
        return here and (row.label("aggregate") != NOTHING or row.method == PARTITIONED)

    title = f"Aggregated, {' and '.join(orders)}, {number_of_threads(count)}"
    return _figure(name, title, takes, [METHOD, "aggregate", "order"])


# What partitioned sends have to reach, and in which cases: the numbers of ``--targets``.

KIBI = 1024
BUFFER = 1 << 20  # for which the targets hold
GOALS_REMARK = (
    "Reached: the median over the rounds of how many times as fast ours is. One thread, from left "
    "to right; psend, the MPI's own, is marked in the same way as ours."
)


def _against(opponent: Contestant, marking: Marking | None = None) -> dict[str, list[str]]:
    marked = {} if marking is None else {"marked": [marking.name]}
    return {"opponent": [opponent.method], **marked}


#: How many times as fast as an opponent, by the bytes of a partition.
GOALS = (
    Goal(0.85, 64, labels=_against(SINGLE, BULK)),
    Goal(0.85, 16 * KIBI, labels=_against(SINGLE, ONE_BY_ONE)),
    Goal(0.60, 4 * KIBI, labels=_against(SINGLE, ONE_BY_ONE)),
    Goal(1.8, 64 * KIBI, mpi="MPICH", labels=_against(NATIVE)),
    Goal(50.0, 256, 256, "Open MPI", _against(NATIVE)),
    Goal(0.95, 4 * KIBI, labels=_against(NATIVE)),
)


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


def goal_report(options: Options, field: Sequence[Contestant], rows: Sequence[Row]) -> Report:
    """Local. A row for every size of partitions, marking and opponent of ours."""
    pattern = {"ranks": RANKS, "buffer_bytes": options.buffer, **facts(rows)}
    given = options.settings()
    report = Report("bench partitioned --targets", given, pattern, remarks=[GOALS_REMARK])
    ours = {each.labels["method"]: each.python for each in field if each.aggregate is not None}
    for row in rows:
        if not row.reason and row.labels["method"] in ours:
            report.rows += _compared(row, has_target=not ours[row.labels["method"]])
    for row in reasons(rows):
        labels = {name: row.labels[name] for name in row.labels if name not in PLACE[1:]}
        report.rows.append(Row(labels, reason=row.reason))
    wrong = {_name(row, *ENTRY) for row in rows if row.facts.get("wrong_partitions")}
    report.remarks += [f"WRONG data: {name}" for name in sorted(wrong)]
    nothing = f"no targets are set for a buffer of {byte_count(options.buffer)}"
    report.remarks += conclusions(report.rows, nothing)
    return report


def _compared(row: Row, *, has_target: bool) -> Iterator[Row]:
    """Local. One of ours against each opponent, in the rounds that both took part in."""
    labels = {name: row.labels[name] for name in ("partition", *ENTRY)}
    vendor, part = MPI.get_vendor()[0], row.facts["partition_bytes"]
    for opponent, times in row.against.items():
        rounds = min(len(times), len(row.times))
        least = None
        if has_target:
            least = wanted(GOALS, part, vendor, opponent=opponent, marked=row.labels["marked"])
        yield compared(
            labels,
            row.times[:rounds],
            times[:rounds],
            Target(opponent, 1.0 if least is None else least),
            wanted=least is not None and row.nbytes == BUFFER,
            nbytes=row.nbytes,
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
    measured = Report("bench partitioned", options.settings(), {})
    sweep = Measurement(options, field, options.seconds / len(places))
    with progress(comm, options, "sending", len(places)) as tick:
        sweep.run(comm, places, tick, Parts(comm, measured, options.json))
    rows = measured.rows
    draw(comm, options.picture, figures(options), rows)
    report = goal_report(options, field, rows) if options.targets else _report(options, rows)
    report.finish(comm, options)
    missed = comm.bcast(options.strict and any_missed(report.rows))
    foreign = {each.labels["method"] for each in field if each.foreign}
    return int(missed or any(
        row.facts.get("wrong_partitions") and row.labels["method"] not in foreign for row in rows
    ))  # fmt: skip


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


def _report(options: Options, rows: Sequence[Row]) -> Report:
    """Local. Of the whole sweep."""
    timed = [row for row in rows if not row.reason]
    remarks = [REMARK]
    if max(options.threads) > 1:
        remarks.append(THREADS)
    if any(_fault(row) for row in timed):
        remarks.append(FOREIGN)
    pattern = {"ranks": RANKS, "buffer_bytes": options.buffer, **facts(rows)}
    report = SweepReport("bench partitioned", options.settings(), pattern, remarks=remarks)
    report.rows = [*timed, *reasons(rows)]
    return report
