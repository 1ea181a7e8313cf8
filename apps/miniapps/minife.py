"""``onesided minife``: steady temperatures by finite elements, the ghosts brought in several ways.

First the meshes of the order of convergence are solved on all ranks. Then all ways take turns with
the same number of iterations of conjugate gradients, on the last mesh or on those of the scaling.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.race import rest
from onesided.apps.bench.store import Part, Parts
from onesided.apps.cli.failures import CommandError, closing, user_errors
from onesided.apps.cli.options import Options, box
from onesided.apps.cli.report import Listing, Report
from onesided.apps.cli.statistics import Verdict, worst
from onesided.apps.miniapps import overhead
from onesided.apps.miniapps.halos import ways
from onesided.apps.miniapps.minife_convergence import converged, listing, verdicts
from onesided.apps.miniapps.minife_mesh import PROBLEMS, Box, Mesh, Triple, fits
from onesided.apps.miniapps.minife_system import System
from onesided.apps.miniapps.overhead import drawing
from onesided.apps.miniapps.race import Ran, run_ways
from onesided.apps.miniapps.way import (
    MiniRow,
    Stage,
    Way,
    by_name,
    chosen,
    mini_rows,
    scaled,
    stages,
)
from onesided.apps.report.chart import save_slice
from onesided.collectives import agree, agreed

# The same mesh on rank 0 alone, for comparison.

ROOT = 0
ROUNDING = 1e-12  # by which solutions differ where residuals are nothing


class Alone:
    """The solution that rank 0 comes to by itself, from the elements on, while others sleep.

    Errors of a solution are those of its residual at most by the condition of the matrix, which
    is about the square of the number of elements along an axis.
    """

    def __init__(self, system: System, options: Options) -> None:
        """Collective. :class:`.CommandError` on every rank where rank 0 has no room for it."""
        self._system = system
        comm, mesh = system.comm, system.mesh
        self._tolerance = options.rtol * max(mesh.elements) ** 2 + ROUNDING
        self._expected: NDArray[np.float64] | None = None
        error: BaseException | None = None
        if comm.rank == ROOT:
            try:
                self._expected = _solved(system, options)
            except Exception as problem:  # raised on all ranks below
                error = problem
        rest(comm)
        with user_errors():
            agree(comm, error, "the solution of rank 0 alone")

    def compared(self, x: NDArray[np.float64]) -> Verdict:
        """Collective. The largest difference, relative to the largest value."""
        mesh, comm = self._system.mesh, self._system.comm
        parts: list[Any] | None = comm.gather(x, root=ROOT)
        error = 0.0
        with user_errors(), agreed(comm):
            if parts is not None and self._expected is not None:
                whole = Box((0, 0, 0), mesh.points)
                found = np.empty(mesh.points)
                for rank, part in enumerate(parts):
                    own = mesh.own(rank)
                    found[own.within(whole)] = part.reshape(own.extent)
                scale = float(np.max(np.abs(self._expected)))
                error = float(np.max(np.abs(found - self._expected))) / scale
        return Verdict(float(comm.bcast(error, root=ROOT)), self._tolerance)


def _solved(system: System, options: Options) -> NDArray[np.float64]:
    """Local. On this rank, as an array of the mesh's nodes."""
    mesh = system.mesh
    own = System(MPI.COMM_SELF, mesh.elements, system.problem, mesh.distortion)
    solution = own.solution(own.matrix, options.rtol, options.maxiter)
    own.Free()
    found: NDArray[np.float64] = solution.x.reshape(mesh.points)
    return found


# How many elements a run has along each axis. Pure: no communication.

LEAST = 2  # elements along an axis, so that there is a node inside
SHARE = 8  # elements of a rank on the coarsest mesh at least, where its size is not given
LEVELS = 3  # meshes, where nothing else is wanted and so many are possible


def extents(numbers: Sequence[int]) -> Triple:
    """Local. What ``--shape`` says; :class:`CommandError` for a mesh with no node inside."""
    a, b, c = box(numbers)
    if min(a, b, c) < LEAST:
        raise CommandError(
            f"--shape {' '.join(map(str, numbers))}: {LEAST} elements or more along each axis, "
            "else no node is inside"
        )
    return a, b, c


def of_stage(elements: Triple, stage: Stage) -> Triple:
    """Local. The mesh of a stage: where nothing is scaled, the size is that of the whole mesh."""
    return grown(elements, stage.shares) if stage.scaling else elements


def grown(elements: Triple, shares: int) -> Triple:
    """Local. A mesh of so many times the elements, as near to a cube as can be."""
    lengths = list(elements)
    for factor in reversed(_factors(shares)):  # the largest first
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
        while count < LEVELS and _coarse(finest, count, ranks):
            count += 1
    found = []
    for power in range(count - 1, -1, -1):
        a, b, c = (length >> power for length in finest)
        if min(a, b, c) < LEAST:
            raise CommandError(
                f"--levels {count} leaves {min(a, b, c)} elements along an axis of "
                f"{words(finest)}; {LEAST} are needed"
            )
        found.append((a, b, c))
    return found


def _coarse(finest: Triple, power: int, ranks: int) -> bool:
    """Local. Whether a mesh is still one for these ranks when it is halved so many times."""
    lengths = [length >> power for length in finest]
    a, b, c = lengths
    roomy = min(lengths) >= LEAST and prod(lengths) >= SHARE * ranks
    return roomy and fits((a, b, c), ranks)


def words(elements: Triple) -> str:
    """Local. For a person."""
    return " x ".join(map(str, elements))


def _factors(number: int) -> list[int]:
    """Local. Prime factors, ascending."""
    found, factor = [], 2
    while number > 1:
        while number % factor == 0:
            found.append(factor)
            number //= factor
        factor += 1
    return found


# One stage: what all ways came to on the mesh of some ranks.

_PARTS = ("integration", "sharing", "matrix")
_SETUP = {
    "ranks": "d",
    "unknowns": "d",
    "entries": "d",
    **{f"{part} s": ".3g" for part in _PARTS},
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
    options: Options,
    found: Findings,
    tick: Callable[[], None],
) -> None:
    """Collective. Run all ways on a mesh; what comes of it is added to ``found``.

    :class:`.CommandError` on every rank for what cannot be done.
    """
    found.rows += run_ways(system, ways, options, Judge(system, stage, options, found), tick)
    seconds = [system.seconds[part] for part in _PARTS]
    found.setup.rows.append([system.comm.size, system.unknowns, system.matrix.nnz, *seconds])


@dataclass(frozen=True)
class Judge:
    """Solutions to a tolerance, against the known one."""

    system: System
    stage: Stage
    options: Options
    found: Findings

    @property
    def labels(self) -> Mapping[str, str]:
        """Local."""
        return {**self.stage.labels, "elements": words(self.system.mesh.elements)}

    def judge(self, runs: Sequence[Ran]) -> None:
        """Collective. Every way's solution against the known one, and that of rank 0 if wanted."""
        system, options = self.system, self.options
        alone = Alone(system, options) if options.verify else None
        for ran in runs:
            row, solution = ran.row, ran.solver.to_tolerance(options.rtol, options.maxiter)
            row.nbytes = system.nbytes
            row.numbers = {"GFLOP/s": system.flops / ran.iteration.median / 1e9}
            row.verdict = Verdict(system.errors(solution.x).largest, system.bound)
            row.facts = {
                **row.facts,
                "elements": list(system.mesh.elements),
                "residual": system.residual(solution.x),
                "converged": solution.converged,
                "solution_iterations": solution.iterations,
            }
            if alone is not None:
                self.found.compared.append(alone.compared(solution.x))


# The temperature in the middle of the last axis, gathered and drawn.


def middle(system: System, x: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Collective. The values of a solution in the middle plane of nodes, on rank 0."""
    mesh, comm = system.mesh, system.comm
    a, b, c = mesh.points
    plane = Box((0, 0, c // 2), (a, b, c // 2 + 1))
    own = mesh.own(comm.rank)
    mine = own.common(plane)
    part = x.reshape(own.extent)[mine.within(own)] if mine.size else None
    parts: list[Any] | None = comm.gather((mine, part), root=ROOT)
    if parts is None:
        return None
    values = np.empty(plane.extent)
    for part, piece in parts:
        if piece is not None:
            values[part.within(plane)] = piece
    return values[:, :, 0]


def draw(system: System, x: NDArray[np.float64], path: str) -> None:
    """Collective. An image of it, written by rank 0."""
    values = middle(system, x)
    with drawing(system.comm):
        if values is not None:
            _save(system.mesh, values, path)


def _save(mesh: Mesh, values: NDArray[np.float64], path: str) -> None:
    """Local."""
    place = (mesh.points[2] // 2) / mesh.elements[2]
    shape = "" if not mesh.distortion else ", distorted"
    lengths = [points / count for points, count in zip(mesh.points, mesh.elements, strict=True)]
    title = f"Temperature at z = {place:.3g}, {words(mesh.elements)} elements{shape}"
    save_slice(path, title, ("x", "y"), values, (lengths[0], lengths[1]))


REMARKS = (
    f"{overhead.ITERATION_REMARK} GB/s: what the product and the vectors read and write at least, "
    "on all "
    "ranks.",
    "error: the largest of all nodes that are compared with the known solution, relative to its "
    "largest value; order: the power of the spacing with which it fell since the coarser mesh.",
)


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; its exit code is 1 where a result is wrong."""
    wanted = by_name(chosen(options.comm, ways()))
    problem, size = PROBLEMS[options.problem], extents(options.shape)
    meshes = halved(size, options.levels, comm.size)
    every = stages(comm.size, options)
    found = Findings()
    steps = len(meshes) + len(every) * len(wanted) * options.repeats
    with overhead.solving(comm, options, steps) as (out, tick):

        report = Report("minife", options.settings(), _pattern(comm, options, size, every))
        parts = Parts(comm, report, options.json)

        def stage_work(sub: MPI.Intracomm, stage: Stage) -> None:
            def measure(part: Part) -> None:
                mine = Findings()
                with closing() as stack:
                    system = System(sub, of_stage(size, stage), problem, options.distort)
                    stack.callback(system.Free)
                    work(system, stage, wanted, options, mine, tick)
                part.rows += mine.rows
                part.verdicts = {str(k): each for k, each in enumerate(mine.compared)}
                part.more = mine.setup.rows

            part = parts.add(stage.name, measure)
            found.rows += mini_rows(part.rows)
            found.compared += part.verdicts.values()
            found.setup.rows += part.more

        with closing() as stack:
            levels, system, x = converged(comm, options, problem, meshes, tick)
            stack.callback(system.Free)
            if options.picture is not None:
                draw(system, x, options.picture)
            if not options.scaling:
                work(system, every[0], wanted, options, found, tick)
        if options.scaling:
            scaled(comm, every, stage_work)
    report.remarks = [f"{problem.name}: {problem.summary}.", *REMARKS]
    report.listings = {"levels": listing(levels), "assembly": found.setup}
    report.verdicts = verdicts(levels, options.rtol)
    if found.compared:
        report.verdicts["solutions, against rank 0 alone"] = worst(found.compared)
    return overhead.finish(comm, options, out, report, found.rows, "MiniFE")


def _pattern(
    comm: MPI.Intracomm, options: Options, size: Triple, every: Sequence[Stage]
) -> dict[str, Any]:
    """Local."""
    return {
        "problem": options.problem,
        "elements": list(size),
        "distortion": options.distort,
        "ranks": comm.size,
        "stages": overhead.staged(every, lambda stage: {"elements": words(of_stage(size, stage))}),
    }
