"""``onesided bench apps``: applications end to end, by every method and by others.

A Fourier transform forward and backward, against mpi4py-fft, and iterations of conjugate
gradients, against PETSc, with the time apart in set-up, communication and compute.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.foreign import ForeignError
from onesided.apps.bench.race import (
    LEAD,
    Contestant,
    Race,
    Stopwatch,
    WatchedComm,
    clocked,
    nothing,
    race,
)
from onesided.apps.bench.selection import BASELINE, chosen, hints, prepare, release
from onesided.apps.bench.store import Part, Parts
from onesided.apps.cli.failures import CommandError, user_errors
from onesided.apps.cli.options import Options, edge
from onesided.apps.cli.progress import progress
from onesided.apps.cli.report import Report, Row
from onesided.apps.cli.statistics import Verdict, conclusion
from onesided.apps.tools.fft import FourierCheck, plan_maker, random_input, used_method
from onesided.apps.tools.fft_contest import PEER
from onesided.apps.tools.petsc import cg_question, residual_question
from onesided.apps.tools.rowblock import RowBlock
from onesided.apps.tools.spmv import halo_setup, vector
from onesided.apps.tools.spmv_contest import PETSC, Opponent, grid
from onesided.pencilfft import PFFT, newDistArray
from onesided.sparse import DistMatrix, cg
from onesided.sparse.solvers import Solution

# One who runs an application: a method of ours, or an opponent; and the rows that come of all.

COMMUNICATION = "communication"
Tick = Callable[[], None]


@dataclass
class Entrant:
    """``contestant`` runs the application once; ``reason``: why there is none.

    ``setup``: seconds of what comes before and after all runs; ``used``: what ``auto`` chose;
    ``close``: Collective, frees what an opponent holds.
    """

    name: str
    contestant: Contestant | None = None
    setup: float | None = None
    used: str = ""
    reason: str = ""
    close: Callable[[], object] = nothing


def run_all(
    comm: MPI.Intracomm, entrants: Sequence[Entrant], options: Options, seconds: float, tick: Tick
) -> Race:
    """Collective. All entrants in turns."""
    field = [each.contestant for each in entrants if each.contestant is not None]
    return race(comm, field, iterations=options.iterations, seconds=seconds, tick=tick)


def rows(application: str, entrants: Sequence[Entrant], found: Race, opponent: str) -> list[Row]:
    """Local. A row for everyone, with communication and compute apart where that is known.

    Their sum is the time of a run: communication is the mean over the ranks, compute the rest,
    which the slowest rank decides.
    """
    times = found.times
    against = {name: times[name] for name in (BASELINE, opponent) if name in times}
    made: list[Row] = []
    for each in entrants:
        labels = {"application": application, "method": each.name}
        if each.reason:
            made.append(Row(labels, reason=each.reason))
            continue
        taken, details = times[each.name], dict(found.parts[each.name])
        if details:
            inside = details[COMMUNICATION]
            rest = [whole - part for whole, part in zip(taken, inside, strict=True)]
            details["compute"] = rest
        row = Row(labels, taken, each.setup, against=against, details=details, used=each.used)
        row.verdict, row.hidden = found.verdicts.get(each.name), ("quartiles", "error")
        made.append(row)
    return made


# A Fourier transform forward and backward, by every method and by mpi4py-fft.

TRANSFORM_REMARK = (
    "FFT: communication is inside the calls of the transposes' requests; what a method writes "
    "straight into the memory of other ranks, while it transforms, is compute. Its set-up: making "
    "and freeing the plan, when what was measured for it is remembered (ONESIDED_WISDOM)."
)
#: The calls of a transpose, and of one of mpi4py-fft's.
SHAPE, POINTS = [128, 128, 128], 64  # of an array, and along an edge of a cube
OURS = ("open", "start", "ready", "wait", "release")


def transforms(
    comm: MPI.Intracomm, options: Options, names: Sequence[str], seconds: float, tick: Tick
) -> list[Row]:
    """Collective. The rows of the application."""
    options = options.but(shape=options.shape or SHAPE, backend="auto", grid=["auto"])
    if len(options.shape) < 2:
        raise CommandError(f"--shape {options.shape[0]}: two dimensions at least are wanted")
    make = plan_maker(comm, options)
    release(comm, prepare(comm, names, make, PFFT.destroy), PFFT.destroy)  # wisdom is known now
    candidates = prepare(comm, names, make, PFFT.destroy)
    first = next(iter(candidates.made.values()))
    source = random_input(comm, first)
    arrays = source, newDistArray(first, True), newDistArray(first, False)
    check = FourierCheck(comm, first, source)
    entrants = [
        Entrant(each.method, reason=each.reason)
        if each.made is None
        else _transform(each.method, each.made, arrays, check)
        for each in candidates
    ]
    peer = _peer(comm, options, source)
    found = run_all(comm, [*entrants, peer], options, seconds, tick)
    release(comm, candidates, PFFT.destroy)
    _, freeing = clocked(comm, peer.close)
    if peer.setup is not None:
        peer.setup += freeing
    for entrant, candidate in zip(entrants, candidates, strict=True):
        entrant.setup = candidate.setup + candidate.freeing
    kind = "c2c" if options.dtype.startswith("complex") else "r2c"
    name = f"FFT {kind} {'x'.join(map(str, options.shape))}"
    return rows(name, [*entrants, peer], found, PEER)


def _transform(
    name: str, plan: PFFT, arrays: tuple[Any, Any, Any], check: FourierCheck
) -> Entrant:
    """Local. What a plan does, with its communication under a watch."""
    source, spectrum, back = arrays
    used, stopwatch = used_method(plan, name), Stopwatch()
    for transpose in plan.transposes:
        stopwatch.watch(transpose, *OURS)

    def call() -> None:
        plan.forward(source, spectrum)
        plan.backward(spectrum, back)

    parts = {COMMUNICATION: stopwatch}
    contestant = Contestant(name, call, partial(check, plan), lead=LEAD, parts=parts)
    used = "" if used == name else used.partition("(")[2].rstrip(")")
    return Entrant(name, contestant, used=used)


def _peer(comm: MPI.Intracomm, options: Options, source: Any) -> Entrant:
    """Collective. The plan of mpi4py-fft with FFTW, or why there is none.

    It transforms its own arrays, which hold the same numbers where they can.
    """
    if find_spec("mpi4py_fft") is None:
        return Entrant(PEER, reason="it is not installed (it needs FFTW)")
    from mpi4py_fft import PFFT as PeerPFFT
    from mpi4py_fft import newDistArray as peers_array

    shape, stopwatch = tuple(options.shape), Stopwatch()
    plan, setup = clocked(
        comm, lambda: PeerPFFT(comm, shape, dtype=options.dtype, backend="fftw")
    )
    for transfer in plan.transfer:
        transfer.comm = WatchedComm(transfer.comm, stopwatch)
    if plan.forward.input_array.shape == source.shape:
        plan.forward.input_array[...] = source

    def call() -> None:
        plan.forward()
        plan.backward()

    check = partial(FourierCheck(comm, plan, np.array(plan.forward.input_array), peers_array), plan)
    contestant = Contestant(PEER, call, check, lead=LEAD, parts={COMMUNICATION: stopwatch})
    return Entrant(PEER, contestant, setup, close=plan.destroy)


# Iterations of conjugate gradients, by every method and by PETSc.

TOLERANCE = 1e-9  # what the residual may lie off that of the recurrence, relative to b
GRADIENT_REMARK = (
    "CG: as many iterations as --maxiter says; communication is packing, sending and awaiting the "
    "halo, and the reductions; verified: b - A x computed anew against the residual of the "
    "recurrence, relative to b. Its set-up: initializing and freeing the halo's request. PETSc: "
    "KSPCG without a preconditioner on the same rows, in a job of its own."
)


def gradients(
    comm: MPI.Intracomm, options: Options, names: Sequence[str], seconds: float, tick: Tick
) -> list[Row]:
    """Collective. The rows of the application."""
    options = options.but(shape=options.shape or [POINTS])
    with user_errors():
        if options.matrix is None:
            block, name = grid(edge(options), comm), f"27-point {edge(options)}^3"
        else:
            file = Path(options.matrix)
            block, name = RowBlock.of_file(comm, file), file.name
    if block.shape[0] != block.shape[1]:
        raise CommandError(f"--matrix {options.matrix}: it is {block.shape}, not square")
    make = block.maker(comm, hints(options))
    candidates = prepare(comm, names, make, DistMatrix.Free)
    try:
        entrants = [
            Entrant(each.method, reason=each.reason)
            if each.made is None
            else _gradient(comm, each.method, each.made, options.maxiter)
            for each in candidates
        ]
    except CommandError:  # the same on every rank
        release(comm, candidates, DistMatrix.Free)
        raise
    opponent = _opponent(comm, block, options.maxiter)
    found = run_all(comm, [*entrants, opponent], options, seconds, tick)
    opponent.close()
    release(comm, candidates, DistMatrix.Free)
    for entrant, candidate in zip(entrants, candidates, strict=True):
        if entrant.setup is not None:
            entrant.setup += candidate.freeing
    return rows(f"CG {name}", [*entrants, opponent], found, PETSC)


def _gradient(comm: MPI.Intracomm, name: str, matrix: DistMatrix, steps: int) -> Entrant:
    """Collective. What a solver does with a matrix, and whether its residual is true."""
    b = vector(*matrix.row_range, matrix.dtype)
    setup, used = halo_setup(comm, matrix), "" if matrix.method == name else matrix.method
    _solution(matrix, b, steps)  # an error of what was asked for comes here

    def check() -> Verdict:
        return Verdict(_error(comm, matrix, b, _solution(matrix, b, steps)), TOLERANCE)

    stopwatch = Stopwatch()
    stopwatch.watch(matrix.halo, "start", "finish")
    matrix.comm = WatchedComm(matrix.comm, stopwatch)
    call = partial(_solution, matrix, b, steps)
    contestant = Contestant(name, call, check, parts={COMMUNICATION: stopwatch})
    return Entrant(name, contestant, setup, used)


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


def _opponent(comm: MPI.Intracomm, block: RowBlock, steps: int) -> Entrant:
    """Collective. PETSc with our rows, or why it does not take part."""
    asked = cg_question(steps, 0.0)  # so many iterations are a lead of their own
    try:
        whole = vector(0, block.shape[1], np.dtype(np.float64))
        job = Opponent.found(comm).start(comm, block, whole)
    except ForeignError as error:
        return Entrant(PETSC, reason=str(error))

    def check() -> Verdict:
        """Compare the residual that it comes to, computed anew, with that of its recurrence."""
        if comm.rank == 0:
            job.run(asked)
            job.run(residual_question())
        (error,) = job.times(residual_question(), 1)
        return Verdict(error, TOLERANCE)

    contestant = Contestant(
        PETSC, partial(job.run, asked), check, alone=True, own=partial(job.times, asked)
    )
    return Entrant(PETSC, contestant, close=job.close)


Application = Callable[[MPI.Intracomm, Options, Sequence[str], float, Tick], list[Row]]
REMARK = (
    "Communication: mean over the ranks; compute: the rest of the time of the slowest. Break-even: "
    "runs after which the set-up has paid."
)
#: By the words of ``--applications``: what is run, and the remark about it.
APPLICATIONS: dict[str, tuple[Application, str]] = {
    "fft": (transforms, TRANSFORM_REMARK),
    "cg": (gradients, GRADIENT_REMARK),
}


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; its exit code is 1 where a result is wrong."""
    names = chosen(options.comm)
    wanted = list(dict.fromkeys(options.applications))
    pattern = {"ranks": comm.size, "applications": wanted, "maxiter": options.maxiter}
    given = options.settings()
    if options.matrix is not None:
        given["matrix"] = Path(options.matrix).name
    report = Report("bench apps", given, pattern)
    share = options.seconds / len(wanted)
    parts = Parts(comm, report, options.json)
    with progress(comm, options, "running", len(wanted) * options.iterations) as tick:
        for name in wanted:
            application, remark = APPLICATIONS[name]

            def measure(part: Part, application: Application = application) -> None:
                part.rows += application(comm, options, names, share, tick)

            parts.add(name, measure)
            report.remarks.append(remark)
    verdicts = [row.verdict for row in report.rows if row.verdict is not None]
    report.remarks += [REMARK, conclusion(verdicts, "serial transforms, and residuals")]
    return report.end(comm, options)
