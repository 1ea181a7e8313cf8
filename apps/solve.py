"""``onesided solve``: a system of linear equations whose matrix is in a file."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided import sparse
from onesided.apps.failures import CommandError
from onesided.apps.solve_options import PRECONDITIONERS, SOLVERS, Named
from onesided.apps.solve_runs import Runs, Solve
from onesided.apps.solve_vectors import right_hand_side
from onesided.apps.verdict import Verdict
from onesided.collectives.context import Scoped
from onesided.sparse import DistMatrix, Solution
from onesided.sparse.solvers.solution import LEAST_SQUARES

MARGIN = 2.0  # what the recurrence of a residual may lie off the residual itself
ROUNDING = 1e3  # of it, in units of the dtype's epsilon
REMARK = (
    "Times are of one solution. Error: norm(b - A x) / norm(b) computed anew (least squares: "
    "norm(A.H r) / (norm(A) norm(r))), to be within what --rtol and --atol allow."
)


def _keywords(entry: Named, values: Mapping[str, Any]) -> dict[str, Any]:
    """Local. What the options say for a solver or a preconditioner."""
    return {keyword: values[option] for option, keyword in entry.keywords.items()}


def run(comm: MPI.Intracomm, options: Namespace) -> int:
    """Collective. The command; its exit code is 1 where the solver did not converge."""
    solver, precond = SOLVERS[options.solver], PRECONDITIONERS[options.precond]
    if precond is not None and not solver.preconditioned:
        raise CommandError(f"--solver {options.solver} takes no preconditioner")
    runs = Runs(comm, options, "solve", REMARK)
    sides: dict[int, NDArray[Any]] = {}
    made: list[Any] = []
    values = {**vars(options), "hermitian": solver.hermitian}

    def prepared(matrix: DistMatrix) -> Solve:
        side = sides[id(matrix)] = right_hand_side(comm, matrix, options.rhs)
        how = {"rtol": options.rtol, "atol": options.atol, "maxiter": options.maxiter}
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
    options: Namespace,
    matrix: DistMatrix,
    solution: Solution,
    side: NDArray[Any],
) -> Verdict:
    """Collective. The residual computed anew, relative to what it may be."""
    rest = side - matrix @ solution.x
    size, length = _norm(comm, side), _norm(comm, rest)
    allowed = max(options.rtol, options.atol / (size or 1.0))
    error = length / (size or 1.0)
    if solution.reason == LEAST_SQUARES:
        frobenius = _norm(comm, matrix.local_rows().data)
        error = _norm(comm, matrix.H @ rest) / ((frobenius * length) or 1.0)
    rounding = ROUNDING * float(np.finfo(matrix.dtype).eps)
    return Verdict(error, MARGIN * allowed + rounding)


def _norm(comm: MPI.Intracomm, block: NDArray[Any]) -> float:
    """Collective. The Euclidean norm of all blocks together."""
    return float(np.sqrt(comm.allreduce(float(np.vdot(block, block).real))))
