"""Power iteration: the eigenvalue of the largest absolute value, and its eigenvector.

R. von Mises, H. Pollaczek-Geiringer, Praktische Verfahren der Gleichungsaufloesung, Zeitschrift
fuer Angewandte Mathematik und Mechanik 9 (1929), 152-164.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from onesided.sparse.linear import Linear
from onesided.sparse.solvers.run import Callback, Rules, Run
from onesided.sparse.solvers.solution import Eigenpair
from onesided.sparse.solvers.start import start_block


def power_iteration(
    A: Linear,
    x0: Any = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    callback: Callback = None,
) -> Eigenpair:
    """Collective. The dominant eigenvalue of a square matrix, with its eigenvector of norm one.

    Stops when norm(A x - value x) <= max(rtol * abs(value), atol), value being (x, A x);
    ``maxiter`` None: ten times the number of rows. Converges by the ratio of the two largest
    absolute eigenvalues; where two different ones are equally large, not at all. ``x0`` None: a
    random vector, the same on any number of ranks. An x0 that is zero is a breakdown. x is a
    DistVector where x0 is one.
    """
    first = start_block(A.row_range, A.dtype) if x0 is None else x0
    run = Run("power_iteration", A, first, None, Rules(rtol, atol, maxiter, callback))
    run.x[:] = run.b
    value = _iterate(run, rtol, atol)
    done = run.solution()
    return Eigenpair(done.x, done.converged, done.iterations, done.residuals, done.reason, value)


def _iterate(run: Run, rtol: float, atol: float) -> complex | float:
    """Collective. Normalize, multiply, compare; the eigenvalue."""
    space, x, y, r = run.space, run.x, run.space.vector(), run.space.vector()
    length: float = run.size
    value: complex | float = math.nan
    while run.positive(length, "norm(A x)" if run.residuals else "norm(x0)"):
        space.scale(1.0 / length, x)
        run.multiply(x, y)
        value, square = space.dots((x, y), (y, y))
        np.copyto(r, y)
        rest = math.sqrt(space.sums(space.add_square(r, -value, x))[0].real)
        run.tolerance = max(rtol * abs(value), atol)
        if run.record(rest):
            break
        np.copyto(x, y)
        length = math.sqrt(square.real)
        run.call_back()
    return value
