"""``onesided solve``: a system of linear equations whose matrix is in a file."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided import sparse
from onesided.apps.bench.selection import chosen
from onesided.apps.bench.sweep import Case, Labels, Make, sweep
from onesided.apps.bench.timing import Variant, nothing
from onesided.apps.cli.failures import FAILED, CommandError, from_rank_0, user_errors
from onesided.apps.cli.options import Options
from onesided.apps.cli.report import METHOD, Report
from onesided.apps.cli.statistics import Verdict
from onesided.apps.solvers.options import HERMITIAN, PRECONDITIONERS, TOLD, UNPRECONDITIONED
from onesided.apps.solvers.vectors import check_output, in_file_order, vector, write_solution
from onesided.apps.tools.rowblock import maker_of_file
from onesided.apps.tools.spmv import halo_setup
from onesided.collectives.context import Scoped
from onesided.sparse import DistMatrix
from onesided.sparse.solvers import Solution
from onesided.sparse.solvers.solution import LEAST_SQUARES

# What ``onesided solve`` and ``onesided pagerank`` share: runs by every method, a report.

PRODUCTS = "1000"  # that the methods are told to expect
Solve = Callable[[], Solution[Any]]


def run_methods(
    comm: MPI.Intracomm, options: Options, report: Report,
    prepared: Callable[[DistMatrix], tuple[Solve, Callable[[], object]]],
    verdict: Callable[[DistMatrix, Solution[Any]], Verdict | None],
    ended: Callable[[DistMatrix, Solution[Any]], object],
) -> int:
    """Collective. Solve by every method ``--repeats`` times, in turns; the exit code.

    ``prepared``: what solves with a matrix, and what is freed then; ``ended``: called with what
    the first method came to, while its matrix is there.
    """
    names = chosen(options.comm, baseline=False)
    check_output(options.output)
    info = {"expected_iterations": PRODUCTS, **dict(options.info)}
    outcomes: dict[str, dict[str, Any]] = {}
    name = Path(options.file).name

    def opened(comm: MPI.Intracomm, stack: ExitStack) -> Make:
        maker = maker_of_file(comm, options.file, info, options.partition)

        def make(labels: Labels) -> Variant:
            method = labels[METHOD]
            matrix = maker(method)
            call, done = prepared(matrix)
            found: list[Solution[Any]] = []
            leads = not outcomes
            outcomes[method] = {}
            report.pattern = {
                "file": name, "shape": list(matrix.shape), "nonzeros": matrix.nnz,
                "dtype": matrix.dtype.name, "ranks": comm.size, "outcomes": outcomes,
            }  # fmt: skip
            metrics: dict[str, Any] = {"kernel": matrix.kernel_name}

            def run() -> None:
                found[:] = [call()]

            def check() -> Verdict | None:
                if not found:
                    return None
                (solution,) = found
                metrics.update(steps=solution.iterations, end=solution.reason)
                outcomes[method] = {
                    "converged": solution.converged, "iterations": solution.iterations,
                    "reason": solution.reason, "residuals": solution.residuals.tolist(),
                }  # fmt: skip
                if leads:
                    ended(matrix, solution)
                return verdict(matrix, solution) if solution.converged else None

            def free() -> None:
                done()
                matrix.Free()

            return Variant(run, check, first=nothing, free=free, used=matrix.method,
                           metrics=metrics, set_up=halo_setup(comm, matrix))

        return make

    case = Case({}, [{METHOD: each} for each in names], opened)
    runs = options.but(iterations=options.repeats, seconds=math.inf, json=None)
    with user_errors():
        sweep(comm, runs, report, [case], report.command)
    code = report.end(comm, options)
    converged = all(each.get("converged") for each in outcomes.values() if each)
    return code or (0 if converged else FAILED)


MARGIN = 2.0  # what the recurrence of a residual may lie off the residual itself
ROUNDING = 1e3  # of it, in units of the dtype's epsilon
REMARK = (
    "Times are of one solution. Error: norm(b - A x) / norm(b) computed anew (least squares: "
    "norm(A.H r) / (norm(A) norm(r))), to be within what --rtol and --atol allow. One that did not "
    "converge has none, and makes the exit code 1."
)


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; its exit code is 1 where the solver did not converge."""
    precond = PRECONDITIONERS[options.precond]
    if precond and options.solver in UNPRECONDITIONED:
        raise CommandError(f"--solver {options.solver} takes no preconditioner")
    report = Report("solve", options.settings(), {}, remarks=[REMARK])
    sides: dict[int, NDArray[Any]] = {}

    def prepared(matrix: DistMatrix) -> tuple[Solve, Callable[[], object]]:
        side = sides[id(matrix)] = vector(comm, matrix, options.rhs)
        how: dict[str, Any] = {name: getattr(options, name) for name in ("rtol", "atol", "maxiter")}
        if options.restart is not None:
            how["x0"] = vector(comm, matrix, options.restart)
        if precond:
            told = {"hermitian": options.solver in HERMITIAN} if options.precond in TOLD else {}
            how["M"] = getattr(sparse, precond)(matrix, **told)
        call: Callable[..., Solution[Any]] = getattr(sparse, options.solver.replace("-", "_"))
        precondition = how.get("M")
        done = precondition.Free if isinstance(precondition, Scoped) else nothing
        return partial(call, matrix, side, **how), done

    def verdict(matrix: DistMatrix, solution: Solution[Any]) -> Verdict:
        return _verdict(comm, options, matrix, solution, sides[id(matrix)])

    def ended(matrix: DistMatrix, solution: Solution[Any]) -> None:
        if options.output is not None:
            write_solution(comm, options.output, in_file_order(matrix, solution.x))

    return run_methods(comm, options, report, prepared, verdict, ended)


def _verdict(
    comm: MPI.Intracomm, options: Options, matrix: DistMatrix, solution: Solution[Any],
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
    comm: MPI.Intracomm, matrix: DistMatrix, x: NDArray[Any], side: NDArray[Any],
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
