"""``onesided solve``: a system of linear equations whose matrix is in a file."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided import sparse
from onesided.apps.bench.race import Contestant, nothing, race, unchecked
from onesided.apps.bench.selection import BASELINE, Candidates, chosen, prepare, release
from onesided.apps.cli.failures import FAILED, CommandError, by_rank_0, from_rank_0, user_errors
from onesided.apps.cli.options import Options
from onesided.apps.cli.progress import on_rank_0, progress, reading
from onesided.apps.cli.report import PLAIN, Report, Row
from onesided.apps.cli.statistics import Verdict
from onesided.apps.report.chart import save
from onesided.apps.report.figure import Lines
from onesided.apps.report.quantities import COUNT, TURNS
from onesided.apps.solvers.options import PRECONDITIONERS, SOLVERS, Named
from onesided.apps.solvers.vectors import in_file_order, vector, write_solution
from onesided.apps.tools.rowblock import Maker
from onesided.apps.tools.spmv import halo_setup, label
from onesided.collectives.context import Scoped
from onesided.sparse import DistMatrix, read
from onesided.sparse.solvers import Solution
from onesided.sparse.solvers.solution import LEAST_SQUARES

# How a solver converged: a plot of characters for the terminal.

HEIGHT = 14
WIDTH = 64
MARKS = "*o+x#@%&"


def text_plot(
    title: str, lines: Mapping[str, Sequence[float]], width: int = WIDTH, height: int = HEIGHT
) -> str:
    """Local. Values over their number, logarithmic, one mark for every name.

    What is zero or not finite is left out; where several lines meet, the first one is seen.
    """
    shown = {
        name: [(k, math.log10(y)) for k, y in enumerate(values) if 0 < y < math.inf]
        for name, values in lines.items()
    }
    heights = [y for points in shown.values() for _, y in points]
    if not heights:
        return f"{title}: nothing to draw"
    low, high = math.floor(min(heights)), math.ceil(max(heights))
    high = max(high, low + 1)
    last = max(1, *(points[-1][0] for points in shown.values() if points))
    rows = [[" "] * width for _ in range(height)]
    for (_, points), mark in reversed(list(zip(shown.items(), _marks(len(shown)), strict=True))):
        for k, y in points:
            rows[_row(y, low, high, height)][round(k / last * (width - 1))] = mark
    step = -(-(high - low) // ((height - 1) // 2))
    labels = {_row(y, low, high, height): f"1e{y:+d}" for y in range(high, low - 1, -step)}
    out = [title]
    out += [f"{labels.get(k, ''):>6} |{''.join(line).rstrip()}" for k, line in enumerate(rows)]
    out.append(f"{'':>6} +{'-' * width}")
    out.append(f"{'':>7}0{last:>{width - 1}}")
    if len(shown) > 1:
        pairs = zip(_marks(len(shown)), shown, strict=True)
        out.append("  ".join(f"{mark} {name}" for mark, name in pairs))
    return "\n".join(out)


def _row(y: float, low: int, high: int, height: int) -> int:
    """Local. The line from the top that shows a decimal logarithm."""
    return round((high - y) / (high - low) * (height - 1))


def _marks(count: int) -> str:
    return (MARKS * (count // len(MARKS) + 1))[:count]


# What ``onesided solve`` and ``onesided pagerank`` share: runs by every method, a report.

PRODUCTS = "1000"  # that the methods are told to expect
Solve = Callable[[], Solution]


@dataclass
class Outcome:
    """What a method came to: its solution, seconds of every run, and the verdict."""

    solution: Solution
    times: list[float]
    verdict: Verdict | None


class Runs:
    """The same problem by every method that was asked for, and what is told about it."""

    def __init__(self, comm: MPI.Intracomm, options: Options, command: str, remark: str) -> None:
        """Collective. Check what was given and read the matrix once for every method."""
        names = chosen(options.comm, baseline=False)
        self.comm, self.options = comm, options
        info = {"expected_iterations": PRODUCTS, **dict(options.info)}
        how: dict[str, Any] = {"info": info, "partition": options.partition}
        with reading(on_rank_0(comm, options), f"reading {Path(options.file).name}") as advance:
            self._candidates: Candidates[DistMatrix] = prepare(
                comm,
                names,
                Maker(
                    lambda method: read(comm, options.file, method=method, progress=advance, **how),
                    info,
                ),
                DistMatrix.Free,
            )
        self.matrices = self._candidates.made
        self.matrix = next(iter(self.matrices.values()))
        pattern = {
            "file": Path(options.file).name,
            "shape": list(self.matrix.shape),
            "nonzeros": self.matrix.nnz,
            "dtype": self.matrix.dtype.name,
            "ranks": comm.size,
        }
        self.report = Report(command, options.settings(), pattern, remarks=[remark])

    def solve(
        self,
        prepared: Callable[[DistMatrix], Solve],
        verdict: Callable[[DistMatrix, Solution], Verdict | None],
    ) -> dict[str, Outcome]:
        """Collective. Run every method ``--repeats`` times, in turn."""
        with user_errors():
            calls = {method: prepared(matrix) for method, matrix in self.matrices.items()}
        found: dict[str, Solution] = {}

        def run(method: str) -> None:
            found[method] = calls[method]()

        why = unchecked("the residuals of all solutions are judged at the end")
        contestants = [
            Contestant(method, partial(run, method), why, warm_up=nothing) for method in calls
        ]
        comm, options, repeats = self.comm, self.options, self.options.repeats
        with user_errors(), progress(
            comm, options, self.report.command, repeats * len(calls)
        ) as tick:
            times = race(comm, contestants, iterations=repeats, tick=tick).times
        return {
            method: Outcome(found[method], times[method], verdict(matrix, found[method]))
            for method, matrix in self.matrices.items()
        }

    def finish(
        self, outcomes: Mapping[str, Outcome], quantity: str, attributes: Mapping[str, Any]
    ) -> int:
        """Collective. Report, plot, picture and solution; the exit code of the command."""
        comm, options, report = self.comm, self.options, self.report
        first = next(iter(outcomes.values())).solution
        if options.output is not None:
            block = in_file_order(self.matrix, first.x)
            write_solution(comm, options.output, block, {**attributes, "reason": first.reason})
        self._rows(outcomes)
        found = {method: each.solution for method, each in outcomes.items()}
        lines = {method: each.residuals.tolist() for method, each in found.items()}
        facts = {
            method: {
                "converged": each.converged,
                "iterations": each.iterations,
                "reason": each.reason,
                "residuals": lines[method],
            }
            for method, each in found.items()
        }
        report.pattern = {**report.pattern, "outcomes": facts}
        title = f"{report.command} {Path(options.file).name}: {quantity}"
        out = on_rank_0(comm, options)
        if out is not None:
            out.print(text_plot(title, lines), **PLAIN)
        report.finish(comm, options)
        if options.picture is not None:
            curves = {name: list(enumerate(values)) for name, values in lines.items()}
            panel = Lines(title, TURNS, COUNT.called(quantity), curves)
            by_rank_0(comm, partial(save, options.picture, title, [panel]))
        converged = all(each.converged for each in found.values())
        return report.code(comm) or (0 if converged else FAILED)

    def _rows(self, outcomes: Mapping[str, Outcome]) -> None:
        """Collective. A row of the report for every method; the matrices are freed."""
        setups = {method: halo_setup(self.comm, each) for method, each in self.matrices.items()}
        labels = {method: label(method, each) for method, each in self.matrices.items()}
        release(self.comm, self._candidates, DistMatrix.Free)
        against = {BASELINE: outcomes[BASELINE].times} if BASELINE in outcomes else {}
        for each in self._candidates:
            method = each.method
            if each.reason:
                self.report.rows.append(Row({"method": method}, reason=each.reason))
                continue
            outcome = outcomes[method]
            done = outcome.solution
            words = {"iterations": str(done.iterations), "end": done.reason}
            self.report.rows.append(
                Row(
                    {**labels[method], **words},
                    outcome.times,
                    setups[method] + each.freeing,
                    against=against,
                    verdict=outcome.verdict,
                )
            )


MARGIN = 2.0  # what the recurrence of a residual may lie off the residual itself
ROUNDING = 1e3  # of it, in units of the dtype's epsilon
REMARK = (
    "Times are of one solution. Error: norm(b - A x) / norm(b) computed anew (least squares: "
    "norm(A.H r) / (norm(A) norm(r))), to be within what --rtol and --atol allow."
)


def _keywords(entry: Named, values: Mapping[str, Any]) -> dict[str, Any]:
    """Local. What the options say for a solver or a preconditioner."""
    return {keyword: values[option] for option, keyword in entry.keywords.items()}


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; its exit code is 1 where the solver did not converge."""
    solver, precond = SOLVERS[options.solver], PRECONDITIONERS[options.precond]
    if precond is not None and not solver.preconditioned:
        raise CommandError(f"--solver {options.solver} takes no preconditioner")
    runs = Runs(comm, options, "solve", REMARK)
    sides: dict[int, NDArray[Any]] = {}
    made: list[Any] = []
    values = {**vars(options), "hermitian": solver.hermitian}

    def prepared(matrix: DistMatrix) -> Solve:
        side = sides[id(matrix)] = vector(comm, matrix, options.rhs)
        how: dict[str, Any] = {"rtol": options.rtol, "atol": options.atol}
        how["maxiter"] = options.maxiter
        if options.restart is not None:
            how["x0"] = vector(comm, matrix, options.restart)
        how |= _keywords(solver, values)
        if precond is not None:
            how["M"] = getattr(sparse, precond.name)(matrix, **_keywords(precond, values))
            made.append(how["M"])
        call: Callable[..., Solution] = getattr(sparse, solver.name)
        return lambda: call(matrix, side, **how)

    def verdict(matrix: DistMatrix, solution: Solution) -> Verdict:
        return _verdict(comm, options, matrix, solution, sides[id(matrix)])

    outcomes = runs.solve(prepared, verdict)
    for each in made:
        if isinstance(each, Scoped):
            each.Free()
    facts = {"solver": options.solver, "precond": options.precond, "rhs": options.rhs}
    return runs.finish(outcomes, "norm of the residual", facts)


def _verdict(
    comm: MPI.Intracomm,
    options: Options,
    matrix: DistMatrix,
    solution: Solution,
    side: NDArray[Any],
) -> Verdict:
    """Collective. The residual computed anew, relative to what it may be."""
    size = _norm(comm, side)
    allowed = max(options.rtol, options.atol / (size or 1.0))
    least_squares = solution.reason == LEAST_SQUARES
    if options.verify:
        error = _by_scipy(comm, matrix, solution.x, side, least_squares)
    else:
        rest = side - matrix @ solution.x
        length = _norm(comm, rest)
        error = length / (size or 1.0)
        if least_squares:
            frobenius = _norm(comm, matrix.local_rows().data)
            error = _norm(comm, matrix.H @ rest) / ((frobenius * length) or 1.0)
    rounding = ROUNDING * float(np.finfo(matrix.dtype).eps)
    return Verdict(error, MARGIN * allowed + rounding)


def _by_scipy(
    comm: MPI.Intracomm,
    matrix: DistMatrix,
    x: NDArray[Any],
    side: NDArray[Any],
    least_squares: bool,
) -> float:
    """Collective. The relative residual by the whole matrix on rank 0."""
    whole: Any = matrix.gather()
    xs, sides = comm.gather(x) or [], comm.gather(side) or []

    def residual() -> float:
        b = np.concatenate(sides)
        rest = b - whole @ np.concatenate(xs)
        norm = np.linalg.norm
        over = norm(whole.data) * norm(rest) if least_squares else norm(b)
        return float(norm(whole.conj().T @ rest if least_squares else rest) / (over or 1.0))

    return from_rank_0(comm, residual)


def _norm(comm: MPI.Intracomm, block: NDArray[Any]) -> float:
    """Collective. The Euclidean norm of all blocks together."""
    return float(np.sqrt(comm.allreduce(float(np.vdot(block, block).real))))
