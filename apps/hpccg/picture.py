"""The error of x in a slice of the grid, as an image.

After all iterations it would be rounding; it is drawn as it was after a tenth of them.
"""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from onesided.apps.hpccg.grid import Grid
from onesided.apps.mini.command import ROOT, drawing
from onesided.apps.mini.solver import Solver
from onesided.apps.picture import save_slice

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
