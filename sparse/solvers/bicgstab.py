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
from onesided.sparse.solvers.run import Callback, Rules, Run, several
from onesided.sparse.solvers.solution import Solution, V
from onesided.sparse.solvers.space import Scalar


@several
def bicgstab(
    A: Linear,
    b: V,
    x0: V | None = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
    callback: Callback = None,
    nullspace: Any = None,
    left_nullspace: Any = None,
) -> Solution[V]:
    """Collective. Solve A x = b for any square matrix, preconditioned from the right.

    Two products and three reductions an iteration. Stops as :func:`cg` does; scalar products that
    vanish are a breakdown: (r0, r), (r0, A M p), or (A M s, s) relative to the norms in them.

    Examples
    --------
    >>> A = diags(comm, [-1, 2, -1], [-1, 0, 1], shape=(8, 8))
    >>> b = A @ np.ones(A.col_range[1] - A.col_range[0])
    >>> found = bicgstab(A, b, rtol=1e-8)
    >>> bool(np.allclose(found.x, 1, atol=1e-3))
    True
    >>> A.Free()
    """
    rules = Rules(rtol, atol, maxiter, callback, nullspace, left_nullspace)
    run = Run("bicgstab", A, b, x0, rules, M)
    return run.solve(lambda run: _Iteration(run).iterate())


class _Iteration:
    """The vectors of the method: residual r, shadow r0, direction p, v = A M p, t = A M s.

    s shares the memory of r. ``hat`` holds M p and then M s.
    """

    def __init__(self, run: Run) -> None:
        self._run, self._space = run, run.space
        self.r = run.residual()
        self.shadow = self.r.copy()
        self.p, self.v, self.t = (run.space.vector() for _ in range(3))
        self._hat = run.room()
        #: Products this small, relative to the norms of their factors, have vanished.
        self._nothing = float(np.finfo(run.space.dtype).eps) ** 2

    def iterate(self) -> None:
        """Collective. The run, from its first guess to its end."""
        run, space, r = self._run, self._space, self.r
        (rho,) = space.dots((r, r))
        norm = shadow_norm = math.sqrt(rho.real)
        if run.record(norm):
            return
        self.p[:] = r
        while self._there(rho, shadow_norm * norm, "(r0, r)"):
            alpha = self._half_step(rho, shadow_norm)
            if alpha is None:
                return
            s_hat = run.precondition(r, self._hat)
            run.multiply(s_hat, self.t)
            ts, tt, ss = space.dots((self.t, r), (self.t, self.t), (r, r))
            norm = math.sqrt(ss.real)
            if norm <= run.tolerance:  # s is the residual of x as it is
                run.record(norm)
                run.call_back()
                return
            if not self._there(ts, math.sqrt(tt.real) * norm, "(A M s, s)"):
                return
            omega = ts / tt
            space.add(run.x, omega, s_hat)
            square = space.add_square(r, -omega, self.t)
            rr, rho_next = space.sums(square, space.share(self.shadow, r))
            norm = math.sqrt(rr.real)
            ends = run.record(norm)
            run.call_back()
            if ends:
                return
            beta = (rho_next / rho) * (alpha / omega)
            space.add(self.p, -omega, self.v)
            space.extend(self.p, beta, r)
            rho = rho_next

    def _half_step(self, rho: Scalar, shadow_norm: float) -> Scalar | None:
        """Collective. x += alpha M p, r becomes s; alpha, or None where the run ends."""
        run, space = self._run, self._space
        p_hat = run.precondition(self.p, self._hat)
        run.multiply(p_hat, self.v)
        rv, vv = space.dots((self.shadow, self.v), (self.v, self.v))
        if not self._there(rv, shadow_norm * math.sqrt(vv.real), "(r0, A M p)"):
            return None
        alpha = rho / rv
        space.add(run.x, alpha, p_hat)
        space.add(self.r, -alpha, self.v)
        return alpha

    def _there(self, value: Scalar, scale: float, what: str) -> bool:
        """Local. Whether a product is finite and not zero; else the run ends."""
        if abs(value) > self._nothing * scale and math.isfinite(abs(value)):
            return True
        self._run.broken(f"{what} = {abs(value):.3g}")
        return False
