"""The same conjugate gradients on one rank, without a matrix: what a run is compared with.

A product sums every point with its neighbors along one axis after the other; nothing of it is
shared with the code that is checked.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.apps.hpccg.grid import DIAGONAL, DTYPE, Grid

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
