"""``onesided bench apps``: applications end to end, by every method and by others.

A Fourier transform forward and backward, against mpi4py-fft, and iterations of conjugate
gradients, against PETSc, with the time apart in set-up, communication and compute.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.choices import chosen, hints
from onesided.apps.bench.sweep import Case, Labels, Make, sweep
from onesided.apps.bench.timing import Variant, rounds_of, sums_of_solvers
from onesided.apps.cli.failures import CommandError
from onesided.apps.cli.options import Options, edge
from onesided.apps.cli.report import BASELINE, METHOD, Report
from onesided.apps.cli.statistics import Verdict
from onesided.apps.tools.fft import COMMUNICATION, PEER, transform_case
from onesided.apps.tools.petsc import Petsc, question
from onesided.apps.tools.rowblock import RowBlock
from onesided.apps.tools.spmv import PETSC, grid, halo_setup, vector
from onesided.collectives import profile
from onesided.sparse import DistMatrix, cg
from onesided.sparse.solvers import Solution

SHAPE, POINTS = [128, 128, 128], 64  # of an array, and along an edge of a cube
TOLERANCE = 1e-9  # what the residual may lie off that of the recurrence, relative to b
TRANSFORM_REMARK = (
    "FFT: communication is inside the calls of the transposes' requests; what a method writes "
    "straight into the memory of other ranks, while it transforms, is compute. Its set-up: making "
    "and freeing the plan that is timed."
)
GRADIENT_REMARK = (
    "CG: as many iterations as --maxiter says; communication is packing, sending and awaiting the "
    "halo, and the reductions; verified: b - A x computed anew against the residual of the "
    "recurrence, relative to b. Its set-up: initializing and freeing the halo's request. PETSc: "
    "KSPCG without a preconditioner, with the natural norm, on the same rows, in a job of its own."
)
REMARK = (
    "Communication: mean over the ranks; compute: the rest of the time of the slowest. Break-even: "
    "runs after which the set-up has paid."
)


def transforms(options: Options, names: Sequence[str]) -> Case:
    """Local. The first application."""
    given = options.but(shape=options.shape or SHAPE, backend="auto", grid=["auto"])
    if len(given.shape) < 2:
        raise CommandError(f"--shape {given.shape[0]}: two dimensions at least are wanted")
    kind = "c2c" if given.dtype.startswith("complex") else "r2c"
    labels = {"application": f"FFT {kind} {'x'.join(map(str, given.shape))}"}
    return transform_case(given, given.shape, names, opponents=[PEER], apart=True, labels=labels,
                          setups=3)  # fmt: skip


def gradients(options: Options, names: Sequence[str]) -> Case:
    """Local. The second application."""
    points = edge(options.but(shape=options.shape or [POINTS]))
    variants = [{METHOD: each} for each in (*names, PETSC)]
    return Case({"application": f"CG 27-point {points}^3"}, variants,
                partial(_opened, points, options), against=(BASELINE, PETSC), rest="compute")


def _opened(points: int, options: Options, comm: MPI.Intracomm, stack: ExitStack) -> Make:
    """Collective. The matrix, and what makes a solver of it."""
    block, steps = grid(points, comm), options.maxiter
    maker = block.maker(comm, hints(options))
    stack.enter_context(profile(comm))

    def make(labels: Labels) -> Variant:
        name = labels[METHOD]
        if name == PETSC:
            return _petsc(comm, block, steps)
        return _gradient(comm, maker(name), steps)

    return make


def _gradient(comm: MPI.Intracomm, matrix: DistMatrix, steps: int) -> Variant:
    """Collective. What a solver does with a matrix, and whether its residual is true."""
    b = vector(*matrix.row_range, matrix.dtype)
    setup = halo_setup(comm, matrix)
    _solution(matrix, b, steps)  # an error of what was asked for comes here
    communication = rounds_of(matrix.halo.request, sums_of_solvers(comm, matrix.dtype))

    def check() -> Verdict:
        """How far the norm of the residual lies off that of the recurrence."""
        solution = _solution(matrix, b, steps)
        rest = b - matrix @ solution.x
        squares = comm.allreduce(np.array([np.vdot(rest, rest).real, np.vdot(b, b).real]))
        length, size = np.sqrt(squares).tolist()
        return Verdict(float(abs(length - solution.residuals[-1]) / (size or 1.0)), TOLERANCE)

    return Variant(
        partial(_solution, matrix, b, steps), check, parts={COMMUNICATION: communication},
        free=matrix.Free, set_up=setup, used=matrix.method,
    )  # fmt: skip


def _solution(matrix: DistMatrix, b: NDArray[Any], steps: int) -> Solution[Any]:
    """Collective. So many iterations, to a tolerance that is not reached."""
    solution = cg(matrix, b, rtol=0.0, maxiter=steps)
    if solution.iterations != steps:
        raise CommandError(
            f"conjugate gradients ended after {solution.iterations} of {steps} iterations: "
            f"{solution.reason}"
        )
    return solution


def _petsc(comm: MPI.Intracomm, block: RowBlock, steps: int) -> Variant:
    """Collective. PETSc with our rows; ``ForeignError`` where it does not take part."""
    asked = question("cg", steps)  # so many iterations are a warm-up of their own
    job = Petsc(comm, block, vector(0, block.shape[1], np.dtype(np.float64)))

    def check() -> Verdict:
        """Compare the residual that it comes to, computed anew, with that of its recurrence."""
        job.ask(asked)
        return Verdict(job.ask(question("residual")), TOLERANCE)

    return Variant(partial(job.run, asked), check, on_root=True, own=partial(job.times, asked),
                   free=job.close, set_up=False, metrics={"type": job.facts["type"]})  # fmt: skip


#: By the words of ``--applications``: what is run, and the remark about it.
APPLICATIONS: dict[str, tuple[Callable[[Options, Sequence[str]], Case], str]] = {
    "fft": (transforms, TRANSFORM_REMARK),
    "cg": (gradients, GRADIENT_REMARK),
}


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; its exit code is 1 where a result is wrong."""
    names = chosen(options.comm)
    wanted = list(dict.fromkeys(options.applications))
    pattern = {"ranks": comm.size, "applications": wanted, "maxiter": options.maxiter}
    report = Report("bench apps", options.settings(), pattern, by="application")
    cases = [APPLICATIONS[name][0](options, names) for name in wanted]
    sweep(comm, options, report, cases, "running")
    report.remarks += [APPLICATIONS[name][1] for name in wanted]
    report.remarks.append(REMARK)
    return report.end(comm, options, "serial transforms, and residuals")
