"""``onesided solve`` and ``onesided pagerank``: a system of linear equations, and the ranks of the
nodes of a directed graph, with the matrix of a file.

A vector in a file, and every vector that a person sees, is in the order of the matrix's file; the
solvers work in the order of the matrix, which a partition may have permuted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided import sparse
from onesided.apps.bench.choices import chosen
from onesided.apps.bench.foreign import ForeignError
from onesided.apps.bench.sweep import Case, Labels, Make, sweep
from onesided.apps.bench.timing import Variant, nothing
from onesided.apps.cli.failures import FAILED, CommandError, from_rank_0, user_errors
from onesided.apps.cli.options import Options
from onesided.apps.cli.report import BASELINE, METHOD, Listing, Report
from onesided.apps.cli.statistics import Verdict
from onesided.apps.solvers.options import (
    HERMITIAN,
    PETSC_SOLVERS,
    PRECONDITIONERS,
    TOLD,
    UNPRECONDITIONED,
)
from onesided.apps.tools.petsc import Petsc, question
from onesided.apps.tools.rowblock import RowBlock, maker_of_file
from onesided.apps.tools.spmv import PETSC, halo_setup
from onesided.collectives.context import Scoped
from onesided.sparse import DistMatrix, DistVector, Partition, read_vector, write
from onesided.sparse.solvers import Solution, pagerank
from onesided.sparse.solvers.gmres import RESTART
from onesided.sparse.solvers.solution import LEAST_SQUARES
from onesided.sparse.solvers.space import start_block

# -- runs by every method, and a report ------------------------------------------------------------

PRODUCTS = "1000"  # that the methods are told to expect
ENDING = ".npy"  # of the file of a vector
NOBODY: Mapping[str, Callable[[DistMatrix], Variant]] = {}  # solves beside us

#: Of a matrix: what solves with it, what is said of the solution, and what gives back the rest.
Prepared = tuple[
    Callable[[], Solution[Any]], Callable[[Solution[Any]], Verdict | None], Callable[[], object]
]


def _run_methods(
    comm: MPI.Intracomm, options: Options, report: Report,
    prepared: Callable[[DistMatrix], Prepared],
    ended: Callable[[DistMatrix, Solution[Any]], object] = lambda matrix, solution: None,
    opponents: Mapping[str, Callable[[DistMatrix], Variant]] = NOBODY,
) -> int:
    """Collective. Solve by every method ``--repeats`` times, in turns; the exit code. ``ended``:
    called with what the first method came to, while its matrix is there. ``opponents``: by
    name what another program does, with a matrix that it frees."""
    names = chosen(options.comm, baseline=False)
    check_output(options.output)
    info = {"expected_iterations": PRODUCTS, **dict(options.info)}
    outcomes: dict[str, dict[str, Any]] = {}

    def opened(comm: MPI.Intracomm, stack: ExitStack) -> Make:
        maker = maker_of_file(comm, options.file, info, options.partition)

        def make(labels: Labels) -> Variant:
            method = labels[METHOD]
            if method in opponents:
                return opponents[method](maker("p2p"))
            matrix = maker(method)
            call, verdict, done = prepared(matrix)
            found: list[Solution[Any]] = []
            leads = not outcomes
            outcomes[method] = {}
            report.pattern = {
                "file": Path(options.file).name, "shape": list(matrix.shape),
                "nonzeros": matrix.nnz, "dtype": matrix.dtype.name, "ranks": comm.size,
                "outcomes": outcomes,
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
                    if options.output is not None:
                        write_solution(comm, options.output, in_file_order(matrix, solution.x))
                return verdict(solution) if solution.converged else None

            def free() -> None:
                done()
                matrix.Free()

            return Variant(run, check, first=nothing, free=free, used=matrix.method,
                           metrics=metrics, set_up=halo_setup(comm, matrix))

        return make

    variants = [{METHOD: each} for each in (*names, *opponents)]
    case = Case({}, variants, opened, against=(BASELINE, *opponents))
    runs = options.but(iterations=options.repeats, seconds=math.inf, json=None)
    with user_errors():
        sweep(comm, runs, report, [case], report.command)
    code = report.end(comm, options)
    converged = all(each.get("converged") for each in outcomes.values() if each)
    return code or (0 if converged else FAILED)


def file_rows(matrix: DistMatrix) -> tuple[int, int]:
    """Local. The rows of the file, half-open, of which this rank has the entries of a vector."""
    if matrix.ordering is None:
        return matrix.row_range
    first, last = matrix.ordering.original_range
    return int(first), int(last)


def in_file_order(matrix: DistMatrix, block: NDArray[Any]) -> NDArray[Any]:
    """Collective. A block in the matrix's order, as that of the file's order."""
    return block if matrix.ordering is None else np.asarray(matrix.ordering.backward(block))


def vector(comm: MPI.Intracomm, matrix: DistMatrix, source: str) -> NDArray[Any]:
    """Collective. ``ones``, ``random``, or a file's vector, as this rank's block in matrix order.
    :class:`CommandError` where a file cannot be read, or holds another number of entries."""
    rows = file_rows(matrix)
    if source == "ones":
        block = np.ones(rows[1] - rows[0], matrix.dtype)
    elif source == "random":
        block = start_block(rows, matrix.dtype)
    else:
        with user_errors():
            block = read_vector(comm, source, _partition(comm, rows[1] - rows[0])).array
        if block.ndim != 1:
            raise CommandError(f"{source} holds {block.shape[-1]} columns, one is wanted")
        kinds = (matrix.dtype, np.complex64) if block.dtype.kind == "c" else (matrix.dtype,)
        block = block.astype(np.result_type(*kinds))
    return block if matrix.ordering is None else np.asarray(matrix.ordering.forward(block))


def _partition(comm: MPI.Intracomm, length: int) -> Partition:
    """Collective. Of which every rank has so many entries."""
    return Partition.from_lengths(np.array(comm.allgather(length), np.int64))


def check_output(path: str | None) -> None:
    """Local. :class:`CommandError` before the work where a vector is not written so."""
    if path is not None and not path.endswith(ENDING):
        raise CommandError(f"--output {path}: a vector is written as {ENDING}")


def write_solution(comm: MPI.Intracomm, path: str, block: NDArray[Any]) -> None:
    """Collective. The ranks' blocks, one after the other, in the order of the matrix's file. What
    was there is replaced when all of it is on the disk. :class:`CommandError` where it cannot be
    written."""
    with user_errors():
        write(DistVector(comm, _partition(comm, len(block)), block), path)


# -- linear equations ------------------------------------------------------------------------------

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

    def prepared(matrix: DistMatrix) -> Prepared:
        side = vector(comm, matrix, options.rhs)
        how: dict[str, Any] = {name: getattr(options, name) for name in ("rtol", "atol", "maxiter")}
        if options.restart is not None:
            how["x0"] = vector(comm, matrix, options.restart)
        if precond:
            told = {"hermitian": options.solver in HERMITIAN} if options.precond in TOLD else {}
            how["M"] = getattr(sparse, precond)(matrix, **told)
        call: Callable[..., Solution[Any]] = getattr(sparse, options.solver.replace("-", "_"))
        precondition = how.get("M")
        done = precondition.Free if isinstance(precondition, Scoped) else nothing
        verdict = partial(_residual, comm, options, matrix, side)
        return partial(call, matrix, side, **how), verdict, done

    report = Report("solve", options.settings(), {}, remarks=[REMARK])
    opponents = NOBODY if options.pc is None else {PETSC: partial(_petsc, comm, options)}
    return _run_methods(comm, options, report, prepared, opponents=opponents)


def _petsc(comm: MPI.Intracomm, options: Options, matrix: DistMatrix) -> Variant:
    """Collective. PETSc with our rows and right-hand side, from zero; the matrix is freed. Its
    preconditioner is made before, as ours is. ``ForeignError`` where it does not take part."""
    block = RowBlock(matrix.local_rows(), matrix.row_partition, matrix.col_partition)
    side, rounding = vector(comm, matrix, options.rhs), ROUNDING * float(np.finfo(matrix.dtype).eps)
    matrix.Free()
    if options.solver not in PETSC_SOLVERS:
        raise ForeignError(f"--solver {options.solver}: PETSc's is another, or none")
    if options.restart is not None:
        raise ForeignError("--restart: PETSc begins at zero")
    limit = 10 * block.shape[1] if options.maxiter is None else options.maxiter
    how = {"ksp": PETSC_SOLVERS[options.solver], "pc": options.pc, "rtol": options.rtol,
           "atol": options.atol, "maxiter": limit, "restart": RESTART}  # fmt: skip
    whole = np.concatenate(comm.allgather(side))
    job, asked = Petsc(comm, block, whole, how), question("solve")
    try:
        job.ask(asked)  # where there is no solution, this is known before ours are looked for
    except ForeignError:
        job.close()
        raise
    metrics: dict[str, Any] = {"type": job.facts["type"], "pc": options.pc}

    def check() -> Verdict:
        job.ask(asked)
        metrics["steps"] = int(job.ask(question("steps")))
        allowed = max(options.rtol, options.atol / (_norm(comm, side) or 1.0))
        return Verdict(job.ask(question("rest")), MARGIN * allowed + rounding)

    return Variant(partial(job.run, asked), check, on_root=True, own=partial(job.times, asked),
                   first=nothing, free=job.close, set_up=False, metrics=metrics)  # fmt: skip


def _residual(
    comm: MPI.Intracomm, options: Options, matrix: DistMatrix, side: NDArray[Any],
    solution: Solution[Any],
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


# -- ranks of nodes --------------------------------------------------------------------------------

TOLERANCE = 200.0  # rounding errors allowed, in units of the dtype's epsilon
PAGERANK_REMARK = (
    "Times are of one ranking. Nodes are rows of the file, the first one 1; an entry in row i and "
    "column j is a link from i to j, as likely as its value says."
)
COLUMNS = {"place": ".0f", "node": ".0f", "rank": ".6e"}


def run_pagerank(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; its exit code is 1 where the ranks did not converge or are wrong."""
    report = Report("pagerank", options.settings(), {}, remarks=[PAGERANK_REMARK])

    def prepared(matrix: DistMatrix) -> Prepared:
        how = {"damping": options.damping, "atol": options.atol, "maxiter": options.maxiter}

        def verdict(solution: Solution[Any]) -> Verdict | None:
            if not options.verify:
                return None
            return _ranking(comm, matrix, solution, options.damping)

        return partial(pagerank, matrix, **how), verdict, nothing

    def ended(matrix: DistMatrix, solution: Solution[Any]) -> None:
        report.listings["top"] = _top(comm, matrix, solution.x, options.top)

    return _run_methods(comm, options, report, prepared, ended)


def _top(comm: MPI.Intracomm, matrix: DistMatrix, block: NDArray[Any], count: int) -> Listing:
    """Collective. The nodes of the highest ranks; of equal ones the first."""
    mine = in_file_order(matrix, block)
    best = np.argsort(-mine, kind="stable")[:count]
    first = file_rows(matrix)[0]
    found = comm.gather([(float(mine[k]), first + int(k) + 1) for k in best])
    listing = Listing(f"The first {count} of {matrix.shape[0]} nodes", COLUMNS)
    pairs = sorted((pair for part in found or [] for pair in part), key=lambda p: (-p[0], p[1]))
    listing.rows += [(place, node, rank) for place, (rank, node) in enumerate(pairs[:count], 1)]
    return listing


def _ranking(
    comm: MPI.Intracomm, matrix: DistMatrix, solution: Solution[Any], damping: float
) -> Verdict:
    """Collective. Against as many iterations with SciPy's products of the matrix on rank 0."""
    whole = matrix.gather()
    blocks = comm.gather(solution.x) or []

    def error() -> float:
        x = _serial(whole, damping, solution.iterations + 1)
        largest = float(np.max(x, initial=0.0))
        found = np.concatenate(blocks)
        return float(np.max(np.abs(found - x), initial=0.0)) / (largest or 1.0)

    allowed = TOLERANCE * float(np.finfo(matrix.dtype).eps)
    return Verdict(from_rank_0(comm, error), allowed)


def _serial(whole: Any, damping: float, iterations: int) -> NDArray[Any]:
    """Local. The ranks after some iterations, by SciPy's product."""
    size, out = whole.shape[0], np.asarray(whole.sum(axis=1)).reshape(-1)
    dangling = out == 0
    x = np.full(size, 1.0 / max(size, 1))
    for _ in range(iterations):
        given = np.divide(x, out, out=np.zeros(size), where=~dangling)
        x = damping * (whole.T @ given + x[dangling].sum() / size) + (1.0 - damping) / size
    return x
