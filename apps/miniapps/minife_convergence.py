"""How fast the error falls on finer and finer meshes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.cli.failures import closing
from onesided.apps.cli.options import Options
from onesided.apps.cli.report import Listing
from onesided.apps.cli.statistics import Verdict
from onesided.apps.miniapps.minife_mesh import Problem, Triple
from onesided.apps.miniapps.minife_system import Errors, System

ORDER = 2.0  # of trilinear elements
OFF = 0.3  # what a measured order may lie off it
MARGIN = 2.0  # what the recurrence of a residual may lie off the residual itself
ROUNDING = 1e-13  # of it, relative to the right side
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
            began = time.perf_counter()
            solution = system.solution(system.matrix, options.rtol, options.maxiter)
            seconds = comm.allreduce(time.perf_counter() - began, op=MPI.MAX)
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
        "residuals of the solutions": Verdict(residual, MARGIN * rtol + ROUNDING),
        "errors over what the spacing explains": Verdict(worst, 1.0),
    }
    if len(levels) > 1 and min(levels[-2].elements) >= SEEN:
        largest, _ = orders(*levels[-2:])
        found["order of convergence, off 2"] = Verdict(abs(largest - ORDER), OFF)
    return found
