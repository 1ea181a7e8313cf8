"""``onesided bench collectives``: every persistent collective beside the MPI's own.

One operation and size after the other, in the style of OSU's micro-benchmarks: the MPI's blocking,
nonblocking and persistent forms, our methods and what ``auto`` makes of them take turns in an order
that changes, on the same buffers, and are checked before and after that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from mpi4py import MPI
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from onesided import collectives
from onesided.apps.bench.memory import receiving
from onesided.apps.bench.race import Contestant, Race, race, repeats
from onesided.apps.bench.selection import BASELINE, Candidate, named, prepare, release
from onesided.apps.bench.store import Part, Parts, Store
from onesided.apps.cli.failures import by_rank_0
from onesided.apps.cli.machine import library, versions
from onesided.apps.cli.options import Options
from onesided.apps.cli.progress import progress
from onesided.apps.cli.report import NOTHING, Report, Row, beside, byte_count, conclusions, duration
from onesided.apps.cli.statistics import Target, Verdict, paired, quartiles
from onesided.apps.papers.goals import Goal, wanted
from onesided.apps.papers.operations import ITEM, OPERATIONS, Operation, Place, contribution, ring
from onesided.apps.report.chart import save
from onesided.apps.report.result import Entry
from onesided.apps.report.sections_papers import over_blocking
from onesided.collectives import UnsupportedError, methods
from onesided.collectives.hardware import Layout, processor

BLOCKING, NONBLOCKING, PERSISTENT = "MPI blocking", "MPI nonblocking", "MPI persistent"
AUTO = "auto"
REGION = 1e-3  # seconds that are timed in a row, at least
WIDTH = 80  # columns of a table, at most
CELLS, JSON = "collectives.jsonl", "collectives.json"
REMARK = (
    "MPI blocking: its median time; the others: medians of the ratios to it of the same turn, ± "
    "half the distance of their quartiles; * is the fastest. Bytes of the vector of a rank, or of "
    "one block; times of the slowest rank, of calls in a row, or, where a rank may be through "
    "before others have begun, of calls after a barrier each."
)


#: What ``auto`` may take of the blocking call, on a node of two ranks.
GOALS = (
    Goal(0.25, 8, 1 << 10, "MPICH", {"operation": ["Allreduce"]}),
    Goal(0.5, 8, 1 << 10, "Open MPI", {"operation": ["Allreduce"]}),
    Goal(0.6, 1 << 20, 1 << 20, labels={"operation": ["Allreduce"]}),
    Goal(0.25, 0, 0, labels={"operation": ["Barrier"]}),
    Goal(0.4, 8, 1 << 20, labels={"operation": ["Allgatherv", "Reduce_scatter"]}),
)
GOAL_RANKS = 2


# -- what is measured ----------------------------------------------------------------------------


@dataclass
class Call:
    """How the operation is called once, and what is freed after all calls."""

    call: Callable[[], object]
    request: Any = None

    def free(self) -> None:
        """Collective."""
        if self.request is not None:
            self.request.Free()


@dataclass(frozen=True)
class Course:
    """An operation of a size on the ranks of ``comm``: its buffers; ``bound``: wanted of auto."""

    comm: MPI.Intracomm
    operation: Operation
    place: Place
    sent: Any
    received: Any
    info: Mapping[str, str]
    bound: float | None

    def make(self, name: str) -> Call:
        """Collective. One of the MPI's own, or of ours by this method."""
        operation = self.operation
        arguments = operation.arguments(self.place, self.sent, self.received)
        if name == BLOCKING:
            return Call(partial(getattr(self.comm, operation.name), *arguments))
        if name == NONBLOCKING:
            begin = getattr(self.comm, operation.nonblocking)
            return Call(lambda: begin(*arguments).Wait())
        if name == PERSISTENT:
            try:
                request = getattr(self.comm, operation.persistent)(*arguments)
            except NotImplementedError as error:
                raise UnsupportedError(f"this MPI has no MPI_{operation.persistent}") from error
        else:
            init = getattr(collectives, operation.persistent)
            request = init(self.comm, *arguments, method=name, info=self.info)
        start, wait = request.Start, request.Wait

        def call() -> None:
            start()
            wait()

        return Call(call, request)

    def wrong(self, call: Callable[[], object]) -> int:
        """Collective. How much is not as it should be after a call, on all ranks."""
        operation, place = self.operation, self.place
        held, right = operation.held(place), operation.expected(place)
        return operation.wrong(self.comm, call, self.received, held, right)

    def contestant(self, name: str, call: Callable[[], object]) -> Contestant:
        """Collective. Enough calls in a row for the clock."""
        count = repeats(self.comm, call, REGION)
        return Contestant(
            name,
            call,
            lambda: Verdict(float(self.wrong(call)), 0.0),
            count,
            apart=not self.operation.in_step,
        )

    def rows(self, names: Sequence[str], options: Options, seconds: float) -> list[Row]:
        """Collective. One for each contestant."""
        comm = self.comm
        made = prepare(comm, names, self.make)
        calls = made.made
        used = {name: getattr(each.request, "method", "") for name, each in calls.items()}
        try:
            field = [self.contestant(name, each.call) for name, each in calls.items()]
            ran = race(comm, field, iterations=options.iterations, seconds=seconds)
        finally:
            release(comm, made)
        return [self._row(each, ran, used.get(each.method, "")) for each in made]

    def _row(self, each: Candidate[Call], ran: Race, used: str) -> Row:
        """Local. A method that could not be made is told once for all sizes."""
        operation, name = self.operation.name, each.method
        if each.reason:
            return Row({"operation": operation, "method": name}, reason=each.reason)
        nbytes = ITEM * self.place.count
        row = Row(
            {"operation": operation, "bytes": byte_count(nbytes), "method": name},
            ran.times[name], nbytes=nbytes, verdict=ran.verdicts[name],
        )  # fmt: skip
        if name not in (BLOCKING, NONBLOCKING):
            row.setup = each.setup + each.freeing
        if name != BLOCKING:
            row.against = {BASELINE: ran.times[BLOCKING]}
        if name == AUTO:
            row.used = used
            if self.bound is not None:
                row.aim, row.wanted = Target(BASELINE, self.bound, least=False), True
        return row


def measure(
    comm: MPI.Intracomm,
    operation: Operation,
    nbytes: int,
    options: Options,
    asked: Sequence[str] | None,
    seconds: float,
    part: Part,
) -> None:
    """Collective. One operation of one size."""
    names = [BLOCKING, *contestants(operation, asked)]
    alone = len(Layout.of(comm).ranks_per_node) == 1 and comm.size == GOAL_RANKS
    bound = None
    if alone:
        bound = wanted(GOALS, nbytes, MPI.get_vendor()[0], operation=operation.name)
    with ExitStack() as stack:
        place = operation.place(comm, nbytes)
        on = stack.enter_context(ring(comm)) if operation.near else comm
        sent = contribution(place.rank, operation.sent(place))
        memory = receiving(on, options.memory, ITEM * operation.received(place), stack)
        info = dict(options.info)
        course = Course(on, operation, place, sent, memory.view(np.float64), info, bound)
        part.rows = course.rows(names, options, seconds)


def contestants(operation: Operation, asked: Sequence[str] | None) -> list[str]:
    """Local. All but the MPI's blocking call, in the order of the table, ``auto`` first."""
    known = methods(operation.group)
    if asked is None:
        names = [each.name for each in known.values() if each.candidate or each.chooses]
    else:
        names = [name for name in known if name in asked]
    return sorted([NONBLOCKING, PERSISTENT, *names], key=lambda name: name != AUTO)


# -- the command ---------------------------------------------------------------------------------


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; its exit code is 1 where wrong data came, or, with ``--strict``,
    where a target was missed."""
    names = _chosen(options)
    given = options.settings()
    for name in ("afresh", "strict"):
        del given[name]
    report = CollectivesReport("bench collectives", given, {"ranks": comm.size}, remarks=[REMARK])
    parts = _parts(comm, report, options)
    cells = _cells(comm, options)
    share = options.seconds / max(1, sum(name not in parts.done for name in cells))
    with progress(comm, options, "collectives", len(cells)) as tick:
        for name, (operation, nbytes) in cells.items():
            parts.add(name, partial(measure, comm, operation, nbytes, options, names, share))
            tick()
    conclude(report, Layout.of(comm))
    if options.picture is not None:
        by_rank_0(comm, partial(_draw, options.picture, report.rows))
    return report.end(comm, options)


def _draw(path: str, rows: Sequence[Row]) -> None:
    entries = [Entry.of(row.record()) for row in rows if row.against]
    title = f"Time over that of the MPI's blocking call ({library()})"
    save(path, title, over_blocking(entries, "{}"))


def conclude(report: Report, layout: Layout) -> None:
    """Local. A reason is told once for all sizes; remarks about wrong data and targets."""
    reasons = {tuple(row.labels.values()): row for row in report.rows if row.reason}
    report.rows = [row for row in report.rows if not row.reason] + list(reasons.values())
    wrong = [row for row in report.rows if row.verdict is not None and not row.verdict.passed]
    report.remarks += [f"WRONG: {' '.join(row.labels.values())}" for row in wrong]
    nothing = f"no targets are set for these operations and sizes on {layout}"
    report.remarks += conclusions(report.rows, nothing)


def _chosen(options: Options) -> list[str] | None:
    """Local. The methods that were asked for; :class:`CommandError` for an unknown one."""
    if options.comm is None:
        return None
    groups = dict.fromkeys(OPERATIONS[name].group for name in options.operations)
    known = dict.fromkeys(name for group in groups for name in methods(group))
    return named(options.comm, known, " of these operations")


def _cells(comm: MPI.Intracomm, options: Options) -> dict[str, tuple[Operation, int]]:
    """Local. By name; sizes that are the same for an operation are measured once."""
    return {
        f"{name} {count}": (operation, ITEM * count)
        for name in dict.fromkeys(options.operations)
        for operation in [OPERATIONS[name]]
        for nbytes in sorted(set(options.sizes))
        for count in [operation.place(comm, nbytes).count]
    }


def _parts(comm: MPI.Intracomm, report: Report, options: Options) -> Parts:
    """Collective. With what is there from before: in the folder, or beside the JSON file."""
    folder = None if options.output is None else Path(options.output).resolve()
    if folder is not None:
        options.json = options.json or str(folder / JSON)
    kept = folder / CELLS if folder else beside(options.json) if options.json else None
    if kept is not None and options.afresh and comm.rank == 0:
        kept.unlink(missing_ok=True)
    if folder is None:
        return Parts(comm, report, options.json)
    given = {name: getattr(options, name) for name in ("iterations", "memory", "comm")}
    place = {"ranks": comm.size, "mpi": library(), "processor": processor()}
    info = {"info": dict(options.info), "versions": versions()}
    settings = {**given, **place, **info}
    return Parts(comm, report, None, store=Store(folder / CELLS), settings=settings)


# -- what is said --------------------------------------------------------------------------------


class CollectivesReport(Report):
    """For a person tables of ratios over the sizes, one or several for every operation."""

    def table(self, title: str) -> RenderableType:
        """Local."""
        parts: list[RenderableType] = [Text(title)]
        for name in dict.fromkeys(row.labels["operation"] for row in self.rows):
            parts += tables(name, [row for row in self.rows if row.labels["operation"] == name])
        return Group(*parts)


def tables(operation: str, rows: Sequence[Row]) -> Iterator[Table]:
    """Local. A line for every size; as many columns side by side as there is room for."""
    names = list(dict.fromkeys(row.labels["method"] for row in rows))
    sizes: dict[str, dict[str, Row]] = {}
    for row in rows:
        if not row.reason:
            sizes.setdefault(row.labels["bytes"], {})[row.labels["method"]] = row
    columns: list[tuple[str, list[str]]] = []
    for name in names:
        found = [here.get(name) for here in sizes.values()]
        texts = [_text(row, here) for row, here in zip(found, sizes.values(), strict=True)]
        columns.append((name, texts))
        if name == AUTO:
            columns.append(("auto took", [row.used if row else "" for row in found]))
            if any(row is not None and row.wanted for row in found):
                columns.append(("wanted", [_goal(row) for row in found]))
    title = f"{operation}, over MPI_{operation}"
    shown: list[tuple[str, list[str]]] = []
    for column in columns:
        if shown and _width(_table(title, sizes, [*shown, column])) > WIDTH:
            yield _table(title, sizes, shown)
            title, shown = f"{operation}, continued", []
        shown.append(column)
    yield _table(title, sizes, shown)


def _text(row: Row | None, here: Mapping[str, Row]) -> str:
    """A ratio and half the distance of its quartiles; of the blocking call the time."""
    if row is None:
        return NOTHING
    if not _right(row):
        return "WRONG"
    mark = "*" if row is min(filter(_right, here.values()), key=_ratio) else " "
    if row.labels["method"] == BLOCKING:
        return f"{duration(median(row.times))}{mark}"
    first, middle, third = quartiles(paired(row.times, row.against[BASELINE]))
    digits = 2 if middle < 9.995 else 1 if middle < 99.95 else 0
    return f"{middle:.{digits}f}±{(third - first) / 2:.{digits}f}{mark}"


def _right(row: Row) -> bool:
    return row.verdict is None or row.verdict.passed


def _ratio(row: Row) -> float:
    return row.ratios.get(BASELINE, 1.0)


def _goal(row: Row | None) -> str:
    if row is None or row.aim is None:
        return ""
    return f"{row.aim.bound:.2f}{' missed' if row.missed else ''}"


def _table(title: str, sizes: Iterable[str], columns: Sequence[tuple[str, list[str]]]) -> Table:
    look: dict[str, Any] = {"box": None, "padding": (0, 2, 0, 0), "min_width": len(title)}
    table = Table(title=title, title_justify="left", **look)
    table.add_column("bytes", justify="right", vertical="bottom", no_wrap=True)
    for name, _ in columns:
        head = name.replace("-", "-\n").replace(" ", "\n")
        table.add_column(head, justify="right", no_wrap=True)
    for number_of_row, told in enumerate(sizes):
        table.add_row(told, *(cells[number_of_row] for _, cells in columns))
    return table


def _width(table: Table) -> int:
    return Console(width=1000).measure(table).maximum
