"""The stabilized method of biconjugate gradients, for general square matrices.

H. A. van der Vorst, Bi-CGSTAB: a fast and smoothly converging variant of Bi-CG for the solution of
nonsymmetric linear systems, SIAM Journal on Scientific and Statistical Computing 13 (1992),
631-644.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from onesided.sparse.linear import Linear
from onesided.sparse.solvers.run import Callback, Rules, Run, solve
from onesided.sparse.solvers.solution import Solution, V
from onesided.sparse.solvers.space import Scalar


def bicgstab(
    A: Linear, b: V, x0: V | None = None, *, rtol: float = 1e-5, atol: float = 0.0,
    maxiter: int | None = None, M: Any = None, callback: Callback = None, nullspace: Any = None,
    left_nullspace: Any = None,
) -> Solution[V]:  # fmt: skip
    """Collective. Solve A x = b for any square matrix, preconditioned from the right.

    Two products and three reductions an iteration. Stops as :func:`cg` does; scalar products that
    vanish are a breakdown: (r0, r), (r0, A M p), or (A M s, s) relative to the norms in them.

    Examples
    --------
    >>> with diags(comm, [-1, 2, -1], [-1, 0, 1], shape=(8, 8)) as A:
    ...     b = A @ np.ones(A.col_range[1] - A.col_range[0])
    ...     np.allclose(bicgstab(A, b, rtol=1e-8).x, 1, atol=1e-3)
    True
    """
    rules = Rules(rtol, atol, maxiter, callback, nullspace, left_nullspace)
    return solve("bicgstab", A, b, x0, rules, M, _iterate)


def _iterate(run: Run) -> None:
    """Residual r, shadow r0, direction p, v = A M p, t = A M s; s shares the memory of r.

    ``room`` holds M p and then M s.
    """
    space, r = run.space, run.residual()
    shadow, p, room = r.copy(), r.copy(), run.room()
    v, t = space.vector(), space.vector()
    nothing = float(np.finfo(space.dtype).eps) ** 2

    def vanishes(value: Scalar, scale: float, what: str) -> bool:
        """Local. Whether a product is as good as zero, or no number: then the run ends."""
        there = abs(value) > nothing * scale and math.isfinite(abs(value))
        if not there:
            run.broken(f"{what} = {abs(value):.3g}")
        return not there

    (rho,) = space.dots((r, r))
    norm = shadow_norm = math.sqrt(rho.real)
    if run.record(norm):
        return
    while not vanishes(rho, shadow_norm * norm, "(r0, r)"):
        p_hat = run.precondition(p, room)
        run.multiply(p_hat, v)
        rv, vv = space.dots((shadow, v), (v, v))
        if vanishes(rv, shadow_norm * math.sqrt(vv.real), "(r0, A M p)"):
            return
        alpha = rho / rv
        space.add(run.x, alpha, p_hat)
        space.add(r, -alpha, v)
        s_hat = run.precondition(r, room)
        run.multiply(s_hat, t)
        ts, tt, ss = space.dots((t, r), (t, t), (r, r))
        norm = math.sqrt(ss.real)
        if norm <= run.tolerance:  # s is the residual of x as it is
            run.record(norm)
            return
        if vanishes(ts, math.sqrt(tt.real) * norm, "(A M s, s)"):
            return
        if not run.positive(tt.real, "(A M s, A M s)"):  # it may vanish earlier
            return
        omega = ts / tt
        space.add(run.x, omega, s_hat)
        square = space.add_square(r, -omega, t)
        rr, rho_next = space.sums(square, space.share(shadow, r))
        norm = math.sqrt(rr.real)
        if run.record(norm):
            return
        beta = (rho_next / rho) * (alpha / omega)
        space.add(p, -omega, v)
        space.extend(p, beta, r)
        rho = rho_next
