"""The grid of HPCCG, its matrix and its right hand side: pure geometry, no MPI call.

Every rank has a box of nx x ny x nz points; the boxes are stacked in z, as in the reference of the
Mantevo suite. A point has 27 on the diagonal of its row and -1 for each of up to 26 neighbors. The
right hand side is that of the solution 1 everywhere: 27 less the number of neighbors.

By Gershgorin's circles no eigenvalue is below 1, so an entry of x is off by at most the norm of the
residual.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from onesided.apps.failures import CommandError
from onesided.sparse import Partition, stencil27

DIAGONAL = 27.0
DTYPE = np.dtype(np.float64)


@dataclass(frozen=True)
class Grid:
    """``shape`` has the points along z, y and x, the last of which varies fastest."""

    shape: tuple[int, int, int]

    @classmethod
    def stacked(cls, size: tuple[int, int, int], boxes: int) -> Grid:
        """Local. So many boxes of ``size`` points along x, y and z."""
        nx, ny, nz = size
        return cls((nz * boxes, ny, nx))

    @property
    def points(self) -> int:
        """Local. The unknowns."""
        return prod(self.shape)

    @property
    def plane(self) -> int:
        """Local. The points of a plane, which all have the same z."""
        return self.shape[1] * self.shape[2]

    def planes(self, parts: int) -> Partition:
        """Local. Which planes each rank has; :class:`CommandError` for more ranks than planes."""
        if parts > self.shape[0]:
            words = " x ".join(map(str, reversed(self.shape)))
            raise CommandError(
                f"a grid of {words} points has {self.shape[0]} planes along z, too few for "
                f"{parts} ranks"
            )
        return Partition.even(self.shape[0], parts)

    def partition(self, parts: int) -> Partition:
        """Local. Which rows each rank has: those of its planes."""
        return Partition(self.planes(parts).starts * self.plane)

    def rows(self, span: tuple[int, int]) -> sparse.csr_array:
        """Local. The rows in a half-open range, with global columns."""
        rows = stencil27(self.shape, span)
        rows.data[rows.data > 0] = DIAGONAL
        return rows


def right_side(rows: sparse.csr_array) -> NDArray[Any]:
    """Local. The entries of b that belong to these rows."""
    neighbors = np.diff(rows.indptr) - 1
    return np.asarray(DIAGONAL - neighbors, DTYPE)


def box_of(numbers: list[int]) -> tuple[int, int, int]:
    """Local. What ``--size`` means: points along x, y and z; :class:`CommandError` for others."""
    if len(numbers) == 1:
        numbers = numbers * 3
    if len(numbers) != 3:
        given = " ".join(map(str, numbers))
        raise CommandError(f"--size {given}: one number for a cube, or three along x, y and z")
    return numbers[0], numbers[1], numbers[2]
