"""The solution, which is known, and residuals compared with those of rank 0 alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from mpi4py import MPI

from onesided.apps.failures import user_errors
from onesided.apps.hpccg.grid import Grid
from onesided.apps.hpccg.serial import residuals
from onesided.apps.timing import rest
from onesided.apps.verdict import Verdict
from onesided.collectives import agree
from onesided.sparse.solvers import Solution

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
