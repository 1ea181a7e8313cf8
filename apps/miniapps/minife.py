"""``onesided minife``: steady temperatures by finite elements, the ghosts brought in several ways.

First the meshes of the order of convergence are solved on all ranks. Then all ways take turns with
the same number of iterations of conjugate gradients, on the last mesh or on those of the scaling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import log, prod
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.race import clocked
from onesided.apps.bench.selection import ways_of
from onesided.apps.bench.store import Part
from onesided.apps.cli.failures import CommandError, by_rank_0, closing, user_errors
from onesided.apps.cli.options import Options, box
from onesided.apps.cli.progress import progress
from onesided.apps.cli.report import Listing, Report
from onesided.apps.cli.statistics import Verdict, worst
from onesided.apps.miniapps import overhead
from onesided.apps.miniapps.halos import ways
from onesided.apps.miniapps.minife_mesh import PROBLEMS, Problem, Triple, fits
from onesided.apps.miniapps.minife_system import Errors, System
from onesided.apps.miniapps.solving import ITERATION_REMARK, Ran, run_ways
from onesided.apps.miniapps.stages import Stage, Tick, measured, stages, tell
from onesided.apps.report.chart import save_slice
from onesided.apps.report.result import REFERENCE
from onesided.collectives import agreed
from onesided.collectives.halo.faces import common, extents, within
from onesided.collectives.pattern import Box

Values = NDArray[np.float64]


def gathered(system: System, x: Values, wanted: Box) -> Values | None:
    """Collective. The values of a solution at the nodes of a box, on rank 0."""
    mesh, comm = system.mesh, system.comm
    own = mesh.own(comm.rank)
    parts: list[Any] | None = comm.gather(x.reshape(extents(own))[within(common(own, wanted), own)])
    if parts is None:
        return None
    values = np.empty(extents(wanted))
    for rank, part in enumerate(parts):
        if part.size:
            values[within(common(mesh.own(rank), wanted), wanted)] = part
    return values


# The same mesh on rank 0 alone, for comparison.

ROUNDING = 1e-12  # by which solutions differ where residuals are nothing


def alone(system: System, options: Options) -> Values | None:
    """Collective. The solution that rank 0 comes to by itself, from the elements on.

    :class:`.CommandError` on every rank where rank 0 has no room for it.
    """
    return by_rank_0(system.comm, lambda: _solved(system, options))


def _solved(system: System, options: Options) -> Values:
    """Local. On this rank, as an array of the mesh's nodes."""
    mesh = system.mesh
    own = System(MPI.COMM_SELF, mesh.elements, system.problem, mesh.distortion)
    solution = own.solution(own.matrix, options.rtol, options.maxiter)
    own.Free()
    found: Values = solution.x.reshape(mesh.points)
    return found


def compared(system: System, options: Options, expected: Values | None, x: Values) -> Verdict:
    """Collective. The largest difference from what rank 0 expects, relative to the largest value.

    Errors of a solution are those of its residual at most by the condition of the matrix, which
    is about the square of the number of elements along an axis.
    """
    mesh, comm, error = system.mesh, system.comm, 0.0
    with user_errors(), agreed(comm):
        found = gathered(system, x, mesh.whole)
        if found is not None and expected is not None:
            error = float(np.max(np.abs(found - expected)) / np.max(np.abs(expected)))
    return Verdict(comm.bcast(error), options.rtol * max(mesh.elements) ** 2 + ROUNDING)


# How many elements a run has along each axis. Pure: no communication.

LEAST = 2  # elements along an axis, so that there is a node inside
SHARE = 8  # elements of a rank on the coarsest mesh at least, where its size is not given
LEVELS = 3  # meshes, where nothing else is wanted and so many are possible


def elements_of(numbers: Sequence[int]) -> Triple:
    """Local. What ``--shape`` says; :class:`CommandError` for a mesh with no node inside."""
    a, b, c = box(numbers)
    if min(a, b, c) < LEAST:
        raise CommandError(
            f"--shape {' '.join(map(str, numbers))}: {LEAST} elements or more along each axis, "
            "else no node is inside"
        )
    return a, b, c


def grown(elements: Triple, shares: int) -> Triple:
    """Local. A mesh of so many times the elements, as near to a cube as can be."""
    lengths = list(elements)
    for factor in _factors(shares):
        lengths[lengths.index(min(lengths))] *= factor
    a, b, c = lengths
    return a, b, c


def halved(finest: Triple, count: int | None, ranks: int = 1) -> list[Triple]:
    """Local. From coarse to fine, each with half the elements of the next along each axis.

    As many as are usual and possible on so many ranks, unless a number is given;
    :class:`CommandError` where the coarsest has no node inside.
    """
    if count is None:
        count = 1
        while count < LEVELS and _is_mesh(_coarse(finest, count), ranks):
            count += 1
    found = [_coarse(finest, power) for power in reversed(range(count))]
    if min(found[0]) < LEAST:
        raise CommandError(
            f"--levels {count} leaves {min(found[0])} elements along an axis of "
            f"{words(finest)}; {LEAST} are needed"
        )
    return found


def _coarse(finest: Triple, power: int) -> Triple:
    """Local. What is left where it is halved so many times."""
    a, b, c = (length >> power for length in finest)
    return a, b, c


def _is_mesh(elements: Triple, ranks: int) -> bool:
    """Local. Whether it is worth to be cut for so many ranks."""
    roomy = min(elements) >= LEAST and prod(elements) >= SHARE * ranks
    return roomy and fits(elements, ranks)


def words(elements: Triple) -> str:
    """Local. For a person."""
    return " x ".join(map(str, elements))


def _factors(number: int) -> list[int]:
    """Local. Prime factors, the largest first."""
    for factor in range(2, number + 1):
        if number % factor == 0:
            return [*_factors(number // factor), factor]
    return []


# How fast the error falls on finer and finer meshes.

ORDER = 2.0  # of trilinear elements
OFF = 0.3  # what a measured order may lie off it
MARGIN = 2.0  # what the recurrence of a residual may lie off the residual itself
RESIDUAL = 1e-13  # of it, by rounding, relative to the right side
SEEN = 8  # elements along an axis from which the error falls as it does in the limit
_COLUMNS = {
    "x": "d",
    "y": "d",
    "z": "d",
    "unknowns": "d",
    "iterations": "d",
    "seconds": ".3g",
    "max error": ".2e",
    "order": ".2f",
    "rms error": ".2e",
    "rms order": ".2f",
}


@dataclass(frozen=True)
class Level:
    """A mesh, and what its solution came to: ``residual`` is computed anew."""

    elements: Triple
    unknowns: int
    iterations: int
    seconds: float
    residual: float
    errors: Errors
    bound: float


def converged(
    comm: MPI.Intracomm,
    options: Options,
    problem: Problem,
    meshes: Sequence[Triple],
    look: Callable[[System, NDArray[np.float64]], object],
    tick: Callable[[], object],
) -> list[Level]:
    """Collective. All levels, with the matrix's own halo.

    ``look``: is called with each system and this rank's block of its solution.
    :class:`.CommandError` on every rank where a mesh does not fit the ranks.
    """
    found = []
    for elements in meshes:
        with closing() as stack:
            system = System(comm, elements, problem, options.distort)
            stack.callback(system.Free)
            solve = partial(system.solution, system.matrix, options.rtol, options.maxiter)
            solution, seconds = clocked(comm, solve)
            level = Level(
                elements,
                system.unknowns,
                solution.iterations,
                seconds,
                system.residual(solution.x),
                system.errors(solution.x),
                system.bound,
            )
            look(system, solution.x)
        found.append(level)
        tick()
    return found


def listing(levels: Sequence[Level]) -> Listing:
    """Local. A row for each level."""
    table = Listing("Error on finer and finer meshes", _COLUMNS)
    before: Level | None = None
    for each in levels:
        largest, rms = orders(before, each) if before else (None, None)
        done = each.unknowns, each.iterations, each.seconds
        errors = each.errors
        table.rows.append([*each.elements, *done, errors.largest, largest, errors.rms, rms])
        before = each
    return table


def orders(coarse: Level, fine: Level) -> tuple[float, float]:
    """Local. The powers of the spacing with which the largest error and the rms fell."""
    ratio = log(min(fine.elements) / min(coarse.elements))
    one, other = coarse.errors, fine.errors
    return log(one.largest / other.largest) / ratio, log(one.rms / other.rms) / ratio


def verdicts(levels: Sequence[Level], rtol: float) -> dict[str, Verdict]:
    """Local. Of residuals, of errors as part of what the spacing explains, and of the last order.

    No order is judged where the coarser mesh is too coarse for it.
    """
    worst = max(each.errors.largest / each.bound for each in levels)
    residual = max(each.residual for each in levels)
    found = {
        "residuals of the solutions": Verdict(residual, MARGIN * rtol + RESIDUAL),
        "errors over what the spacing explains": Verdict(worst, 1.0),
    }
    if len(levels) > 1 and min(levels[-2].elements) >= SEEN:
        largest, _ = orders(*levels[-2:])
        found["order of convergence, off 2"] = Verdict(abs(largest - ORDER), OFF)
    return found


# One stage: what all ways came to on the mesh of some ranks.

_PARTS = ("integration", "sharing", "matrix")
_SETUP = {
    "ranks": "d",
    "unknowns": "d",
    "entries": "d",
    **{f"{part} s": ".3g" for part in _PARTS},
}
ALONE = "solutions, against rank 0 alone"


def judge(system: System, options: Options, part: Part, runs: Sequence[Ran]) -> None:
    """Collective. Every way's solution to a tolerance against the known one, and that of rank 0 if
    wanted."""
    expected = alone(system, options) if options.verify else None
    differences = []
    for ran in runs:
        row, solution = ran.row, ran.solver.solved(options.rtol, options.maxiter)
        row.nbytes = system.nbytes
        row.verdict = Verdict(system.errors(solution.x).largest, system.bound)
        tell(
            row,
            numbers={"GFLOP/s": system.flops / ran.median / 1e9},
            facts={
                "elements": list(system.mesh.elements),
                "residual": system.residual(solution.x),
                "converged": solution.converged,
                "solution_iterations": solution.iterations,
            },
        )
        if options.verify:
            differences.append(compared(system, options, expected, solution.x))
    if differences:
        part.verdicts[ALONE] = worst(differences)


def draw(system: System, x: Values, path: str) -> None:
    """Collective. An image of the temperature in the middle of the last axis, by rank 0."""
    mesh = system.mesh
    a, b, c = mesh.points
    values: Any = gathered(system, x, (*mesh.whole[:2], slice(c // 2, c // 2 + 1)))
    shape = "" if not mesh.distortion else ", distorted"
    place = (c // 2) / mesh.elements[2]
    title = f"Temperature at z = {place:.3g}, {words(mesh.elements)} elements{shape}"
    lengths = a / mesh.elements[0], b / mesh.elements[1]
    by_rank_0(
        system.comm, lambda: save_slice(path, title, ("x", "y"), values[:, :, 0], lengths)
    )


REMARKS = (
    f"{ITERATION_REMARK} GB/s: what the product and the vectors read and write at least, on all "
    "ranks.",
    "error: the largest of all nodes that are compared with the known solution, relative to its "
    "largest value; order: the power of the spacing with which it fell since the coarser mesh.",
)


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; its exit code is 1 where a result is wrong."""
    wanted = ways_of(options.comm, ways(), REFERENCE)
    problem, size = PROBLEMS[options.problem], elements_of(options.shape)
    meshes = halved(size, options.levels, comm.size)
    every = stages(comm.size, options)
    sizes = {stage: grown(size, stage.shares) if stage.scaling else size for stage in every}

    def look(system: System, x: Values) -> None:
        if options.picture is not None and system.mesh.elements == meshes[-1]:
            draw(system, x, options.picture)

    def work(sub: MPI.Intracomm, stage: Stage, part: Part, tick: Tick) -> None:
        with closing() as stack:
            system = System(sub, sizes[stage], problem, options.distort)
            stack.callback(system.Free)
            labels = {**stage.labels, "elements": words(sizes[stage])}

            def judged(runs: Sequence[Ran]) -> None:
                judge(system, options, part, runs)

            part.rows += run_ways(system, wanted, options, labels, judged, tick)
            seconds = [system.seconds[each] for each in _PARTS]
            part.more = [sub.size, system.unknowns, system.matrix.nnz, *seconds]

    with progress(comm, options, "converging", len(meshes)) as tick:
        levels = converged(comm, options, problem, meshes, look, tick)
    pattern = {
        "problem": options.problem,
        "elements": list(size),
        "distortion": options.distort,
        "ranks": comm.size,
        "stages": overhead.told(every, lambda stage: {"elements": words(sizes[stage])}),
    }
    report = Report("minife", options.settings(), pattern)
    report.remarks = [f"{problem.name}: {problem.summary}.", *REMARKS]
    parts = measured(comm, options, report, every, len(wanted) * options.repeats, work)
    setups = Listing("Assembly, by the slowest rank", _SETUP, [part.more for part in parts])
    report.listings = {"levels": listing(levels), "assembly": setups}
    report.verdicts = verdicts(levels, options.rtol) | report.verdicts
    return overhead.finish(comm, options, report, "MiniFE")
