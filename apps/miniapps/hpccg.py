"""``onesided hpccg``: conjugate gradients as in HPCCG, the ghosts brought in several ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.race import rest
from onesided.apps.bench.store import Part, Parts
from onesided.apps.cli.failures import closing, user_errors
from onesided.apps.cli.options import Options, box
from onesided.apps.cli.report import Report
from onesided.apps.cli.statistics import Verdict, worst
from onesided.apps.miniapps import overhead
from onesided.apps.miniapps.halos import ways
from onesided.apps.miniapps.hpccg_system import DIAGONAL, DTYPE, Bandwidth, Grid, System
from onesided.apps.miniapps.overhead import ROOT, drawing
from onesided.apps.miniapps.race import Ran, Solver, run_ways
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
from onesided.collectives import agree
from onesided.sparse.solvers import Solution

# The error of x in a slice of the grid, as an image.
#
# After all iterations it would be rounding; it is drawn as it was after a tenth of them.

PART = 10  # of the iterations, after which the error is drawn
LEAST = 1e-17  # smaller errors are drawn like this one


def draw(comm: MPI.Intracomm, grid: Grid, solver: Solver, path: str) -> None:
    """Collective. Written by rank 0: y and z in the plane in the middle of x."""
    _, ny, nx = grid.shape
    middle = nx // 2
    solution = solver.after(max(1, solver.last.iterations // PART))
    own = np.ascontiguousarray(solution.x.reshape(-1, ny, nx)[:, :, middle])
    parts = comm.gather(own, root=ROOT)
    count = solution.iterations
    title = f"log10 |x - 1| after {count} iterations, plane {middle} of {nx} in x"
    with drawing(comm):
        if parts is not None:
            errors = np.log10(np.maximum(np.abs(np.concatenate(parts) - 1.0), LEAST))
            save_slice(path, title, ("y", "z"), errors.T, (float(ny), float(grid.shape[0])))


# The same conjugate gradients on one rank, without a matrix: what a run is compared with.
#
# A product sums every point with its neighbors along one axis after the other; nothing of it is
# shared with the code that is checked.

Array = NDArray[Any]


class Stencil:
    """Local. y = A x with the matrix of a grid, on arrays of its shape."""

    def __init__(self, grid: Grid) -> None:
        self._work = [np.empty(grid.shape, DTYPE) for _ in range(2)]

    def __call__(self, x: Array, y: Array) -> None:
        """Local. ``x`` and ``y`` do not overlap."""
        now, other = self._work
        np.copyto(now, x)
        for axis in range(x.ndim):
            np.copyto(other, now)
            upper = (*(slice(None),) * axis, slice(1, None))
            lower = (*(slice(None),) * axis, slice(None, -1))
            other[upper] += now[lower]
            other[lower] += now[upper]
            now, other = other, now
        np.multiply(x, DIAGONAL + 1.0, out=y)
        y -= now


def residuals(grid: Grid, iterations: int) -> list[float]:
    """Local. Norms of the residual of the recurrence, the first of them before any iteration.

    Fewer where it becomes zero.
    """
    multiply = Stencil(grid)
    p, q, r, x = (np.zeros(grid.shape, DTYPE) for _ in range(4))
    p.fill(1.0)
    multiply(p, r)  # b, whose solution is 1 everywhere
    np.copyto(p, r)
    square = float(np.vdot(r, r))
    norms = [square**0.5]
    for _ in range(iterations):
        if not square > 0.0:
            break
        multiply(p, q)
        curvature = float(np.vdot(p, q))
        if not curvature > 0.0:  # numbers that are too small to be squared
            break
        alpha, before = square / curvature, square
        x += alpha * p
        r -= alpha * q
        square = float(np.vdot(r, r))
        norms.append(square**0.5)
        p *= square / before
        p += r
    return norms


# The solution, which is known, and residuals compared with those of rank 0 alone.

#: Residuals are compared down to this part of the first one. Below, what is left of a residual is
#: rounding, which conjugate gradients amplify: two right programs differ.
SEEN = 1e-10
ROUNDING = 1e-12  # by which x is off where the residual is nothing
TOLERANCE = 1e-8  # relative; rounding explains about 1e-11


def reference(comm: MPI.Intracomm, grid: Grid, iterations: int) -> list[float]:
    """Collective. The residuals that rank 0 comes to by itself, while the others sleep."""
    found: list[float] = []
    error: BaseException | None = None
    if comm.rank == 0:
        try:
            found = residuals(grid, iterations)
        except Exception as problem:  # raised on all ranks below
            error = problem
    rest(comm)
    with user_errors():
        agree(comm, error, "the residuals of rank 0 alone")
    return list(comm.bcast(found))


def solved(comm: MPI.Intracomm, solution: Solution) -> Verdict:
    """Collective. How far x is from 1 at most, and how far the last residual lets it be."""
    off = np.abs(solution.x - 1.0).max(initial=0.0)
    own = float(off) if np.isfinite(off) else np.inf
    worst = float(comm.allreduce(own, op=MPI.MAX))
    return Verdict(worst, float(solution.residuals[-1]) + ROUNDING)


def compared(found: Sequence[float], expected: Sequence[float]) -> Verdict:
    """Local. The largest relative difference of residuals that are more than rounding."""
    seen = [norm for norm in expected if norm > SEEN * expected[0]]
    if len(found) < len(seen):
        return Verdict(float("inf"), TOLERANCE)
    worst = max(abs(one - other) / other for one, other in zip(found, seen, strict=False))
    return Verdict(worst, TOLERANCE)


# One stage: what all ways came to with the grid of some ranks.

PRINTED = 10  # residuals in JSON, without the first
#: Of what memory needs: of a product with its exchange, and of an iteration with its vectors.
PRODUCT_SHARE, WHOLE_SHARE = "product share", "whole share"


@dataclass
class Findings:
    """What the stages have found, on the ranks that took part: rows, and how residuals compare."""

    rows: list[MiniRow] = field(default_factory=list)
    histories: list[Verdict] = field(default_factory=list)


def work(
    comm: MPI.Intracomm,
    stage: Stage,
    grid: Grid,
    ways: Mapping[str, Way],
    options: Options,
    found: Findings,
    tick: Callable[[], None],
    picture: str | None,
) -> None:
    """Collective. Run all ways with the grid; what comes of it is added to ``found``.

    ``picture``: the file where the first way is drawn after the runs. :class:`.CommandError` on
    every rank for what cannot be done.
    """
    with closing() as stack:
        system = System(comm, grid)
        stack.callback(system.free)
        judge = Judge(system, stage, options, found, picture, system.bandwidth())
        found.rows += run_ways(system, ways, options, judge, tick)


@dataclass(frozen=True)
class Judge:
    """Residuals, errors of x, and shares of what memory allows, as fast as it was ``before``."""

    system: System
    stage: Stage
    options: Options
    found: Findings
    picture: str | None
    before: Bandwidth

    @property
    def labels(self) -> Mapping[str, str]:
        """Local."""
        return self.stage.labels

    def judge(self, runs: Sequence[Ran]) -> None:
        """Collective. Complete the rows; every way's residuals against those of rank 0 alone."""
        system = self.system
        memory = self.before.or_faster(system.bandwidth())
        for ran in runs:
            self._complete(ran, memory)
        if self.options.verify:
            expected = reference(system.comm, system.grid, self.options.iterations)
            for ran in runs:
                verdict = compared(ran.solution.residuals.tolist(), expected)
                ran.row.facts = {**ran.row.facts, "residuals_error": verdict.error}
                self.found.histories.append(verdict)
        if self.picture is not None:
            draw(system.comm, system.grid, runs[0].solver, self.picture)

    def _complete(self, ran: Ran, memory: Bandwidth) -> None:
        """Collective."""
        system, row, residuals = self.system, ran.row, ran.solution.residuals.tolist()
        product, whole = system.bounds(memory)
        row.verdict = solved(system.comm, ran.solution)
        row.shares = {
            PRODUCT_SHARE: product / ran.iteration.product,
            WHOLE_SHARE: whole / ran.iteration.median,
        }
        row.numbers = {"residual": residuals[-1]}
        row.facts = {
            **row.facts,
            "shape": list(system.grid.shape),
            "bandwidth_bytes_per_s": dict(memory.loops),
            "bandwidth_probe_bytes": memory.nbytes,
            "flops_per_s": system.flops / ran.iteration.median,
            "bound_product_s": product,
            "bound_iteration_s": whole,
            "residuals": some(residuals),
        }


def some(residuals: list[Any]) -> list[Any]:
    """Local. About ten of them, the first and every so many, as the reference prints them."""
    return residuals[:: max(1, (len(residuals) - 1) // PRINTED)]


RESIDUAL = "residual: its norm after the last iteration, by the recurrence."
BOUNDS = (
    f"{PRODUCT_SHARE}: the time in which memory could read the matrix and both vectors, over that "
    f"of product and exchange; {WHOLE_SHARE}: the same of an iteration with all its vectors. The "
    "bandwidth is what NumPy reaches by the best of five loops (copy, add, dot, sum, a product "
    "with few long rows), before or after the runs, over as many bytes as the matrix has, on all "
    "ranks at once."
)


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; its exit code is 1 where a result is wrong."""
    wanted = by_name(chosen(options.comm, ways()))
    points = box(options.shape)
    every = stages(comm.size, options)
    grids = {stage: Grid.stacked(points, stage.shares) for stage in every}
    for stage, grid in grids.items():
        grid.planes(stage.ranks)
    found = Findings()
    last = max(every, key=lambda stage: stage.ranks)
    with overhead.solving(comm, options, len(every) * len(wanted) * options.repeats) as (out, tick):

        report = Report("hpccg", options.settings(), _pattern(comm, options, points, every))
        parts = Parts(comm, report, options.json)

        def stage_work(sub: MPI.Intracomm, stage: Stage) -> None:
            picture = options.picture if stage == last else None

            def measure(part: Part) -> None:
                mine = Findings()
                work(sub, stage, grids[stage], wanted, options, mine, tick, picture)
                part.rows += mine.rows
                part.verdicts = {str(k): each for k, each in enumerate(mine.histories)}

            part = parts.add(stage.name, measure, keep=picture is None)
            found.rows += mini_rows(part.rows)
            found.histories += part.verdicts.values()

        scaled(comm, every, stage_work)
    report.remarks = [f"{overhead.ITERATION_REMARK} {RESIDUAL}", BOUNDS]
    report.verdicts = _verdicts(found)
    return overhead.finish(comm, options, out, report, found.rows, "HPCCG")


def _verdicts(found: Findings) -> dict[str, Verdict]:
    """Local. The worst error of x, whose bound is that of its residual; and of the residuals."""
    verdicts = {}
    solutions = [row.verdict for row in found.rows if row.verdict is not None]
    if solutions:
        verdicts["x, which has to be 1"] = worst(solutions)
    if found.histories:
        verdicts["residuals, against rank 0 alone"] = worst(found.histories)
    return verdicts


def _pattern(
    comm: MPI.Intracomm, options: Options, box: Sequence[int], every: Sequence[Stage]
) -> dict[str, Any]:
    """Local."""
    return {
        "box": list(box),
        "iterations": options.iterations,
        "ranks": comm.size,
        "stages": overhead.staged(every, lambda stage: {"boxes": stage.shares}),
    }
