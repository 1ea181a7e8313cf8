"""The method of minimal residuals, for Hermitian matrices, definite or not.

C. C. Paige, M. A. Saunders, Solution of sparse indefinite systems of linear equations, SIAM Journal
on Numerical Analysis 12 (1975), 617-629.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from onesided.sparse.linear import Linear
from onesided.sparse.solvers.run import Callback, Rules, Run, solve
from onesided.sparse.solvers.solution import Solution, V


def minres(
    A: Linear, b: V, x0: V | None = None, *, rtol: float = 1e-5, atol: float = 0.0,
    maxiter: int | None = None, M: Any = None, callback: Callback = None, nullspace: Any = None,
) -> Solution[V]:  # fmt: skip
    """Collective. Solve A x = b; A is Hermitian, M, if given, Hermitian and positive definite.

    Two reductions an iteration. x has the least residual, in the norm of M, that its iteration can
    have. Stops as :func:`~.cg` does. An M that is not definite is a breakdown, and so is a basis
    that cannot be extended although the system is not solved, as with a singular matrix.

    Examples
    --------
    >>> with diags(comm, [-1, 2, -1], [-1, 0, 1], shape=(8, 8)) as A:
    ...     b = A @ np.ones(A.col_range[1] - A.col_range[0])
    ...     np.allclose(minres(A, b, rtol=1e-8).x, 1, atol=1e-3)
    True
    """
    rules = Rules(rtol, atol, maxiter, callback, nullspace)
    return solve("minres", A, b, x0, rules, M, _iterate, hermitian=True)


def _iterate(run: Run) -> None:
    """Lanczos vectors r (before M) and z (after), scaled by one over beta where they are used.

    c, s are the last rotation, phi what is left of the right-hand side, which without M is the
    norm of the residual; with M the residual itself is kept, too: ``rest``.
    """
    space = run.space
    r, older = run.residual(), space.vector()
    z = run.precondition(r, run.room())
    rr, rz = (value.real for value in space.dots((r, r), (r, z)))
    if run.record(math.sqrt(rr)) or not run.positive(rz, "(r, M r)"):
        return
    rest = r.copy() if run.M is not None else run.x[:0]
    v, w, w_old, y = (space.vector() for _ in range(4))
    phi = beta = math.sqrt(rz)
    beta_old, c, s, delta_next, epsilon, square = 0.0, -1.0, 0.0, 0.0, 0.0, rr
    nothing = 10 * float(np.finfo(space.dtype).eps)
    while True:
        np.multiply(z, 1.0 / beta, out=v)
        run.multiply(v, y)
        coupling = beta if beta_old else 0.0  # the first beta is none: the norm of r
        if beta_old:
            space.add(y, -beta / beta_old, older)
        alpha = space.dots((v, y))[0].real
        if not math.isfinite(alpha):
            run.broken(f"(v, A v) = {alpha:.3g}")
            return
        space.add(y, -alpha / beta, r)
        older, r, y = r, y, older
        z = run.precondition(r, z)
        beta_old = beta
        if run.M is None:
            z = r
            rr = rz = space.dots((r, r))[0].real
            cross = 0.0
        else:
            values = space.dots((r, z), (r, r), (rest, r))
            rz, rr, cross = (value.real for value in values)
        if not (rz >= 0 and math.isfinite(rz)):
            run.positive(rz, "(r, M r)")
            return
        beta = math.sqrt(rz)
        epsilon_old, delta = epsilon, c * delta_next + s * alpha
        gamma_bar, epsilon, delta_next = s * delta_next - c * alpha, s * beta, -c * beta
        gamma = math.hypot(gamma_bar, beta)
        size = math.hypot(abs(alpha), beta, coupling)
        if gamma <= nothing * size:
            run.broken("the basis cannot be extended")
            return
        c, s = gamma_bar / gamma, beta / gamma
        step, phi = c * phi, s * phi
        w, w_old = w_old, w  # w = (v - epsilon_old w_older - delta w_old) / gamma
        space.scale(-epsilon_old / gamma, w)
        space.add(w, -delta / gamma, w_old)
        space.add(w, 1.0 / gamma, v)
        space.add(run.x, step, w)
        if run.M is None:
            norm = phi
        else:
            share = phi * c / beta if beta else 0.0
            space.scale(s * s, rest)
            space.add(rest, -share, r)
            square = s**4 * square - 2 * s * s * share * cross + share * share * rr
            norm = math.sqrt(max(square, 0.0))
        if run.record(norm):
            return
        if beta <= nothing * size:
            run.broken("the basis cannot be extended")
            return
