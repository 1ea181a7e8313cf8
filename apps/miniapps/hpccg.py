"""``onesided hpccg``: conjugate gradients as in HPCCG, the ghosts brought in several ways.

Every rank has a box of nx x ny x nz points; the boxes are stacked in z, as in the reference of the
Mantevo suite. A point has 27 on the diagonal of its row and -1 for each of up to 26 neighbors. The
right hand side is that of the solution 1 everywhere: 27 less the number of neighbors. By
Gershgorin's circles no eigenvalue is below 1, so an entry of x is off by at most the norm of the
residual.
"""

from __future__ import annotations

import numpy as np
from mpi4py import MPI
from scipy import sparse

from onesided.apps.cli.options import Options, box
from onesided.apps.miniapps import solving
from onesided.apps.miniapps.solving import Equations, Values
from onesided.sparse import stencil27

DIAGONAL = 27.0
ROUNDING = 1e-12  # by which x is off where the residual is nothing


class Grid(Equations):
    """Points, each with its neighbors."""

    def rows(self, first: int, last: int) -> sparse.csr_array:
        found = stencil27(self.shape, (first * self.plane, last * self.plane))
        found.data[found.data > 0] = DIAGONAL
        return found

    def side(self, first: int, last: int) -> Values:
        neighbors = np.diff(self.rows(first, last).indptr) - 1
        return np.asarray(DIAGONAL - neighbors, float)

    def error(self, x: Values, first: int, last: int) -> float:
        return float(np.abs(x - 1.0).max(initial=0.0))

    def allowed(self, residual: float) -> float:
        return residual + ROUNDING


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; its exit code is 1 where a result is wrong."""
    nx, ny, nz = box(options.shape)
    pattern = {"box": [nx, ny, nz]}
    return solving.run(comm, options, "hpccg", lambda n: Grid((nz * n, ny, nx)), pattern)
