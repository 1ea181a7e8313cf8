"""RMA-MT without MPI: jobs that fail, rows, goals, figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onesided.apps.bench.job import Ended
from onesided.apps.bench.store import Part, Store
from onesided.apps.cli.failures import CommandError
from onesided.apps.cli.options import Parser
from onesided.apps.papers import options as given
from onesided.apps.papers import rmamt as sweeping
from onesided.apps.papers.rmamt import Sweep, any_goal_missed, failure, goals
from onesided.apps.papers.rmamt_cell import (
    ALONE,
    RELEASED,
    THREADS,
    TWO_SIDED,
    C,
    Cell,
    Outcome,
    Plan,
    Run,
    Task,
    cells_of,
)
from onesided.apps.papers.rmamt_epochs import SYNCHRONISATIONS
from onesided.apps.papers.rmamt_rows import failures, failures_remark, row
from onesided.apps.report.result import Entry
from onesided.apps.report.threads import best, panels, per_core

PLAN = Plan(64, 1 << 20, 6, 2, 10, 0.1, 5.0)
CELL = Cell("latency", "fence", "put", 2, 1024, "multiple")


def options(*words):
    parser = Parser()
    given.bench_rma_mt(parser)
    return parser.parse_args(["-o", "folder", *words])


def measured(mean, *, wrong=0, kind="", **loops):
    found = {name: [Run(value, value)] * 2 for name, value in loops.items()}
    return Outcome(8, 8192, 1, 20, wrong, {THREADS: [Run(mean, mean)] * 2, **found}, kind)


# -- failures --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ended", "printed", "kind"),
    [
        (Ended("ended", 9.0, "not done after 9 s"), "", "hang"),
        (Ended("failed", 9.0, "exit code 1", 1), "x\nTimeout (0:00:05)!\nThread", "hang"),
        (Ended("failed", 1.0, "exit code 139", 139), "", "crash"),
        (Ended("failed", 1.0, "exit code 1", 1), "Fatal Python error: Aborted", "crash"),
        (Ended("failed", 1.0, "exit code 1", 1), "Assertion `x == y' failed.", "crash"),
        (Ended("failed", 1.0, "exit code 1", 1), "Assertion failed in file ch4.c", "crash"),
        (Ended("failed", 1.0, "exit code 1", 1), "MPI_ERR_RMA_RANGE", "error"),
        (Ended("done", 1.0, code=0), "", "error"),
    ],
)
def test_failures_are_of_a_kind(ended, printed, kind):
    found = failure(ended, printed)
    assert found.kind == kind
    assert found.reason


def test_an_error_is_told_in_python_s_words():
    printed = "Traceback\n  File x\nmpi4py.MPI.Exception: MPI_ERR_RANK: no such rank\nAbort(1)\n"
    found = failure(Ended("failed", 1.0, "exit code 1: Abort(1)", 1), printed)
    assert found.reason == "mpi4py.MPI.Exception: MPI_ERR_RANK: no such rank"


class Jobs:
    """In the place of jobs: measures cells into the file, and fails at some of them."""

    def __init__(self, path, fatal):
        self.path, self.fatal, self.given = path, fatal, []

    def __call__(self, words, ranks, target, limit, variables):
        task = Task.read(Path(words[2]))
        self.given.append((len(task.cells), ranks, variables["MPI4PY_RC_THREAD_LEVEL"]))
        store = Store(self.path)
        for cell in task.cells:
            if cell in self.fatal:
                return Ended("failed", 1.0, "exit code 139: it is gone", 139)
            store.add(cell.name, Part([row(cell, measured(1.0))]))
        return Ended("done", 1.0, code=0)


def test_a_crash_costs_one_cell(tmp_path, monkeypatch):
    cells = [Cell("latency", "fence", "put", 1, size, "multiple") for size in range(1, 8)]
    store, ticks = Store(tmp_path / "cells.jsonl"), []
    jobs = Jobs(store.path, {cells[2], cells[6]})
    monkeypatch.setattr(sweeping, "run_job", jobs)
    Sweep(store, PLAN, "").run(cells, 2, 5, ticks.append)
    assert [count for count, _, _ in jobs.given] == [5, 2, 2]
    assert {level for _, _, level in jobs.given} == {"multiple"}
    found = Sweep(store, PLAN, "").rows(cells)
    assert list(found) == cells
    crashed = [cell for cell in cells if found[cell].reason.startswith("crash: ")]
    assert crashed == [cells[2], cells[6]]
    assert sum(ticks) == 7
    Sweep(store, PLAN, "").run(cells, 2, 5, ticks.append)
    assert len(jobs.given) == 3


def test_a_mistake_in_what_was_asked_for_ends_the_sweep(tmp_path, monkeypatch):
    store = Store(tmp_path / "cells.jsonl")
    ended = Ended("failed", 1.0, "exit code 2: onesided: no mpiexec", 2)
    monkeypatch.setattr(sweeping, "run_job", lambda *_: ended)
    with pytest.raises(CommandError, match="no mpiexec"):
        Sweep(store, PLAN, "").run([CELL], 2, 5, lambda count: None)
    assert store.parts() == {}


def rows(outcomes):
    return {cell: row(cell, found) for cell, found in outcomes.items()}


def test_failures_are_counted():
    found = rows({
        CELL: measured(1.0),
        Cell("latency", "lock", "get", 1, 16, "multiple"): Outcome(kind="crash", reason="gone"),
        Cell("latency", "lock", "put", 4, 1 << 20, "multiple"): measured(1.0, kind="wrong data"),
    })  # fmt: skip
    counted = failures(found)
    assert (counted["cells"], counted["failed"]) == (3, 2)
    assert counted["by_kind"] == {"crash": 1, "wrong data": 1}
    assert counted["by_threads"] == {"1": 1, "4": 1}
    assert failures_remark(found) == (
        "2 of 3 cells FAILED: crash 1, wrong data 1; 50% of Get, 50% of one thread, "
        "50% of messages below 64 KiB."
    )
    assert list(found.values())[1].reason == "crash: gone"
    assert "no crash" in failures_remark(rows({CELL: measured(1.0)}))


# -- rows and figures ------------------------------------------------------------------------------


def test_a_row_has_means_spreads_and_what_the_lock_costs():
    found = measured(2.0, **{ALONE: 0.75, RELEASED: 0.25, C: 0.5})
    found.loops[THREADS] = [Run(2.0, 1.0), Run(4.0, 1.0)]
    record = row(CELL, found).record()
    assert record["times_s"] == [2.0, 4.0]
    assert (record["latency_s"], record["messages_per_s"]) == (3.0, 8 / 3.0)
    assert record["relative_spread"] == pytest.approx(2**0.5 / 3)
    shares = [record[f"{name}_share"] for name in ("python", "calls", "lock")]
    assert shares == [0.75, 0.25, 0.5]
    assert (record["over_alone"], record["alone_over_c"]) == (1 / 0.75, 1.5)
    assert record["message_bytes"] == 1024
    assert record["verified"] is True
    json.dumps(record)


def test_without_a_compiler_nothing_is_said_of_the_lock():
    values = row(CELL, measured(2.0)).values
    assert values["lock_share"] is None
    assert values["alone_over_c"] is None


def entries(words=()):
    """Rows of a small matrix; more threads are slower, and fence is the best."""
    found = []
    for cell in cells_of(options("--sizes", "1", "1K", "--threads", "1", "2", "16", *words)):
        order = [*SYNCHRONISATIONS, TWO_SIDED].index(cell.sync) + 1
        outcome = measured(1e-6 * order * (1 + cell.threads) * cell.size)
        found.append(Entry.of(row(cell, outcome).record()))
    return found


def test_there_are_all_figures_of_the_paper():
    found = panels(entries(), entries(), 2)
    assert list(found) == [*"1a 1b 1c 2 3a 3b 4a 4b 5a 5b 6a 6b 7a 7b".split()]
    for name in ("1a", "1b", "1c"):
        assert list(found[name].lines) == ["two-sided send", "fence put", "fence get"]
    assert list(found["2"].lines) == ["1 thread", "2 threads", "16 threads"]
    assert [x for x, _ in found["2"].lines["16 threads"]] == [16, 16384]
    assert len(found["3a"].lines) == 8
    assert "16 threads" in found["3b"].title
    assert "2 threads" in found["4b"].title
    assert "two-sided send" in found["4b"].lines
    assert per_core(entries(), 1) == 16


def test_figures_without_data_are_left_out():
    only = entries(["--patterns", "latency", "--thread-levels", "multiple"])
    assert list(panels(only, only, 2)) == ["3a", "3b", "6a", "6b"]
    assert panels([], [], 2) == {}


def test_the_best_line_is_best_on_average():
    lines = {"a": [(1, 1.0), (2, 9.0)], "b": [(1, 2.0), (2, 8.0), (3, 1.0)]}
    assert best(lines, more=True) == "b"
    assert best({name: lines[name] for name in ("b", "a")}, more=False) == "a"


def test_goals_are_told_where_there_are_data():
    cell = Cell("bandwidth", "lock", "put", 0, 1 << 20, "single")
    (told,) = goals(rows({cell: measured(2.0, **{C: 1.9})}))
    assert told.startswith("Bandwidth of Put at 1 MiB")
    assert told.endswith("lock 0.95.")
    assert goals(rows({CELL: measured(1.0)})) == []
    assert not any_goal_missed(rows({cell: measured(2.0, **{C: 1.9})}))
    assert any_goal_missed(rows({cell: measured(2.0, **{C: 1.8})}))
    assert not any_goal_missed(rows({CELL: measured(1.0)}))


def test_message_rates_are_those_of_the_smallest_messages():
    main, woken = (
        Cell("rate-pairs", "fence", "put", threads, 8, level)
        for threads, level in ((0, "single"), (1, "multiple"))
    )
    larger = Cell("rate-pairs", "fence", "put", 1, 1024, "multiple")
    outcomes = {
        main: measured(6.0, **{C: 1.0}),
        woken: measured(4.0, **{ALONE: 3.0, RELEASED: 2.0, C: 1.0}),
        larger: measured(9.0, **{ALONE: 1.0, RELEASED: 1.0, C: 1.0}),
        Cell("rate-pairs", "pscw", "get", 0, 8, "single"): measured(1.0, **{C: 1.0}),
        Cell("rate-pairs", "lock", "put", 0, 8, "single"): measured(1.0, kind="hang"),
    }
    compiled, alone = goals(rows(outcomes))
    assert compiled.startswith("Message rate of Put at 8 B, one thread: C's")
    assert compiled.endswith(": fence 6.00.")
    assert "that the main thread wakes" in alone
    assert alone.endswith(": fence 0.75.")
