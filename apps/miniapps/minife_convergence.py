"""How fast the error falls on finer and finer meshes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

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


def level(system: System, options: Options) -> tuple[Level, NDArray[np.float64]]:
    """Collective. Solve on one mesh, with the matrix's own halo: the level and this rank's x."""
    began = time.perf_counter()
    solution = system.solution(system.matrix, options.rtol, options.maxiter)
    seconds = system.comm.allreduce(time.perf_counter() - began, op=MPI.MAX)
    found = Level(
        system.mesh.elements,
        system.unknowns,
        solution.iterations,
        float(seconds),
        system.residual(solution.x),
        system.errors(solution.x),
        system.bound,
    )
    return found, solution.x


def converged(
    comm: MPI.Intracomm,
    options: Options,
    problem: Problem,
    meshes: Sequence[Triple],
    tick: Callable[[], None],
) -> tuple[list[Level], System, NDArray[np.float64]]:
    """Collective. All levels, and the system and the solution of the last, the finest.

    :class:`.CommandError` on every rank where a mesh does not fit the ranks.
    """
    found = []
    for elements in meshes[:-1]:
        with closing() as stack:
            system = System(comm, elements, problem, options.distort)
            stack.callback(system.Free)
            found.append(level(system, options)[0])
        tick()
    with closing() as stack:
        system = System(comm, meshes[-1], problem, options.distort)
        stack.callback(system.Free)
        last, x = level(system, options)
        stack.pop_all()
    tick()
    return [*found, last], system, x


def listing(levels: Sequence[Level]) -> Listing:
    """Local. A row for each level."""
    table = Listing("Error on finer and finer meshes", _COLUMNS)
    for number, each in enumerate(levels):
        before = levels[number - 1] if number else None
        largest, rms = orders(before, each) if before else (None, None)
        errors = each.errors
        table.rows.append(
            [
                *each.elements,
                each.unknowns,
                each.iterations,
                each.seconds,
                errors.largest,
                largest,
                errors.rms,
                rms,
            ]
        )
    return table


def orders(coarse: Level, fine: Level) -> tuple[float, float]:
    """Local. The powers of the spacing with which the largest error and the rms fell."""
    ratio = np.log(min(fine.elements) / min(coarse.elements))
    one, other = coarse.errors, fine.errors
    largest = np.log(one.largest / other.largest) / ratio
    rms = np.log(one.rms / other.rms) / ratio
    return float(largest), float(rms)


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
