"""``onesided hpccg``: conjugate gradients as in HPCCG, the ghosts brought in several ways."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.selection import ways_of
from onesided.apps.bench.store import Part
from onesided.apps.cli.failures import by_rank_0, closing, from_rank_0
from onesided.apps.cli.options import Options, box
from onesided.apps.cli.report import Report
from onesided.apps.cli.statistics import Verdict, worst
from onesided.apps.miniapps import overhead
from onesided.apps.miniapps.halos import ways
from onesided.apps.miniapps.hpccg_system import DIAGONAL, Bandwidth, Grid, System
from onesided.apps.miniapps.solving import ITERATION_REMARK, Ran, Solver, run_ways
from onesided.apps.miniapps.stages import Stage, Tick, largest, measured, stages, tell
from onesided.apps.report.chart import save_slice
from onesided.apps.report.result import REFERENCE
from onesided.sparse.solvers import Solution

# The error of x in a slice of the grid, as an image.
#
# After all iterations it would be rounding; it is drawn as it was after a tenth of them.

DRAWN = 10  # part of the iterations, after which the error is drawn
LEAST = 1e-17  # smaller errors are drawn like this one


def draw(comm: MPI.Intracomm, grid: Grid, solver: Solver, path: str) -> None:
    """Collective. Written by rank 0: y and z in the plane in the middle of x."""
    _, ny, nx = grid.shape
    middle = nx // 2
    solution = solver.solved(0.0, max(1, solver.last.iterations // DRAWN))
    own = np.ascontiguousarray(solution.x.reshape(-1, ny, nx)[:, :, middle])
    parts = comm.gather(own) or []
    title = f"log10 |x - 1| after {solution.iterations} iterations, plane {middle} of {nx} in x"

    def paint() -> None:
        errors = np.log10(np.maximum(np.abs(np.concatenate(parts) - 1.0), LEAST))
        save_slice(path, title, ("y", "z"), errors.T, (float(ny), float(grid.shape[0])))

    by_rank_0(comm, paint)


# The same conjugate gradients on one rank, without a matrix: what a run is compared with.
# Nothing of it is shared with the code that is checked.


def product(x: NDArray[Any]) -> NDArray[Any]:
    """Local. A x with the matrix of a grid, for an array of its shape."""
    around = x
    for axis in range(x.ndim):
        before, around = around, around.copy()
        upper = (slice(None),) * axis + (slice(1, None),)
        lower = (slice(None),) * axis + (slice(None, -1),)
        around[upper] += before[lower]
        around[lower] += before[upper]
    found: NDArray[Any] = (DIAGONAL + 1.0) * x - around  # what is around has the point itself
    return found


def residuals(grid: Grid, iterations: int) -> list[float]:
    """Local. Norms of the residual of the recurrence, the first of them before any iteration.

    Fewer where it becomes zero.
    """
    r = product(np.ones(grid.shape))  # b, whose solution is 1 everywhere
    p = r.copy()
    square = float(np.vdot(r, r))
    norms = [square**0.5]
    for _ in range(iterations):
        if not square > 0.0:
            break
        q = product(p)
        curvature = float(np.vdot(p, q))
        if not curvature > 0.0:  # numbers that are too small to be squared
            break
        before = square
        r -= square / curvature * q
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


def solved(comm: MPI.Intracomm, solution: Solution) -> Verdict:
    """Collective. How far x is from 1 at most, and how far the last residual lets it be."""
    off = float(np.abs(solution.x - 1.0).max(initial=0.0))
    error = comm.allreduce(off if np.isfinite(off) else inf, op=MPI.MAX)
    return Verdict(error, float(solution.residuals[-1]) + ROUNDING)


def compared(found: Sequence[float], expected: Sequence[float]) -> Verdict:
    """Local. The largest relative difference of residuals that are more than rounding."""
    seen = [norm for norm in expected if norm > SEEN * expected[0]]
    if len(found) < len(seen):
        return Verdict(inf, TOLERANCE)
    error = max(abs(one - other) / other for one, other in zip(found, seen, strict=False))
    return Verdict(error, TOLERANCE)


# One stage: what all ways came to with the grid of some ranks.

PRINTED = 10  # residuals in JSON, without the first
#: Of what memory needs: of a product with its exchange, and of an iteration with its vectors.
PRODUCT_SHARE, WHOLE_SHARE = "product share", "whole share"


def judge(
    system: System, options: Options, part: Part, before: Bandwidth, runs: Sequence[Ran]
) -> None:
    """Collective. Residuals, errors of x, and shares of what memory allows, as fast as it was
    ``before``; with ``--verify`` residuals against those of rank 0 alone."""
    comm, memory = system.comm, before.or_faster(system.bandwidth())
    expected: list[float] | None = None
    if options.verify:
        grid, iterations = system.grid, options.iterations
        expected = from_rank_0(comm, lambda: residuals(grid, iterations))
    histories = []
    for ran in runs:
        row, solution = ran.row, ran.solver.last
        norms = solution.residuals.tolist()
        bound, whole = system.bounds(memory)
        row.verdict = solved(comm, solution)
        tell(
            row,
            shares={PRODUCT_SHARE: bound / ran.product, WHOLE_SHARE: whole / ran.median},
            numbers={"residual": norms[-1]},
            facts={
                "shape": list(system.grid.shape),
                "bandwidth_bytes_per_s": dict(memory.loops),
                "bandwidth_probe_bytes": memory.nbytes,
                "flops_per_s": system.flops / ran.median,
                "bound_product_s": bound,
                "bound_iteration_s": whole,
                # about ten of them, the first and every so many, as the reference prints them
                "residuals": norms[:: max(1, (len(norms) - 1) // PRINTED)],
            },
        )
        if expected is not None:
            histories.append(compared(norms, expected))
            tell(row, facts={"residuals_error": histories[-1].error})
    verdicts = [ran.row.verdict for ran in runs if ran.row.verdict is not None]
    part.verdicts["x, which has to be 1"] = worst(verdicts)
    if histories:
        part.verdicts["residuals, against rank 0 alone"] = worst(histories)


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
    wanted = ways_of(options.comm, ways(), REFERENCE)
    points, every = box(options.shape), stages(comm.size, options)
    grids = {stage: Grid.stacked(points, stage.shares) for stage in every}
    for stage, grid in grids.items():
        grid.planes(stage.ranks)
    drawn = largest(every) if options.picture is not None else None

    def work(sub: MPI.Intracomm, stage: Stage, part: Part, tick: Tick) -> None:
        with closing() as stack:
            system = System(sub, grids[stage])
            stack.callback(system.free)
            before = system.bandwidth()

            def judged(runs: Sequence[Ran]) -> None:
                judge(system, options, part, before, runs)
                if stage is drawn and options.picture is not None:
                    draw(sub, system.grid, runs[0].solver, options.picture)

            part.rows += run_ways(system, wanted, options, stage.labels, judged, tick)

    pattern = {
        "box": list(points),
        "iterations": options.iterations,
        "ranks": comm.size,
        "stages": overhead.told(every, lambda stage: {"boxes": stage.shares}),
    }
    report = Report("hpccg", options.settings(), pattern)
    report.remarks = [f"{ITERATION_REMARK} {RESIDUAL}", BOUNDS]
    measured(comm, options, report, every, len(wanted) * options.repeats, work, drawn)
    return overhead.finish(comm, options, report, "HPCCG")
