"""One stage: all ways in turns on a mesh, and the rows that come of them."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from onesided.apps.failures import CommandError
from onesided.apps.mini.row import MiniRow
from onesided.apps.mini.scaling import Stage
from onesided.apps.mini.turns import Taken, Turn, in_turns
from onesided.apps.mini.way import REFERENCE, Way
from onesided.apps.minife.alone import Alone
from onesided.apps.minife.sizes import words
from onesided.apps.minife.solver import EXCHANGE, PRODUCT, SUMS, Solver
from onesided.apps.minife.system import System
from onesided.apps.report import Listing
from onesided.apps.selection import Candidate, hints, prepare, release
from onesided.apps.verdict import Verdict

VECTORS = "vectors"
_SETUP = {
    "ranks": "d",
    "unknowns": "d",
    "entries": "d",
    "integration s": ".3g",
    "sharing s": ".3g",
    "matrix s": ".3g",
}


@dataclass
class Findings:
    """What the stages have found, on the ranks that took part.

    ``setup``: a row for each stage; ``compared``: solutions against those of rank 0 alone.
    """

    rows: list[MiniRow] = field(default_factory=list)
    setup: Listing = field(
        default_factory=lambda: Listing("Assembly, by the slowest rank", _SETUP)
    )
    compared: list[Verdict] = field(default_factory=list)


def work(
    system: System,
    stage: Stage,
    ways: Mapping[str, Way],
    options: Namespace,
    found: Findings,
    tick: Callable[[], None],
) -> None:
    """Collective. Run all ways on a mesh; what comes of it is added to ``found``.

    The system is freed. :class:`CommandError` on every rank for what cannot be done.
    """
    comm, info = system.comm, hints(options)
    candidates: list[Candidate[Solver]] = []
    try:
        candidates += prepare(
            comm,
            list(ways),
            lambda name: Solver(system, ways[name], info, options.iterations),
            Solver.free,
        )
        runs = {each.method: each.made for each in candidates if each.made is not None}
        for each in runs.values():
            each.warm_up()
        turns = [Turn(each.run, each.parts) for each in runs.values()]
        taken = dict(zip(runs, in_turns(comm, turns, options.runs, tick), strict=True))
        rows = _rows(system, stage, runs, taken)
        _judge(system, options, runs, rows, found)
    except CommandError:  # the same on every rank
        release(comm, candidates, Solver.free)
        system.Free()
        raise
    release(comm, candidates, Solver.free)
    found.rows += [_finished(each, rows, stage, system) for each in candidates]
    parts = ("integration", "sharing", "matrix")
    seconds = [system.seconds[part] for part in parts]
    found.setup.rows.append([comm.size, system.unknowns, system.matrix.nnz, *seconds])
    system.Free()


def _rows(
    system: System, stage: Stage, runs: Mapping[str, Solver], taken: Mapping[str, Taken]
) -> dict[str, MiniRow]:
    """Local. By way; times are those of an iteration."""
    rows, flops = {}, system.flops
    reference = _per_iteration(runs[REFERENCE], taken[REFERENCE].times)
    for name, solver in runs.items():
        times = _per_iteration(solver, taken[name].times)
        parts = {
            part: _per_iteration(solver, seconds) for part, seconds in taken[name].parts.items()
        }
        rows[name] = MiniRow(
            _labels(system, stage, name),
            times,
            nbytes=system.nbytes,
            against={REFERENCE: reference},
            details=_details(times, parts),
            facts={"GFLOP/s": flops / median(times) / 1e9},
            more={
                "ranks": system.comm.size,
                "elements": list(system.mesh.elements),
                "unknowns": system.unknowns,
                "nonzeros": system.matrix.nnz,
                "kernel": system.matrix.kernel_name,
                "product": system.matrix.product_name,
                "cg_iterations": solver.last.iterations,
                "run_s": taken[name].times,
            },
            used=solver.label,
        )
    return rows


def _labels(system: System, stage: Stage, name: str) -> dict[str, str]:
    """Local."""
    return {**stage.labels, "elements": words(system.mesh.elements), "method": name}


def _per_iteration(solver: Solver, seconds: Sequence[float]) -> list[float]:
    """Local."""
    count = max(1, solver.last.iterations)
    return [each / count for each in seconds]


def _details(
    times: Sequence[float], parts: Mapping[str, Sequence[float]]
) -> dict[str, list[float]]:
    """Local. What an iteration consists of; vectors are the rest."""
    exchange, product, sums = parts[EXCHANGE], parts[PRODUCT], parts[SUMS]
    known = zip(times, product, sums, strict=True)
    return {
        EXCHANGE: list(exchange),
        PRODUCT: [one - other for one, other in zip(product, exchange, strict=True)],
        SUMS: list(sums),
        VECTORS: [whole - one - other for whole, one, other in known],
    }


def _judge(
    system: System,
    options: Namespace,
    runs: Mapping[str, Solver],
    rows: Mapping[str, MiniRow],
    found: Findings,
) -> None:
    """Collective. Every way's solution against the known one, and that of rank 0 if wanted."""
    alone = Alone(system, options) if options.verify else None
    for name, solver in runs.items():
        solution = solver.solution(options.rtol, options.maxiter)
        rows[name].verdict = Verdict(system.errors(solution.x).largest, system.bound)
        rows[name].more = {
            **rows[name].more,
            "residual": system.residual(solution.x),
            "converged": solution.converged,
            "solution_iterations": solution.iterations,
        }
        if alone is not None:
            found.compared.append(alone.compared(solution.x))


def _finished(
    each: Candidate[Solver], rows: Mapping[str, MiniRow], stage: Stage, system: System
) -> MiniRow:
    """Local. The row of a way, with its set-up; or why there is none."""
    if each.reason:
        labels = _labels(system, stage, each.method)
        return MiniRow(labels, reason=each.reason, more={"ranks": system.comm.size})
    row = rows[each.method]
    row.setup = each.setup + each.freeing
    return row
