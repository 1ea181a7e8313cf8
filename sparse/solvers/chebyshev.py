"""Chebyshev iteration, for matrices with real positive eigenvalues between known bounds.

G. H. Golub, R. S. Varga, Chebyshev semi-iterative methods, successive overrelaxation iterative
methods, and second order Richardson iterative methods, Numerische Mathematik 3 (1961), 147-156;
in the form of Y. Saad, Iterative Methods for Sparse Linear Systems (2003), Algorithm 12.1. The
bounds by Lanczos' method, the same book, section 6.7.3.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from onesided.sparse.linear import Linear
from onesided.sparse.solvers.cg import cg_coefficients
from onesided.sparse.solvers.run import Callback, Rules, Run, solve
from onesided.sparse.solvers.solution import BREAKDOWN, Solution, V
from onesided.sparse.solvers.space import start_block

_LOWER, _UPPER = 0.9, 1.05  # the bounds found lie inside the spectrum


def chebyshev(
    A: Linear, b: V, x0: V | None = None, *, rtol: float = 1e-5, atol: float = 0.0,
    maxiter: int | None = None, M: Any = None, callback: Callback = None, nullspace: Any = None,
    bounds: tuple[float, float] | None = None,
) -> Solution[V]:  # fmt: skip
    """Collective. Solve A x = b where the eigenvalues of M A lie between two positive bounds.

    ``bounds`` None: they are estimated (:func:`eigenvalue_bounds`), which needs what cg needs.
    No scalar product steers the iteration; the norm of the residual, by which it stops as cg does,
    is reduced during the next product, so that one product is done in vain at the end.
    Eigenvalues above the bounds make the residual grow: then the run ends by a breakdown as soon
    as the residual is not finite, or at the limit. ``ValueError`` for bounds that are none.

    Examples
    --------
    >>> with diags(comm, [-1, 2, -1], [-1, 0, 1], shape=(8, 8)) as A:
    ...     b = A @ np.ones(A.col_range[1] - A.col_range[0])
    ...     np.allclose(chebyshev(A, b, rtol=1e-6, bounds=(0.1, 4.0)).x, 1, atol=1e-3)
    True
    """
    rules = Rules(rtol, atol, maxiter, callback, nullspace)
    given = bounds

    def check() -> None:
        if given is not None and not 0 < given[0] <= given[1] < math.inf:
            raise ValueError(f"bounds are {given}; two numbers above zero in order are needed")

    def leg(run: Run) -> None:
        nonlocal bounds
        if bounds is None:
            bounds = eigenvalue_bounds(run.A, M=run.M, nullspace=nullspace)
        _iterate(run, *bounds)

    how: Any = {"hermitian": True, "choices": given, "check": check}
    return solve("chebyshev", A, b, x0, rules, M, leg, **how)


def eigenvalue_bounds(
    A: Linear, *, M: Any = None, steps: int = 30, nullspace: Any = None
) -> tuple[float, float]:
    """Collective. About the smallest and largest eigenvalue of M A, both positive definite.

    From ``steps`` iterations of cg with an arbitrary right-hand side, whose coefficients are those
    of Lanczos' method; widened by 10 and 5 percent, because its values lie inside the spectrum.
    ``nullspace``: of vectors that are left out. Raises ``ValueError`` on every rank where cg breaks
    down.

    Examples
    --------
    >>> with diags(comm, [-1, 2, -1], [-1, 0, 1], shape=(8, 8)) as A:
    ...     low, high = eigenvalue_bounds(A)
    ...     bool(0 < low < high < 4.5)
    True
    """
    first = start_block(A.row_range, A.dtype)
    coefficients, reason = cg_coefficients(A, first, M, steps, nullspace)
    if not coefficients or reason.startswith(BREAKDOWN):
        raise ValueError(f"no bounds of positive eigenvalues found: {reason or 'an empty matrix'}")
    from scipy.linalg import eigvalsh_tridiagonal  # slow to import

    alphas, betas = np.array(coefficients).T
    inverse, ratios = 1.0 / alphas, betas[:-1]
    diagonal = inverse.copy()
    diagonal[1:] += ratios * inverse[:-1]
    values = eigvalsh_tridiagonal(diagonal, np.sqrt(ratios) * inverse[:-1])
    return _LOWER * float(values[0]), _UPPER * float(values[-1])


def _iterate(run: Run, lowest: float, highest: float) -> None:
    space = run.space
    middle, radius = 0.5 * (highest + lowest), 0.5 * (highest - lowest)
    r, q, p, z = run.residual(), space.vector(), space.vector(), run.room()
    factor = alpha = 0.0

    def direction() -> None:
        space.extend(p, factor, run.precondition(r, z))
        run.multiply(p, q)

    while True:
        if not alpha:  # the first direction
            alpha = 1.0 / middle
        else:
            factor = (radius * alpha / 2.0) ** 2 * (2.0 if not factor else 1.0)
            alpha = 1.0 / (middle - factor / alpha)
        rr = space.sums_during(direction, space.share(r, r))[0].real
        if run.record(math.sqrt(rr)):
            return
        space.add(run.x, alpha, p)
        space.add(r, -alpha, q)
