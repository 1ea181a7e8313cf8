"""``onesided solve``: a system of linear equations whose matrix is in a file."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.failures import CommandError
from onesided.apps.solve_runs import Runs, Solve
from onesided.apps.solve_vectors import right_hand_side
from onesided.apps.verdict import Verdict
from onesided.sparse import DistMatrix, solvers
from onesided.sparse.preconditioners import SSOR, BlockILU, Jacobi, Preconditioner
from onesided.sparse.solvers import Solution
from onesided.sparse.solvers.solution import LEAST_SQUARES

MARGIN = 2.0  # what the recurrence of a residual may lie off the residual itself
ROUNDING = 1e3  # of it, in units of the dtype's epsilon
REMARK = (
    "Times are of one solution. Error: norm(b - A x) / norm(b) computed anew (least squares: "
    "norm(A.H r) / (norm(A) norm(r))), to be within what --rtol and --atol allow."
)


@dataclass(frozen=True)
class Solver:
    """A solver of the library, whether it wants a definite matrix, and its own options."""

    call: Callable[..., Solution]
    definite: bool = False
    precond: bool = True
    options: Callable[[Namespace], Mapping[str, Any]] = lambda options: {}


SOLVERS = {
    "cg": Solver(solvers.cg, definite=True),
    "pipelined-cg": Solver(solvers.pipelined_cg, definite=True),
    "bicgstab": Solver(solvers.bicgstab),
    "gmres": Solver(solvers.gmres, options=lambda options: {"restart": options.basis}),
    "chebyshev": Solver(solvers.chebyshev, definite=True),
    "lsqr": Solver(solvers.lsqr, precond=False),
}
Make = Callable[[DistMatrix, Namespace, bool], Preconditioner | None]
PRECONDITIONERS: Mapping[str, Make] = {
    "none": lambda matrix, options, definite: None,
    "jacobi": lambda matrix, options, definite: Jacobi(matrix),
    "ilu": lambda matrix, options, definite: BlockILU(
        matrix, hermitian=definite, fill_factor=options.fill
    ),
    "ssor": lambda matrix, options, definite: SSOR(matrix, omega=options.omega),
}


def run(comm: MPI.Intracomm, options: Namespace) -> int:
    """Collective. The command; its exit code is 1 where the solver did not converge."""
    solver = SOLVERS[options.solver]
    if not solver.precond and options.precond != "none":
        raise CommandError(f"--solver {options.solver} takes no preconditioner")
    runs = Runs(comm, options, "solve", REMARK)
    sides: dict[int, NDArray[Any]] = {}

    def prepared(matrix: DistMatrix) -> Solve:
        side = sides[id(matrix)] = right_hand_side(comm, matrix, options.rhs)
        how = {"rtol": options.rtol, "atol": options.atol, "maxiter": options.maxiter}
        how |= solver.options(options)
        if solver.precond:
            how["M"] = PRECONDITIONERS[options.precond](matrix, options, solver.definite)
        return lambda: solver.call(matrix, side, **how)

    def verdict(matrix: DistMatrix, solution: Solution) -> Verdict:
        return _verdict(comm, options, matrix, solution, sides[id(matrix)])

    outcomes = runs.solve(prepared, verdict)
    facts = {"solver": options.solver, "precond": options.precond, "rhs": options.rhs}
    return runs.finish(outcomes, "norm of the residual", facts)


def _verdict(
    comm: MPI.Comm,
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


def _norm(comm: MPI.Comm, block: NDArray[Any]) -> float:
    """Collective. The Euclidean norm of all blocks together."""
    return float(np.sqrt(comm.allreduce(float(np.vdot(block, block).real))))
