"""All ways in turns on the equations of one stage, and the rows that come of them."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol

from onesided.apps.closing import closing
from onesided.apps.mini.row import MiniRow
from onesided.apps.mini.solver import EXCHANGE, PRODUCT, SUMS, Solver, System
from onesided.apps.mini.turns import Taken, Turn, in_turns
from onesided.apps.mini.way import REFERENCE, Way
from onesided.apps.selection import Candidate, hints, prepare, release
from onesided.sparse.solvers import Solution

VECTORS = "vectors"


@dataclass(frozen=True)
class Iteration:
    """Seconds of an iteration, the means over each run: of all of it, and of its parts.

    The part of the product has the exchange in it.
    """

    times: list[float]
    parts: dict[str, list[float]]

    @classmethod
    def of(cls, solver: Solver, taken: Taken) -> Iteration:
        """Local. From the seconds of the runs."""
        count = max(1, solver.last.iterations)
        parts = {name: _each(seconds, count) for name, seconds in taken.parts.items()}
        return cls(_each(taken.times, count), parts)

    @property
    def median(self) -> float:
        """Local. Of the runs."""
        return median(self.times)

    @property
    def product(self) -> float:
        """Local. The median of the product with its exchange."""
        return median(self.parts[PRODUCT])

    def details(self) -> dict[str, list[float]]:
        """Local. What it consists of; the product is the local one, vectors are the rest."""
        exchange, product, sums = (self.parts[name] for name in (EXCHANGE, PRODUCT, SUMS))
        known = zip(self.times, product, sums, strict=True)
        return {
            EXCHANGE: exchange,
            PRODUCT: [one - other for one, other in zip(product, exchange, strict=True)],
            SUMS: sums,
            VECTORS: [whole - one - other for whole, one, other in known],
        }


def _each(seconds: Sequence[float], count: int) -> list[float]:
    return [run / count for run in seconds]


@dataclass(frozen=True)
class Ran:
    """A way that has run, before its halo is freed; ``solution`` is that of its last run."""

    row: MiniRow
    solver: Solver
    iteration: Iteration

    @property
    def solution(self) -> Solution:
        """Local."""
        return self.solver.last


class Judge(Protocol):
    """What a mini-application makes of the runs: ``labels`` are those of its rows."""

    @property
    def labels(self) -> Mapping[str, str]:
        """Local."""

    def judge(self, runs: Sequence[Ran]) -> None:
        """Collective. Look at what came out, and complete the rows."""


def race(
    system: System,
    ways: Mapping[str, Way],
    options: Namespace,
    judge: Judge,
    tick: Callable[[], None],
) -> list[MiniRow]:
    """Collective. Run all ways in turns; a row for each, also for those that cannot be run.

    :class:`.CommandError` on every rank for what cannot be done.
    """
    comm, info = system.comm, hints(options)
    with closing() as stack:
        candidates = prepare(
            comm,
            list(ways),
            lambda name: Solver(system, ways[name], info, options.iterations),
            Solver.free,
        )
        stack.callback(release, comm, candidates, Solver.free)
        runs = {each.method: each.made for each in candidates if each.made is not None}
        for solver in runs.values():
            solver.warm_up()
        turns = [Turn(solver.run, solver.parts) for solver in runs.values()]
        taken = dict(zip(runs, in_turns(comm, turns, options.runs, tick), strict=True))
        iterations = {name: Iteration.of(solver, taken[name]) for name, solver in runs.items()}
        rows = {
            name: MiniRow(
                {**judge.labels, "method": name},
                iterations[name].times,
                against={REFERENCE: iterations[REFERENCE].times},
                details=iterations[name].details(),
                more=_facts(system, solver, taken[name]),
                used=solver.label,
            )
            for name, solver in runs.items()
        }
        judge.judge([Ran(rows[name], runs[name], iterations[name]) for name in runs])
    return [_finished(each, rows, judge, system) for each in candidates]


def _facts(system: System, solver: Solver, taken: Taken) -> dict[str, object]:
    """Local. For JSON."""
    return {
        "ranks": system.comm.size,
        "unknowns": system.unknowns,
        "nonzeros": system.matrix.nnz,
        "kernel": system.matrix.kernel_name,
        "product": system.matrix.kernel_name,
        "cg_iterations": solver.last.iterations,
        "run_s": taken.times,
    }


def _finished(
    each: Candidate[Solver], rows: Mapping[str, MiniRow], judge: Judge, system: System
) -> MiniRow:
    """Local. The row of a way, with its set-up; or why there is none."""
    if each.reason:
        labels = {**judge.labels, "method": each.method}
        return MiniRow(labels, reason=each.reason, more={"ranks": system.comm.size})
    row = rows[each.method]
    row.setup = each.setup + each.freeing
    return row
