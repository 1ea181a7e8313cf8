"""LSQR: least squares with any matrix, by Golub and Kahan's bidiagonalization.

C. C. Paige, M. A. Saunders, LSQR: an algorithm for sparse linear equations and sparse least
squares, ACM Transactions on Mathematical Software 8 (1982), 43-71.
"""

from __future__ import annotations

import math
from typing import Any

from onesided.collectives.agreement import agreed
from onesided.sparse.linear import Linear
from onesided.sparse.solvers.run import Callback, Rules, Run
from onesided.sparse.solvers.solution import CONVERGED, Solution
from onesided.sparse.solvers.space import Space, Vector

LEAST_SQUARES = f"{CONVERGED}: least squares"


def lsqr(
    A: Linear,
    b: Any,
    x0: Any = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    callback: Callback = None,
    damp: float = 0.0,
) -> Solution:
    """Collective. The x with the least norm(b - A x)**2 + damp**2 norm(x - x0)**2; any shape of A.

    Stops when norm(b - A x) <= max(rtol * norm(b), atol), reason "converged", or when b - A x is
    orthogonal to the columns, norm(A.H r) <= rtol * norm(A) * norm(r), reason "converged: least
    squares"; norm(A) is Paige and Saunders' estimate of the Frobenius norm, and with ``damp`` A
    and r have the rows of the damping too. ``residuals`` are norms of that r. Needs A.H; two
    products (A and A.H) and two reductions an iteration; no preconditioner.
    """
    run = Run("lsqr", A, b, x0, Rules(rtol, atol, maxiter, callback), square=False)
    with agreed(run.comm, ("lsqr", damp)):
        if not 0 <= damp < math.inf:
            raise ValueError(f"damp is {damp}; it must be zero or above")
    _Bidiagonal(run, damp).iterate(rtol)
    return run.solution()


class _Bidiagonal:
    """The vectors u, v and w of the method, and what it keeps of the bidiagonal matrix."""

    def __init__(self, run: Run, damp: float) -> None:
        self._run, self._damp = run, damp
        self._rows, self._columns = run.space, run.domain
        self.u = run.residual()
        self._image = run.space.vector()
        self._preimage = run.domain.vector()
        self.v = run.domain.vector()

    def iterate(self, rtol: float) -> None:
        """Collective. The run, from its first guess to its end."""
        run, columns, damp = self._run, self._columns, self._damp
        beta = self._rows.norm(self.u)
        if run.record(beta):
            return
        self._rows.scale(1.0 / beta, self.u)
        alpha = self._next_v(0.0)
        if self._orthogonal(alpha * beta, 0.0):
            return
        w = self.v.copy()
        phi_bar, rho_bar = beta, alpha
        frobenius = damped = 0.0
        while True:
            beta = self._next_u(alpha)
            frobenius += alpha**2 + beta**2 + damp**2
            alpha = self._next_v(beta)
            rho_damped = math.hypot(rho_bar, damp)
            damped = math.hypot(damped, damp / rho_damped * phi_bar if rho_damped else 0.0)
            phi_bar *= rho_bar / rho_damped if rho_damped else 1.0
            rho = math.hypot(rho_damped, beta)
            if not run.positive(rho, "an entry of the bidiagonal matrix"):
                return
            c, s = rho_damped / rho, beta / rho
            phi, phi_bar = c * phi_bar, s * phi_bar
            theta, rho_bar = s * alpha, -c * alpha
            columns.advance(run.x, phi / rho, w, -theta / rho, self.v)
            rest = math.hypot(phi_bar, damped)
            ends = run.record(rest)
            gradient = alpha * abs(s * phi)
            ends = ends or self._orthogonal(gradient, rtol * math.sqrt(frobenius) * rest)
            run.call_back()
            if ends:
                return

    def _orthogonal(self, gradient: float, allowed: float) -> bool:
        """Local. Whether the residual is orthogonal to the columns; then the run ends."""
        if gradient <= allowed and not self._run.reason:
            self._run.reason = LEAST_SQUARES
        return bool(self._run.reason)

    def _next_u(self, alpha: float) -> float:
        """Collective. u becomes A v - alpha u, normalized; its norm."""
        self._run.multiply(self.v, self._image)
        self._rows.extend(self.u, -alpha, self._image)
        return _normalize(self._rows, self.u)

    def _next_v(self, beta: float) -> float:
        """Collective. v becomes A.H u - beta v, normalized; its norm."""
        self._run.multiply_adjoint(self.u, self._preimage)
        self._columns.extend(self.v, -beta, self._preimage)
        return _normalize(self._columns, self.v)


def _normalize(space: Space, x: Vector) -> float:
    """Collective. Divide a vector by its norm, unless that is zero; the norm."""
    norm = space.norm(x)
    if norm > 0:
        space.scale(1.0 / norm, x)
    return norm
