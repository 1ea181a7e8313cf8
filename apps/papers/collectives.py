"""``onesided bench collectives``: every persistent collective beside the MPI's own.

One operation and size after the other, in the style of OSU's micro-benchmarks: the MPI's blocking,
nonblocking and persistent forms, our methods and what ``auto`` makes of them take turns in an order
that changes, on the same buffers, and are checked before and after that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Self

import numpy as np
from mpi4py import MPI
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from onesided import collectives
from onesided.apps.bench.race import Contestant, race, repeats
from onesided.apps.bench.selection import BASELINE, named, prepare, release
from onesided.apps.bench.store import Store, Sweep
from onesided.apps.cli.machine import library, versions
from onesided.apps.cli.options import Options
from onesided.apps.cli.progress import console, progress
from onesided.apps.cli.report import (
    NOTHING,
    Report,
    Row,
    beside,
    byte_count,
    conclusions,
    duration,
)
from onesided.apps.cli.statistics import Target, Verdict, quartiles
from onesided.apps.papers.broadcast_sweep import MEMORY
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


@dataclass(frozen=True)
class Goal:
    """What ``auto`` may take, from and up to so many bytes, on a node of two ranks.

    ``mpi``: with which MPI; "" with any.
    """

    operations: Sequence[str]
    least: int
    most: int
    bound: float
    mpi: str = ""


GOALS = (
    Goal(["Allreduce"], 8, 1 << 10, 0.25, "MPICH"),
    Goal(["Allreduce"], 8, 1 << 10, 0.5, "Open MPI"),
    Goal(["Allreduce"], 1 << 20, 1 << 20, 0.6),
    Goal(["Barrier"], 0, 0, 0.25),
    Goal(["Allgatherv", "Reduce_scatter"], 8, 1 << 20, 0.4),
)
GOAL_RANKS = 2


def target(operation: str, nbytes: int, vendor: str) -> float | None:
    """Local. What is wanted; None where nothing is."""
    return next((goal.bound for goal in GOALS
                 if operation in goal.operations and goal.least <= nbytes <= goal.most
                 and goal.mpi in ("", vendor)), None)  # fmt: skip


# -- what is measured ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """An operation, and the bytes of its vector or block."""

    operation: str
    nbytes: int

    def record(self) -> dict[str, Any]:
        """Local. For JSON."""
        return asdict(self)

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """Local. What :meth:`record` wrote."""
        return cls(str(record["operation"]), int(record["nbytes"]))


@dataclass
class Found:
    """What came of a contestant: seconds by turn, of a set-up, what it did wrong, or why it could
    not take part. ``used``: the method of a request of ours."""

    times: Sequence[float] = ()
    setup: float | None = None
    wrong: int = 0
    used: str = ""
    reason: str = ""


@dataclass
class Outcome:
    """What came of a cell: what every contestant did, by name."""

    found: dict[str, Found]

    def record(self) -> dict[str, Any]:
        """Local. For JSON."""
        return asdict(self)

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """Local. What :meth:`record` wrote."""
        return cls({str(name): Found(**each) for name, each in record["found"].items()})


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
    """An operation of a size on the ranks of ``comm``: its buffers, and who takes part."""

    comm: MPI.Intracomm
    operation: Operation
    place: Place
    sent: Any
    received: Any
    info: Mapping[str, str]

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

    def outcome(self, names: Sequence[str], iterations: int, seconds: float) -> Outcome:
        """Collective. All contestants."""
        comm = self.comm
        made = prepare(comm, names, self.make, Call.free)
        calls = {each.method: each.made.call for each in made if each.made is not None}
        used = {each.method: getattr(each.made.request, "method", "")
                for each in made if each.made is not None}  # fmt: skip
        try:
            contestants = [self.contestant(name, call) for name, call in calls.items()]
            ran = race(comm, contestants, iterations=iterations, seconds=seconds)
        finally:
            release(comm, made, Call.free)
        found = {}
        for each in made:
            name = each.method
            if each.reason:
                found[name] = Found(reason=each.reason)
                continue
            setup = None if name in (BLOCKING, NONBLOCKING) else each.setup + each.freeing
            wrong = int(ran.verdicts[name].error)
            found[name] = Found(ran.times[name], setup, wrong, used[name])
        return Outcome(found)


def measured(
    comm: MPI.Intracomm,
    cell: Cell,
    options: Options,
    asked: Sequence[str] | None,
    seconds: float,
) -> Outcome:
    """Collective. One operation of one size."""
    operation = OPERATIONS[cell.operation]
    names = [BLOCKING, *contestants(operation, asked)]
    with ExitStack() as stack:
        place = operation.place(comm, cell.nbytes)
        on = stack.enter_context(ring(comm)) if operation.near else comm
        sent = contribution(place.rank, operation.sent(place))
        memory = MEMORY[options.memory](on, ITEM * operation.received(place), stack)
        course = Course(on, operation, place, sent, memory.view(np.float64), dict(options.info))
        return course.outcome(names, options.iterations, seconds)


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
    folder = None if options.output is None else Path(options.output).resolve()
    if folder is not None:
        options.json = options.json or str(folder / JSON)
    cells = _cells(comm, options)
    sweep = _sweep(comm, None if folder is None else folder / CELLS, options)
    out = console(options.terminal) if comm.rank == 0 else None
    share = options.seconds / max(1, sum(cell not in sweep.outcomes for cell in cells))
    outcomes = {}
    with progress(out, "collectives", len(cells)) as tick:
        for cell in cells:
            outcomes[cell] = sweep.cell(cell, partial(measured, comm, cell, options, names, share))
            tick()
    report = _report(comm, options, outcomes)
    if comm.rank == 0 and options.picture is not None:
        _draw(options.picture, report.rows)
    report.finish(comm, out, options.json)
    return report.code(comm, strict=options.strict)


def _chosen(options: Options) -> list[str] | None:
    """Local. The methods that were asked for; :class:`CommandError` for an unknown one."""
    if options.comm is None:
        return None
    groups = dict.fromkeys(OPERATIONS[name].group for name in options.operations)
    known = dict.fromkeys(name for group in groups for name in methods(group))
    return named(options.comm, known, " of these operations")


def _cells(comm: MPI.Intracomm, options: Options) -> list[Cell]:
    """Local. Sizes that are the same for an operation are measured once."""
    return list(dict.fromkeys(
        Cell(name, ITEM * OPERATIONS[name].place(comm, nbytes).count)
        for name in dict.fromkeys(options.operations)
        for nbytes in sorted(set(options.sizes))
    ))  # fmt: skip


def _sweep(
    comm: MPI.Intracomm, path: Path | None, options: Options
) -> Sweep[Cell, Outcome]:
    """Collective. With what is there from before: in the folder, or beside the JSON file."""
    if path is None and options.json is not None:
        path = beside(options.json)
    store = None if path is None or comm.rank else Store(path, Cell, Outcome)
    if store is not None and options.afresh:
        store.path.unlink(missing_ok=True)
    given = {name: getattr(options, name) for name in ("iterations", "memory", "comm")}
    place = {"ranks": comm.size, "mpi": library(), "processor": processor()}
    info = {"info": dict(options.info), "versions": versions()}
    return Sweep(comm, store, {**given, **place, **info})


# -- what is said --------------------------------------------------------------------------------


@dataclass
class CollectivesReport(Report):
    """For a person tables of ratios over the sizes, one or several for every operation."""

    outcomes: Mapping[Cell, Outcome] = field(default_factory=dict)
    wanted: Mapping[Cell, float | None] = field(default_factory=dict)

    def table(self, title: str) -> RenderableType:
        """Local."""
        parts: list[RenderableType] = [Text(title)]
        for name in dict.fromkeys(cell.operation for cell in self.outcomes):
            mine = {cell: found for cell, found in self.outcomes.items() if cell.operation == name}
            parts += tables(name, mine, self.wanted)
        return Group(*parts)


def _report(
    comm: MPI.Intracomm, options: Options, outcomes: Mapping[Cell, Outcome]
) -> CollectivesReport:
    """Local but for where the ranks are, which is Collective."""
    alone = len(Layout.of(comm).ranks_per_node) == 1 and comm.size == GOAL_RANKS
    vendor = MPI.get_vendor()[0]
    wanted = {cell: target(cell.operation, cell.nbytes, vendor) if alone else None
              for cell in outcomes}  # fmt: skip
    given = options.settings()
    for name in ("afresh", "strict"):
        del given[name]
    report = CollectivesReport("bench collectives", given, {"ranks": comm.size}, remarks=[REMARK],
                               outcomes=outcomes, wanted=wanted)  # fmt: skip
    reasons: dict[tuple[str, str], Row] = {}  # once for all sizes
    for cell, outcome in outcomes.items():
        for name, found in outcome.found.items():
            if found.reason:
                labels = {"operation": cell.operation, "method": name}
                reasons[cell.operation, name] = Row(labels, reason=found.reason)
            else:
                report.rows.append(_row(cell, name, outcome, wanted[cell]))
    report.rows += reasons.values()
    wrong = [row for row in report.rows if row.verdict is not None and not row.verdict.passed]
    report.remarks += [f"WRONG: {' '.join(row.labels.values())}" for row in wrong]
    nothing = f"no targets are set for these operations and sizes on {Layout.of(comm)}"
    report.remarks += conclusions(report.rows, nothing)
    return report


def _row(cell: Cell, name: str, outcome: Outcome, wanted: float | None) -> Row:
    found, blocking = outcome.found[name], outcome.found[BLOCKING].times
    row = Row(
        {"operation": cell.operation, "bytes": byte_count(cell.nbytes), "method": name},
        found.times, found.setup, cell.nbytes, verdict=Verdict(float(found.wrong), 0.0),
        used=found.used if name == AUTO else "",
    )  # fmt: skip
    if name != BLOCKING:
        row.against = {BASELINE: blocking}
    if name == AUTO and wanted is not None:
        row.aim, row.wanted = Target(BASELINE, wanted, least=False), True
    return row


def ratios(found: Found, blocking: Found) -> tuple[float, float, float]:
    """Local. The quartiles of the times over those of the same turns."""
    pairs = zip(found.times, blocking.times, strict=True)
    return quartiles([one / other for one, other in pairs])


def tables(
    operation: str, outcomes: Mapping[Cell, Outcome], wanted: Mapping[Cell, float | None]
) -> Iterator[Table]:
    """Local. A line for every size; as many columns side by side as there is room for."""
    columns: list[tuple[str, list[str]]] = []
    names = list(dict.fromkeys(name for each in outcomes.values() for name in each.found))
    for name in names:
        columns.append((name, [_text(name, each) for each in outcomes.values()]))
        if name != AUTO:
            continue
        columns.append(("auto took", [each.found[name].used for each in outcomes.values()]))
        if any(wanted[cell] is not None for cell in outcomes):
            columns.append(("wanted", [_goal(wanted[c], each) for c, each in outcomes.items()]))
    sizes = [byte_count(cell.nbytes) for cell in outcomes]
    title = f"{operation}, over MPI_{operation}"
    shown: list[tuple[str, list[str]]] = []
    for column in columns:
        if shown and _width(_table(title, sizes, [*shown, column])) > WIDTH:
            yield _table(title, sizes, shown)
            title, shown = f"{operation}, continued", []
        shown.append(column)
    yield _table(title, sizes, shown)


def _text(name: str, outcome: Outcome) -> str:
    """A ratio and half the distance of its quartiles; of the blocking call the time."""
    found, blocking = outcome.found[name], outcome.found[BLOCKING]
    if found.reason:
        return NOTHING
    if found.wrong:
        return "WRONG"
    best = min((each for each in outcome.found.values() if each.times and not each.wrong),
               key=lambda each: ratios(each, blocking)[1])  # fmt: skip
    mark = "*" if found is best else " "
    if name == BLOCKING:
        return f"{duration(median(found.times))}{mark}"
    first, middle, third = ratios(found, blocking)
    digits = 2 if middle < 9.995 else 1 if middle < 99.95 else 0
    return f"{middle:.{digits}f}±{(third - first) / 2:.{digits}f}{mark}"


def _goal(wanted: float | None, outcome: Outcome) -> str:
    if wanted is None or not outcome.found[AUTO].times:
        return ""
    reached = ratios(outcome.found[AUTO], outcome.found[BLOCKING])[1]
    return f"{wanted:.2f}{' missed' if reached > wanted else ''}"


def _table(title: str, sizes: Sequence[str], columns: Sequence[tuple[str, list[str]]]) -> Table:
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


def _draw(path: str, rows: Sequence[Any]) -> None:
    """Local. A panel for every operation, a line for every contestant."""
    entries = [Entry.of(row.record()) for row in rows if row.against]
    title = f"Time over that of the MPI's blocking call ({library()})"
    save(path, title, over_blocking(entries, "{}"))
