"""Iterations of conjugate gradients, by every method and by PETSc."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.evidence.entrant import Entrant, rows, timed
from onesided.apps.evidence.stopwatch import Stopwatch, WatchedComm
from onesided.apps.failures import CommandError, user_errors
from onesided.apps.foreign import ForeignError
from onesided.apps.petsc import Petsc, cg_question, residual_question
from onesided.apps.report import Row
from onesided.apps.rowblock import RowBlock
from onesided.apps.selection import Candidate, hints, prepare, release
from onesided.apps.sparse_cases import grid
from onesided.apps.sparse_contest import Opponent
from onesided.apps.sparse_targets import PETSC
from onesided.apps.spmv import halo_setup, vector
from onesided.apps.verdict import Verdict
from onesided.sparse import DistMatrix, cg
from onesided.sparse.solvers import Solution

TOLERANCE = 1e-9  # what the residual may lie off that of the recurrence, relative to b
REMARK = (
    "CG: as many iterations as --steps says; communication is packing, sending and awaiting the "
    "halo, and the reductions; verified: b - A x computed anew against the residual of the "
    "recurrence, relative to b. Its set-up: initializing and freeing the halo's request. PETSc: "
    "KSPCG without a preconditioner on the same rows, in a job of its own."
)


def gradients(
    comm: MPI.Intracomm,
    options: Namespace,
    names: Sequence[str],
    seconds: float,
    tick: Callable[[], None],
) -> list[Row]:
    """Collective. The rows of the application."""
    with user_errors():
        block = _block(comm, options)
    if block.shape[0] != block.shape[1]:
        raise CommandError(f"--matrix {options.matrix}: it is {block.shape}, not square")
    candidates: list[Candidate[DistMatrix]] = prepare(
        comm, names, block.maker(comm, hints(options)), DistMatrix.Free
    )
    entrants = [Entrant(each.method, reason=each.reason) for each in candidates]
    try:
        for entrant, candidate in zip(entrants, candidates, strict=True):
            if candidate.made is not None:
                _enter(comm, entrant, candidate.made, options.steps)
    except CommandError:  # the same on every rank
        release(comm, candidates, DistMatrix.Free)
        raise
    opponent = _Opponent(comm, block, options.steps)
    times = timed(comm, [*entrants, opponent.entrant], options, seconds, tick)
    opponent.conclude(comm)
    opponent.close()
    release(comm, candidates, DistMatrix.Free)
    for entrant, candidate in zip(entrants, candidates, strict=True):
        if entrant.setup is not None:
            entrant.setup += candidate.freeing
    name = f"CG {_name(options)}"
    return rows(comm, name, [*entrants, opponent.entrant], times, [PETSC])


def _block(comm: MPI.Intracomm, options: Namespace) -> RowBlock:
    """Collective. This rank's rows."""
    if options.matrix is None:
        return grid(options.points, comm)
    return RowBlock.of_file(comm, Path(options.matrix))


def _name(options: Namespace) -> str:
    if options.matrix is None:
        return f"27-point {options.points}^3"
    return Path(options.matrix).name


def _enter(comm: MPI.Intracomm, entrant: Entrant, matrix: DistMatrix, steps: int) -> None:
    """Collective. What a solver does with a matrix, and whether its residual is true."""
    b = vector(*matrix.row_range, matrix.dtype)
    entrant.setup = halo_setup(comm, matrix)
    entrant.used = "" if matrix.method == entrant.name else matrix.method
    solution = _solution(matrix, b, steps)
    entrant.verdict = Verdict(_error(comm, matrix, b, solution), TOLERANCE)
    entrant.stopwatch = Stopwatch()
    entrant.stopwatch.watch(matrix.halo, "start", "finish")
    matrix.comm = WatchedComm(matrix.comm, entrant.stopwatch)
    entrant.call = partial(_solution, matrix, b, steps)


def _solution(matrix: DistMatrix, b: NDArray[Any], steps: int) -> Solution:
    """Collective. So many iterations, to a tolerance that is not reached."""
    solution = cg(matrix, b, rtol=0.0, maxiter=steps)
    if solution.iterations != steps:
        raise CommandError(
            f"conjugate gradients ended after {solution.iterations} of {steps} iterations: "
            f"{solution.reason}"
        )
    return solution


def _error(comm: MPI.Intracomm, matrix: DistMatrix, b: NDArray[Any], solution: Solution) -> float:
    """Collective. How far the norm of the residual lies off that of the recurrence."""
    rest = b - matrix @ solution.x
    squares = comm.allreduce(np.array([np.vdot(rest, rest).real, np.vdot(b, b).real]))
    length, size = np.sqrt(squares).tolist()
    return float(abs(length - solution.residuals[-1]) / (size or 1.0))


class _Opponent:
    """PETSc with our rows, or why it does not take part. Collective, as its methods are."""

    def __init__(self, comm: MPI.Intracomm, block: RowBlock, steps: int) -> None:
        self._job: Petsc | None = None
        asked = cg_question(steps, 0.0)  # so many iterations are a lead of their own
        try:
            whole = vector(0, block.shape[1], np.dtype(np.float64))
            self._job = job = Opponent.found(comm).start(comm, block, whole)
        except ForeignError as error:
            self.entrant = Entrant(PETSC, reason=str(error))
            return
        self.entrant = Entrant(
            PETSC, partial(job.run, asked), alone=True, own=partial(job.times, asked)
        )

    def conclude(self, comm: MPI.Intracomm) -> None:
        """Compare the residual that it came to, computed anew, with that of its recurrence."""
        if self._job is not None:
            if comm.rank == 0:
                self._job.run(residual_question())
            (error,) = self._job.times(residual_question(), 1)
            self.entrant.verdict = Verdict(error, TOLERANCE)

    def close(self) -> None:
        """End the job."""
        if self._job is not None:
            self._job.close()
            self._job = None
