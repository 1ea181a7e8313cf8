"""``onesided minife``: steady temperatures by finite elements, the ghosts brought in several ways.

Trilinear elements on a box of cubes, whose edge is 1 for a share of the ranks and longer along z
for several. The surface has the temperature 0, the source is that of sin(pi x) sin(pi y)
sin(pi z / L), so the solution is known. On such a mesh the stiffness is a sum of Kronecker
products, A x M x M + M x A x M + M x M x A, of the stiffness A and the mass M along an axis: each
rank assembles the rows of its own planes, without a word to others.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from mpi4py import MPI
from scipy import sparse

from onesided.apps.cli.failures import CommandError
from onesided.apps.cli.options import Options, box
from onesided.apps.miniapps import solving
from onesided.apps.miniapps.solving import Equations, Values

LEAST = 2  # elements along an axis, so that there is a node inside
ROUNDING = 1e-12


@dataclass(frozen=True)
class Mesh(Equations):
    """Elements of the edge ``h``; unknowns are the nodes inside."""

    h: float

    def _factors(self, first: int, last: int) -> list[tuple[Any, Any]]:
        """Stiffness and mass along z, of some planes, y and x."""
        h, found = self.h, []
        for axis, n in enumerate(self.shape):
            pair = (
                sparse.diags_array([off, middle, off], offsets=(-1, 0, 1), shape=(n, n)).tocsr()
                for middle, off in ((2.0 / h, -1.0 / h), (4.0 * h / 6.0, h / 6.0))
            )
            rows = slice(None) if axis else slice(first, last)
            found.append(tuple(each[rows] for each in pair))
        return found

    def rows(self, first: int, last: int) -> sparse.csr_array:
        (az, mz), (ay, my), (ax, mx) = self._factors(first, last)
        one, two, three = (
            sparse.kron(sparse.kron(z, y, format="csr"), x, format="csr")
            for z, y, x in ((az, my, mx), (mz, ay, mx), (mz, my, ax))
        )
        return sparse.csr_array(one + two + three)

    def side(self, first: int, last: int) -> Values:
        """The source, which is a multiple of the solution, times the mass."""
        waves = self._waves()
        total = sum((np.pi / ((n + 1) * self.h)) ** 2 for n in self.shape)
        masses = [each[1] for each in self._factors(first, last)]
        parts = [mass @ wave for mass, wave in zip(masses, waves, strict=True)]
        found: Values = (total * reduce(np.multiply.outer, parts)).reshape(-1)
        return found

    def _waves(self) -> list[Values]:
        return [np.sin(np.pi * np.arange(1, n + 1) / (n + 1)) for n in self.shape]

    def error(self, x: Values, first: int, last: int) -> float:
        """Of the temperatures of some planes, the largest of which is 1."""
        waves = self._waves()
        waves[0] = waves[0][first:last]
        exact = reduce(np.multiply.outer, waves).reshape(-1)
        return float(np.abs(x - exact).max(initial=0.0))

    def allowed(self, residual: float) -> float:
        """Twice the error of the elements, (pi h)**2 / 12, and what the residual lets it be: the
        smallest eigenvalue is above h**3 (some thirds of it belong to rough vectors)."""
        return (np.pi * self.h) ** 2 / 6 + residual / self.h**3 + ROUNDING


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; its exit code is 1 where a result is wrong."""
    nx, ny, nz = box(options.shape)
    if min(nx, ny, nz) < LEAST:
        raise CommandError(f"--shape: {LEAST} elements or more along each axis, else no node is in")
    pattern, h = {"elements": [nx, ny, nz]}, 1.0 / max(nx, ny, nz)

    def mesh(shares: int) -> Mesh:
        return Mesh((nz * shares - 1, ny - 1, nx - 1), h)

    return solving.run(comm, options, "minife", mesh, pattern)
