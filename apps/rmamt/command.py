"""``onesided bench rma-mt``: the micro-benchmarks of paper 002, multi-threaded and one-sided.

Cells are measured in jobs of their own, and kept in a folder as soon as they are there: where a job
fails, the cell that it was at is counted as a failure, and another job goes on; where the whole
sweep is killed, the next one goes on.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from mpi4py import MPI

from onesided.apps import jobs
from onesided.apps.evidence.job import results_folder, signals_interrupt
from onesided.apps.failures import CommandError
from onesided.apps.fft import FAILED
from onesided.apps.foreign import ForeignError
from onesided.apps.machine import cores, library, versions
from onesided.apps.options import settings
from onesided.apps.picture import NEEDS, save_spreads
from onesided.apps.progress import console, progress
from onesided.apps.report import check_json
from onesided.apps.reporting.result import Entry
from onesided.apps.rmamt.cell import Cell, Outcome
from onesided.apps.rmamt.compiled import build
from onesided.apps.rmamt.figures import panels
from onesided.apps.rmamt.goals import goals
from onesided.apps.rmamt.matrix import cells_of, check, plan_of, usual
from onesided.apps.rmamt.plan import Plan
from onesided.apps.rmamt.rows import MatrixReport, failures, failures_remark, row
from onesided.apps.rmamt.sweep import Sweep
from onesided.apps.store import Store
from onesided.collectives.hardware import processor

CELLS, LOOP, JSON = "cells.jsonl", "rma_loop.so", "rma-mt.json"
LEAST_RANKS = 2
QUICK_SECONDS = 270.0  # for all jobs of a quick run
NOT_KEPT = ("output", "afresh", "retry", "second", "batch", "job_ranks")
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


def run(comm: MPI.Intracomm, options: Namespace) -> int:
    """Local. The command; its exit code is 1 where a cell failed."""
    if jobs.in_job():
        raise CommandError(
            "bench rma-mt starts its own jobs: run it without mpiexec, with --ranks N"
        )
    if options.job_ranks < LEAST_RANKS:
        raise CommandError(
            f"--ranks {options.job_ranks}: messages go from one rank to another, it needs "
            f"{LEAST_RANKS} at least"
        )
    folder = results_folder(options.output)
    options.json = options.json or str(folder / JSON)
    cells, plan = cells_of(options), plan_of(options)
    check(cells, options)
    second = None if options.second is None else _second(Path(options.second))
    check_json(comm, options)
    store = _store(folder, options, plan)
    compiled, lack = _loop(folder)
    deadline = time.monotonic() + QUICK_SECONDS if options.quick else None
    out = console(options.terminal)
    sweep = Sweep(store, plan, compiled, deadline)
    with signals_interrupt():
        try:
            with progress(out, "measuring", len(cells)) as tick:
                steps = _steps(tick, len(store.outcomes(cells)))
                sweep.run(cells, options.job_ranks, int(usual(options, "batch")), steps)
        finally:  # after an interrupt, too
            outcomes = store.outcomes(cells)
            report = _report(options, plan, cells, outcomes, store.machine())
            report.remarks += [f"No loop in C: {lack}"] if lack else []
            report.remarks += _draw(folder, report, second)
            report.finish(comm, out, options.json)
    failed = any(each.kind for each in outcomes.values()) or len(outcomes) < len(cells)
    return FAILED if failed else 0


def _steps(tick: Callable[[], None], done: int) -> Callable[[int], None]:
    """Local. What is called with the number of cells that are done, some of them before."""

    def steps(count: int) -> None:
        for _ in range(count):
            tick()

    steps(done)
    return steps


def _store(folder: Path, options: Namespace, plan: Plan) -> Store[Cell, Outcome]:
    """Local. What was measured before, of the same settings."""
    store = Store(folder / CELLS, Cell, Outcome)
    if options.afresh:
        store.path.unlink(missing_ok=True)
    software = versions()
    store.begin(
        {
            "ranks": options.job_ranks,
            "plan": plan.record(),
            "mpi": library(),
            "mpi4py": software.get("mpi4py", ""),
            "python": software["python"],
            "processor": processor(),
        }
    )
    if options.retry:
        store.forget_failures()
    return store


def _loop(folder: Path) -> tuple[str, str]:
    """Local. Where the loop in C is, or why there is none."""
    path = folder / LOOP
    try:
        build(path)
    except ForeignError as error:
        return "", str(error)
    return str(path), ""


def _report(
    options: Namespace,
    plan: Plan,
    cells: Sequence[Cell],
    outcomes: Mapping[Cell, Outcome],
    place: Mapping[str, object],
) -> MatrixReport:
    """Local. Of all cells that were measured, now or before; ``place``: where."""
    given = settings(Namespace(**vars(options), info=[]))
    for name in NOT_KEPT:
        given.pop(name, None)
    pattern = {
        "ranks": options.job_ranks,
        **plan.record(),
        "failures": failures(outcomes),
    }
    report = MatrixReport("bench rma-mt", given, pattern, remarks=[REMARK, LOCK])
    report.measured = [row(cell, outcomes[cell]) for cell in cells if cell in outcomes]
    report.rows, report.place = list(report.measured), place
    report.remarks += [failures_remark(outcomes), *goals(outcomes)]
    missing = len(cells) - len(outcomes)
    if missing:
        report.remarks.append(
            f"{missing} of {len(cells)} cells were not measured; the same command goes on."
        )
    return report


def _draw(
    folder: Path, report: MatrixReport, second: tuple[list[Entry], str] | None
) -> list[str]:
    """Local. Figures 1 to 7 as images; a sentence where they cannot be drawn."""
    entries = [Entry.of(each.record()) for each in report.measured if not each.reason]
    if find_spec("matplotlib") is None:
        return [f"no images of Figures 1 to 7: that {NEEDS}"]
    others, name = (entries, "") if second is None else second
    for panel in panels(entries, others, cores(), name):
        lines = {name: _columns(points) for name, points in panel.lines.items()}
        path = str(folder / f"figure-{panel.name}.png")
        across, up = panel.across, panel.up
        save_spreads(path, panel.title, (across.name, up.name), (across.tick, up.tick), lines)
    return []


def _columns(
    points: Sequence[tuple[float, float, float]],
) -> tuple[list[float], list[float], list[float]]:
    x, y, spread = zip(*points, strict=True)
    return list(x), list(y), list(spread)


def _second(folder: Path) -> tuple[list[Entry], str]:
    """Local. The rows of another folder, and the MPI that they were measured with."""
    store = Store(folder / CELLS, Cell, Outcome)
    outcomes = store.outcomes()
    if not outcomes:
        raise CommandError(f"--second {folder}: no cells of bench rma-mt in this folder")
    rows = (row(cell, each) for cell, each in outcomes.items())
    name = str((store.settings() or {}).get("mpi", ""))
    return [Entry.of(each.record()) for each in rows if not each.reason], name
