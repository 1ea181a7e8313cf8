"""Least squares with any matrix, by Golub and Kahan's bidiagonalization: LSQR and LSMR.

C. C. Paige, M. A. Saunders, LSQR: an algorithm for sparse linear equations and sparse least
squares, ACM Transactions on Mathematical Software 8 (1982), 43-71. D. C.-L. Fong, M. A. Saunders,
LSMR: an iterative algorithm for sparse least-squares problems, SIAM Journal on Scientific Computing
33 (2011), 2950-2971.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from onesided.collectives.agreement import agreed
from onesided.sparse.alike import block, plain
from onesided.sparse.linear import Linear, LinearOperator
from onesided.sparse.partition import Partition
from onesided.sparse.solvers.run import Callback, Rules, Run, each_column, joined
from onesided.sparse.solvers.solution import LEAST_SQUARES, Solution, V
from onesided.sparse.solvers.space import Space, Vector
from onesided.sparse.vector import DistVector


def lsqr(
    A: Linear, b: V, x0: V | None = None, *, rtol: float = 1e-5, atol: float = 0.0,
    maxiter: int | None = None, callback: Callback = None, damp: float = 0.0,
) -> Solution[V]:  # fmt: skip
    """Collective. The x with the least norm(b - A x)**2 + damp**2 norm(x - x0)**2; any shape of A.

    Stops when norm(b - A x) <= max(rtol * norm(b), atol), reason "converged", or when b - A x is
    orthogonal to the columns, norm(A.H r) <= rtol * norm(A) * norm(r), reason "converged: least
    squares"; norm(A) is Paige and Saunders' estimate of the Frobenius norm, and with ``damp`` A, b
    and r have the rows of the damping too, damp x = damp x0. ``residuals`` are norms of that r.
    Both are seen in r itself before they are told. Needs A.H; two products (A and A.H) and two
    reductions an iteration; no preconditioner.

    Examples
    --------
    >>> with diags(comm, [-1, 2, -1], [-1, 0, 1], shape=(8, 8)) as A:
    ...     b = A @ np.ones(A.col_range[1] - A.col_range[0])
    ...     np.allclose(lsqr(A, b, rtol=1e-8).x, 1, atol=1e-3)
    True
    """
    rules = Rules(rtol, atol, maxiter, callback)
    return _least_squares("lsqr", A, b, x0, rules, damp, _lsqr)


def lsmr(
    A: Linear, b: V, x0: V | None = None, *, rtol: float = 1e-5, atol: float = 0.0,
    maxiter: int | None = None, callback: Callback = None, damp: float = 0.0,
) -> Solution[V]:  # fmt: skip
    """Collective. As :func:`lsqr`; norm(A.H r) falls in every iteration, so it stops earlier.

    Examples
    --------
    >>> with diags(comm, [-1, 2, -1], [-1, 0, 1], shape=(8, 8)) as A:
    ...     b = A @ np.ones(A.col_range[1] - A.col_range[0])
    ...     np.allclose(lsmr(A, b, rtol=1e-8).x, 1, atol=1e-3)
    True
    """
    rules = Rules(rtol, atol, maxiter, callback)
    return _least_squares("lsmr", A, b, x0, rules, damp, _lsmr)


@np.errstate(all="ignore")  # of the caller; else one rank might raise alone
def _least_squares(
    name: str, A: Linear, b: Any, x0: Any, rules: Rules, damp: float,
    method: Callable[[_Bidiagonal], None],
) -> Solution[Any]:  # fmt: skip
    pairs = each_column(A, b, x0, name)
    if pairs is None:
        return _of_one(name, A, b, x0, rules, damp, method)
    return joined(A, b, [_of_one(name, A, *pair, rules, damp, method) for pair in pairs])


def _of_one(
    name: str, A: Linear, b: Any, x0: Any, rules: Rules, damp: float,
    method: Callable[[_Bidiagonal], None],
) -> Solution[Any]:  # fmt: skip
    """Collective. Of one right-hand side."""
    with agreed(A.comm, (name, plain(damp))):
        if not 0 <= damp < math.inf:
            raise ValueError(f"damp is {damp}; it must be zero or above")
        damp = float(damp)  # a number of NumPy's would decide the dtype
    if damp:
        A, b = _damped(A, b, x0, damp)
    run = Run(name, A, b, x0, rules, square=False)
    made: list[_Bidiagonal] = []

    def leg(run: Run) -> None:
        made[:] = [_Bidiagonal(run)]
        method(made[0])

    def orthogonal(r: Vector, norm: float) -> bool:
        gradient = run.domain.vector()
        run.multiply_adjoint(r, gradient)
        return made[0].small(run.domain.norm(gradient), norm)

    return run.solve(leg, orthogonal)


def _damped(A: Linear, b: Any, x0: Any, damp: float) -> tuple[Linear, Any]:
    """Collective. A with damp times the identity below it on every rank, b with damp x0."""
    n = A.row_range[1] - A.row_range[0]
    with agreed(A.comm, "the damped rows"):
        upper = block("b", b, n, A.dtype)
        m = A.col_range[1] - A.col_range[0]
        guess = np.zeros(m, A.dtype) if x0 is None else block("x0", x0, m, A.dtype)
    # empty blocks decide no dtype
    parts = [each if len(each) else np.zeros(0, A.dtype) for each in (upper, damp * guess)]
    right: Any = np.concatenate(parts)
    rows = Partition.from_lengths(A.row_partition.lengths() + A.col_partition.lengths())

    def multiply(x: Vector, y: Vector) -> None:
        A.dot(x, out=y[:n])
        np.multiply(x, damp, out=y[n:])

    def multiply_adjoint(y: Vector, x: Vector) -> None:
        A.H.dot(y[:n], out=x)
        x += damp * y[n:]

    how: dict[str, Any] = {"multiply_adjoint": multiply_adjoint, "dtype": A.dtype}
    made = LinearOperator(A.comm, rows, A.col_partition, multiply, **how)
    return made, b.like(right, rows) if isinstance(b, DistVector) else right


class _Bidiagonal:
    """The vectors u and v of the bidiagonalization, their norms, and what A's norm is at least."""

    def __init__(self, run: Run) -> None:
        self.run, self._rows, self.columns = run, run.space, run.domain
        self._u = run.residual()
        self._image = run.space.vector()
        self._preimage = run.domain.vector()
        self.v = run.domain.vector()
        self.alpha, self.beta = 0.0, self._rows.norm(self._u)
        self._norm = 0.0

    def begin(self) -> bool:
        """Collective. The first u and v; True where there is nothing to do."""
        if self.run.record(self.beta):
            return True
        self._rows.scale(1.0 / self.beta, self._u)
        self._next_v(0.0)
        return self.ends(False, self.alpha * self.beta, self.beta)

    def advance(self) -> None:
        """Collective. The next u and v."""
        alpha = self.alpha
        self.run.multiply(self.v, self._image)
        self._rows.extend(self._u, -alpha, self._image)
        self.beta = _normalize(self._rows, self._u)
        self._norm = math.hypot(self._norm, alpha, self.beta)
        self._next_v(self.beta)

    def ends(self, ends: bool, gradient: float, rest: float) -> bool:
        """Local. Whether the residual is orthogonal to the columns, if nothing else ends the run.

        ``gradient`` is norm(A.H r), ``rest`` norm(r).
        """
        if not ends and self.small(gradient, rest):
            self.run.reason = LEAST_SQUARES
        return bool(self.run.reason)

    def small(self, gradient: float, rest: float) -> bool:
        """Local. Whether a gradient is nothing, compared with norms of A and r."""
        return gradient <= self.run.rules.rtol * self._norm * rest

    def _next_v(self, beta: float) -> None:
        """Collective. v becomes A.H u - beta v, normalized."""
        self.run.multiply_adjoint(self._u, self._preimage)
        self.columns.extend(self.v, -beta, self._preimage)
        self.alpha = _normalize(self.columns, self.v)


def _lsqr(at: _Bidiagonal) -> None:
    run = at.run
    if at.begin():
        return
    w = at.v.copy()
    phi_bar, rho_bar = at.beta, at.alpha
    while True:
        at.advance()
        rho = math.hypot(rho_bar, at.beta)
        if not run.positive(rho, "an entry of the bidiagonal matrix"):
            return
        c, s = rho_bar / rho, at.beta / rho
        phi, phi_bar = c * phi_bar, s * phi_bar
        theta, rho_bar = s * at.alpha, -c * at.alpha
        at.columns.advance(run.x, phi / rho, w, -theta / rho, at.v)
        if at.ends(run.record(phi_bar), at.alpha * abs(s * phi), phi_bar):
            return


def _lsmr(at: _Bidiagonal) -> None:
    """In the letters of Fong and Saunders, section 2.8 for the norm of the residual."""
    run, columns = at.run, at.columns
    if at.begin():
        return
    h, h_bar = at.v.copy(), columns.vector()
    alpha_bar, zeta_bar = at.alpha, at.alpha * at.beta
    rho = rho_bar = c_bar = 1.0
    s_bar = zeta = 0.0
    beta_dd, beta_d, rho_d, tau, theta_tilde = at.beta, 0.0, 1.0, 0.0, 0.0
    while True:
        at.advance()
        rho_old, rho_bar_old, zeta_old = rho, rho_bar, zeta
        rho = math.hypot(alpha_bar, at.beta)
        if not run.positive(rho, "an entry of the bidiagonal matrix"):
            return
        c, s = alpha_bar / rho, at.beta / rho
        theta, alpha_bar = s * at.alpha, c * at.alpha
        theta_bar, inner = s_bar * rho, c_bar * rho
        rho_bar = math.hypot(inner, theta)
        if not run.positive(rho_bar, "an entry of the bidiagonal matrix"):
            return
        c_bar, s_bar = inner / rho_bar, theta / rho_bar
        zeta, zeta_bar = c_bar * zeta_bar, -s_bar * zeta_bar
        columns.extend(h_bar, -(theta_bar / rho_old) * (rho / rho_bar_old), h)
        columns.add(run.x, zeta / rho / rho_bar, h_bar)
        columns.extend(h, -theta / rho, at.v)
        beta_hat, beta_dd = c * beta_dd, -s * beta_dd
        theta_old = theta_tilde
        rho_tilde = math.hypot(rho_d, theta_bar)
        c_tilde, s_tilde = rho_d / rho_tilde, theta_bar / rho_tilde
        theta_tilde, rho_d = s_tilde * rho_bar, c_tilde * rho_bar
        beta_d = -s_tilde * beta_d + c_tilde * beta_hat
        tau = (zeta_old - theta_old * tau) / rho_tilde
        tau_d = (zeta - theta_tilde * tau) / rho_d if rho_d else beta_d
        rest = math.hypot(beta_d - tau_d, beta_dd)
        if at.ends(run.record(rest), abs(zeta_bar), rest):
            return


def _normalize(space: Space, x: Vector) -> float:
    """Collective. Divide a vector by its norm, unless that is zero; the norm."""
    norm = space.norm(x)
    if norm > 0:
        space.scale(1.0 / norm, x)
    return norm
