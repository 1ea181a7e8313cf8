"""One stage: all ways in turns on some ranks, and the rows that come of them."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from mpi4py import MPI

from onesided.apps.failures import CommandError
from onesided.apps.hpccg.check import compared, reference
from onesided.apps.hpccg.grid import Grid
from onesided.apps.hpccg.solver import EXCHANGE, PRODUCT, SUMS, Solver
from onesided.apps.hpccg.system import System
from onesided.apps.mini.row import MiniRow
from onesided.apps.mini.scaling import Stage
from onesided.apps.mini.turns import Taken, Turn, in_turns
from onesided.apps.mini.way import REFERENCE, Way
from onesided.apps.selection import Candidate, prepare, release
from onesided.apps.verdict import Verdict

VECTORS = "vectors"
PRINTED = 10  # residuals in JSON, without the first
#: Of the bound of memory: of a product with its exchange, and of an iteration with its vectors.
PRODUCT_SHARE, WHOLE_SHARE = "product share", "whole share"


@dataclass
class Findings:
    """What the stages have found, on the ranks that took part: rows, and how residuals compare."""

    rows: list[MiniRow] = field(default_factory=list)
    histories: list[Verdict] = field(default_factory=list)


def work(
    comm: MPI.Intracomm,
    stage: Stage,
    grid: Grid,
    ways: Mapping[str, Way],
    options: Namespace,
    found: Findings,
    tick: Callable[[], None],
    draw: Callable[[MPI.Intracomm, Grid, Solver], None] | None,
) -> None:
    """Collective. Run all ways with the grid; what comes of it is added to ``found``.

    ``draw`` is called with the first way after the runs. :class:`CommandError` on every rank for
    what cannot be done.
    """
    system = System(comm, grid, options)
    candidates: list[Candidate[Solver]] = []
    try:
        candidates += prepare(
            comm,
            list(ways),
            lambda name: Solver(system, ways[name], options.iterations),
            Solver.free,
        )
        runs = {each.method: each.made for each in candidates if each.made is not None}
        taken = _timed(comm, runs, options.runs, tick)
        rows = _rows(system, stage, runs, taken)
        if options.verify:
            found.histories += _verify(system, options.iterations, runs, rows)
        if draw is not None:
            draw(comm, grid, next(iter(runs.values())))
    except CommandError:  # the same on every rank
        release(comm, candidates, Solver.free)
        system.free()
        raise
    release(comm, candidates, Solver.free)
    found.rows += [_finished(each, rows, stage, system) for each in candidates]
    system.free()


def _timed(
    comm: MPI.Intracomm, runs: Mapping[str, Solver], count: int, tick: Callable[[], None]
) -> dict[str, Taken]:
    """Collective."""
    for each in runs.values():
        each.warm_up()
    turns = [Turn(each.run, each.parts) for each in runs.values()]
    return dict(zip(runs, in_turns(comm, turns, count, tick), strict=True))


def _rows(
    system: System, stage: Stage, runs: Mapping[str, Solver], taken: Mapping[str, Taken]
) -> dict[str, MiniRow]:
    """Collective. By way; times are those of an iteration."""
    product, iteration = system.bounds()
    reference_times = _per_iteration(runs[REFERENCE], taken[REFERENCE].times)
    rows = {}
    for name, solver in runs.items():
        times = _per_iteration(solver, taken[name].times)
        parts = {
            part: _per_iteration(solver, seconds) for part, seconds in taken[name].parts.items()
        }
        whole_product = median(parts[PRODUCT])
        rows[name] = MiniRow(
            {**stage.labels, "method": name},
            times,
            against={REFERENCE: reference_times},
            details=_details(times, parts),
            verdict=solver.verdict(),
            shares={
                PRODUCT_SHARE: product / whole_product,
                WHOLE_SHARE: iteration / median(times),
            },
            facts={"residual": solver.residual},
            more={
                **system.facts(),
                "flops_per_s": system.flops / median(times),
                "cg_iterations": solver.solution.iterations,
                "run_s": taken[name].times,
                "bound_product_s": product,
                "bound_iteration_s": iteration,
                "residuals": some(solver.residuals),
            },
            used=solver.label,
        )
    return rows


def _per_iteration(solver: Solver, seconds: Sequence[float]) -> list[float]:
    count = max(1, solver.solution.iterations)
    return [each / count for each in seconds]


def some(residuals: list[float]) -> list[float]:
    """Local. About ten of them, the first and every so many, as the reference prints them."""
    return residuals[:: max(1, (len(residuals) - 1) // PRINTED)]


def _details(
    times: Sequence[float], parts: Mapping[str, Sequence[float]]
) -> dict[str, list[float]]:
    """Local. What an iteration consists of; vectors are the rest."""
    exchange, product, sums = parts[EXCHANGE], parts[PRODUCT], parts[SUMS]
    local = [one - other for one, other in zip(product, exchange, strict=True)]
    known = zip(times, product, sums, strict=True)
    return {
        EXCHANGE: list(exchange),
        PRODUCT: local,
        SUMS: list(sums),
        VECTORS: [whole - one - other for whole, one, other in known],
    }


def _verify(
    system: System, iterations: int, runs: Mapping[str, Solver], rows: Mapping[str, MiniRow]
) -> list[Verdict]:
    """Collective. Compare the residuals of every way with those of rank 0 alone."""
    expected = reference(system.comm, system.grid, iterations)
    verdicts = []
    for name, solver in runs.items():
        verdict = compared(solver.residuals, expected)
        rows[name].more = {**rows[name].more, "residuals_error": verdict.error}
        verdicts.append(verdict)
    return verdicts


def _finished(
    each: Candidate[Solver], rows: Mapping[str, MiniRow], stage: Stage, system: System
) -> MiniRow:
    """Local. The row of a way, with its set-up; or why there is none."""
    if each.reason:
        labels = {**stage.labels, "method": each.method}
        return MiniRow(labels, reason=each.reason, more={"ranks": system.comm.size})
    row = rows[each.method]
    row.setup = each.setup + each.freeing
    return row
