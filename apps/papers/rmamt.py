"""``onesided bench rma-mt``: the micro-benchmarks of paper 002, multi-threaded and one-sided.

Cells are measured in jobs of their own, and kept in a folder as soon as they are there: where a job
fails, the cell that it was at is counted as a failure, and another job goes on; where the whole
sweep is killed, the next one goes on.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

from mpi4py import MPI

from onesided.apps.bench.foreign import ForeignError
from onesided.apps.bench.job import Ended, run_job, signals_interrupt
from onesided.apps.bench.store import Part, Store
from onesided.apps.cli.failures import FAILED, USAGE, CommandError
from onesided.apps.cli.machine import cores, library, versions
from onesided.apps.cli.options import Options
from onesided.apps.cli.progress import progress
from onesided.apps.cli.report import NEEDS_MATPLOTLIB, Report, Row, byte_count
from onesided.apps.papers.rmamt_cell import (
    SINGLE,
    Batch,
    Cell,
    Outcome,
    Plan,
    Task,
    batches,
    cells_of,
    check,
    plan_of,
)
from onesided.apps.papers.rmamt_compiled import build
from onesided.apps.papers.rmamt_rows import MatrixReport, failures, failures_remark, row
from onesided.apps.papers.rmamt_worker import unbound
from onesided.apps.report.chart import save
from onesided.apps.report.result import Entry
from onesided.apps.report.threads import panels
from onesided.collectives.hardware import processor

# All cells, in jobs of their own: a job that fails costs the cell that it was at.

CRASH, ERROR, HANG = "crash", "error", "hang"
STARTING = 60.0  # seconds for a job to begin and to end
LEVEL = "MPI4PY_RC_THREAD_LEVEL"  # mpi4py initializes MPI with it
COMMAND = "bench rma-mt-cells"
LEAST = 5.0  # seconds below which no job is begun
SIGNALS = range(129, 160)  # exit codes of processes that a signal has ended
#: What a job prints where a cell takes too long, and where a signal or MPI itself ends it.
LATE = re.compile(r"^Timeout \(\d", re.MULTILINE)
FATAL = re.compile(
    r"Fatal Python error|Segmentation fault|Assertion (.* )?failed|"
    r"signal (6|7|8|11)\b|SIG(SEGV|ABRT)",
    re.IGNORECASE,
)
#: The last line of what Python prints about an error that ends a rank.
RAISED = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception)\b.*$", re.MULTILINE)


@dataclass
class Sweep:
    """Local. Measures in jobs what the store has not; ``tick`` is called with numbers of cells.

    ``deadline``: of :func:`time.monotonic`, for a quick run.
    """

    store: Store
    plan: Plan
    library: str
    deadline: float = float("inf")

    def run(
        self, cells: Sequence[Cell], asked: int, most: int, tick: Callable[[int], None]
    ) -> None:
        """All cells that are not there. ``asked``: ranks; ``most``: cells of a job."""
        for batch in batches(self._missing(cells), asked, most):
            self._batch(batch, tick)

    def rows(self, cells: Sequence[Cell]) -> dict[Cell, Row]:
        """Of those that are there."""
        known = self.store.parts()
        return {cell: known[cell.name].rows[0] for cell in cells if cell.name in known}

    def _missing(self, cells: Sequence[Cell]) -> list[Cell]:
        known = self.store.parts()
        return [cell for cell in cells if cell.name not in known]

    def _batch(self, batch: Batch, tick: Callable[[int], None]) -> None:
        """Jobs until all cells are there, each after the cell where the last one failed."""
        waiting = list(batch.cells)
        while waiting:
            left = self.deadline - time.monotonic()
            if left < LEAST:
                tick(len(waiting))
                return  # they are missing: another run goes on with them
            ended = self._job(batch, waiting, left)
            rest = self._missing(waiting)
            if rest and self.deadline - time.monotonic() >= LEAST:
                if ended.code == USAGE:
                    raise CommandError(ended.reason)
                log = self.store.path.with_suffix(".log")
                printed = log.read_text(errors="replace") if log.exists() else ""
                failed = row(rest[0], failure(ended, printed))
                self.store.add(rest[0].name, Part([failed]))
                rest = rest[1:]
            tick(len(waiting) - len(rest))
            waiting = rest

    def _job(self, batch: Batch, cells: Sequence[Cell], left: float) -> Ended:
        task = self.store.path.parent / "cells.json"
        Task(cells, self.plan, self.library).write(task)
        words = [*COMMAND.split(), str(task), "-o", str(self.store.path)]
        words += ["--ranks", str(batch.ranks)]
        limit = min(left, STARTING + len(cells) * self.plan.limit)
        try:
            variables = {LEVEL: batch.level, **unbound(os.environ)}
            return run_job(words, batch.ranks, None, limit, variables)
        finally:
            task.unlink(missing_ok=True)


def failure(ended: Ended, printed: str) -> Outcome:
    """Local. Of which kind it is that a job did not come to the end of a cell."""
    if ended.code is None or LATE.search(printed):
        return Outcome(kind=HANG, reason="it did not come to its end in time")
    if ended.code in SIGNALS or FATAL.search(printed):
        found = FATAL.search(printed)
        words = found.group(0) if found else f"ended by signal {ended.code - 128}"
        return Outcome(kind=CRASH, reason=f"{words} ({ended.reason})")
    raised = RAISED.findall(printed)
    words = raised[0] if raised else ended.reason
    return Outcome(kind=ERROR, reason=words or "the job ended before its last cell")


# What one thread has to reach beside the same loop in C, and what a thread of its own costs.

BANDWIDTH = 0.95  # of that of C, at least, at messages of :data:`LARGE` bytes
LARGE = 1 << 20
RATE = 0.9  # of that of a bare loop, at least, of a thread that is woken for many messages


@dataclass(frozen=True)
class Comparison:
    """A sentence about Put, with a number for each synchronization.

    ``share``: which value of a row, or with ``over`` one over it. ``threads``: 0 for the main
    thread of a job without others. ``size``: of the messages, 0 for the smallest that there are.
    ``least``: what is wanted, 0 for nothing.
    """

    words: str
    pattern: str
    threads: int
    share: str
    over: bool
    size: int = 0
    least: float = 0.0

    def reached(self, rows: Mapping[Cell, Row]) -> dict[str, float]:
        """Local. By synchronization, where there are data."""
        size, found = self._size(rows), {}
        for cell, each in rows.items():
            ratio = each.values[self.share] if self._takes(cell, size) else None
            if ratio:
                found[cell.sync] = 1.0 / ratio if self.over else ratio
        return found

    def sentence(self, rows: Mapping[Cell, Row]) -> str:
        """Local. Empty where there are no data for it."""
        found = self.reached(rows)
        told = ", ".join(f"{name} {ratio:.2f}" for name, ratio in found.items())
        wanted = f" (at least {self.least})" if self.least else ""
        words = self.words.format(size=byte_count(self._size(rows)))
        return f"{words}{wanted}: {told}." if found else ""

    def _size(self, rows: Mapping[Cell, Row]) -> int:
        return self.size or min((cell.size for cell in rows), default=0)

    def _takes(self, cell: Cell, size: int) -> bool:
        alone = self.threads > 0 or cell.level == SINGLE
        wanted = (self.pattern, "put", self.threads, size)
        return alone and (cell.pattern, cell.op, cell.threads, cell.size) == wanted


GOALS = (
    Comparison(
        "Bandwidth of Put at {size}, one thread, over that of the same loop in C",
        "bandwidth", 0, "alone_over_c", over=True, size=LARGE, least=BANDWIDTH,
    ),
    Comparison(
        "Message rate of Put at {size}, one thread: C's is so many times that of mpi4py",
        "rate-pairs", 0, "alone_over_c", over=False,
    ),
    Comparison(
        "Message rate of Put at {size}, one thread that the main thread wakes, over that of a "
        "bare loop of mpi4py's calls on the main thread",
        "rate-pairs", 1, "over_alone", over=True, least=RATE,
    ),
)  # fmt: skip


def goals(rows: Mapping[Cell, Row]) -> list[str]:
    """Local. A sentence for each goal that there are data for."""
    good = _good(rows)
    return [words for goal in GOALS if (words := goal.sentence(good))]


def any_goal_missed(rows: Mapping[Cell, Row]) -> bool:
    """Local. Whether a synchronization does not reach what is wanted."""
    good = _good(rows)
    return any(ratio < goal.least for goal in GOALS for ratio in goal.reached(good).values())


def _good(rows: Mapping[Cell, Row]) -> dict[Cell, Row]:
    return {cell: each for cell, each in rows.items() if not each.reason}


CELLS, LOOP, JSON = "cells.jsonl", "rma_loop.so", "rma-mt.json"
LEAST_RANKS = 2
QUICK_SECONDS = 270.0  # for all jobs of a quick run
NOT_KEPT = ("afresh", "strict", "retry", "second", "batch")
REMARK = (
    "Times go from before an epoch is opened until it is closed, by the slowest rank, without a "
    "round to warm up; mean of the runs, and their standard deviation. Every message was compared "
    "with what was sent. The ranks of a host share its cores, a rank's threads stay on its own, "
    "unless the launcher has bound them."
)
LOCK = (
    "Python: the part of the time that goes where every thread makes its calls in C, outside of "
    "Python's lock; its lock: what is left of that without the time of the calls themselves, which "
    "the main thread alone takes more in Python than in C. In the JSON file over_alone: the time "
    "over that of the main thread alone; alone_over_c: that of the main thread over C's."
)


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Local. The command; 1 where a cell failed, with ``--strict`` where a target was missed."""
    if options.ranks < LEAST_RANKS:
        raise CommandError(
            f"--ranks {options.ranks}: messages go from one rank to another, it needs "
            f"{LEAST_RANKS} at least"
        )
    folder = Path(options.output).resolve()
    options.json = options.json or str(folder / JSON)
    cells, plan = cells_of(options), plan_of(options)
    check(cells, options)
    second = ([], "") if options.second is None else _second(Path(options.second))
    store = _store(folder, options, plan)
    sweep = Sweep(store, plan, str(folder / LOOP))
    if options.quick:
        sweep.deadline = time.monotonic() + QUICK_SECONDS
    lack = []
    try:
        build(folder / LOOP)
    except ForeignError as error:
        sweep.library, lack = "", [f"No loop in C: {error}"]
    with signals_interrupt():
        try:
            with progress(comm, options, "measuring", len(cells)) as tick:

                def ticks(count: int) -> None:
                    for _ in range(count):
                        tick()

                ticks(len(sweep.rows(cells)))
                sweep.run(cells, options.ranks, options.batch, ticks)
        finally:  # after an interrupt, too
            rows = sweep.rows(cells)
            report = _report(options, plan, rows, len(cells) - len(rows))
            report.place = store.machine()
            report.remarks += [*lack, *_draw(folder, report, *second)]
            report.finish(comm, options)
    failed = any(each.reason for each in rows.values()) or len(rows) < len(cells)
    missed = options.strict and any_goal_missed(rows)
    return FAILED if failed or missed else 0


def _store(folder: Path, options: Options, plan: Plan) -> Store:
    """Local. What was measured before, of the same settings."""
    store = Store(folder / CELLS)
    if options.afresh:
        store.path.unlink(missing_ok=True)
    software = versions()
    store.begin(
        {
            "ranks": options.ranks,
            "plan": asdict(plan),
            "mpi": library(),
            "mpi4py": software.get("mpi4py", ""),
            "python": software["python"],
            "processor": processor(),
        }
    )
    if options.retry:
        store.forget_failures()
    return store


def _report(
    options: Options, plan: Plan, rows: Mapping[Cell, Row], missing: int
) -> MatrixReport:
    """Local. Of all cells that were measured, now or before."""
    given = {name: each for name, each in options.settings().items() if name not in NOT_KEPT}
    pattern = {"ranks": options.ranks, **asdict(plan), "failures": failures(rows)}
    report = MatrixReport("bench rma-mt", given, pattern, list(rows.values()), [REMARK, LOCK])
    report.remarks += [failures_remark(rows), *goals(rows)]
    if missing:
        report.remarks.append(
            f"{missing} of {missing + len(rows)} cells were not measured; the same command goes on."
        )
    return report


def _draw(folder: Path, report: Report, second: list[Entry], name: str) -> list[str]:
    """Local. Figures 1 to 7 as images; a sentence where they cannot be drawn.

    ``second``: of Figures 5 to 7, measured with the MPI ``name``; without any, the same.
    """
    if find_spec("matplotlib") is None:
        return [f"no images of Figures 1 to 7: that {NEEDS_MATPLOTLIB}"]
    entries = _entries(report.rows)
    for number, lines in panels(entries, second or entries, cores(), name).items():
        save(str(folder / f"figure-{number}.png"), lines.title, [lines])
    return []


def _second(folder: Path) -> tuple[list[Entry], str]:
    """Local. The rows of another folder, and the MPI that they were measured with."""
    store = Store(folder / CELLS)
    parts = store.parts()
    if not parts:
        raise CommandError(f"--second {folder}: no cells of bench rma-mt in this folder")
    entries = _entries([part.rows[0] for part in parts.values()])
    return entries, str((store.settings() or {}).get("mpi", ""))


def _entries(rows: Sequence[Row]) -> list[Entry]:
    return [Entry.of(each.record()) for each in rows if not each.reason]
