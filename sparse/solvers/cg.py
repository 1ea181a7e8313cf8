"""The method of conjugate gradients, for Hermitian positive definite matrices.

M. R. Hestenes, E. Stiefel, Methods of conjugate gradients for solving linear systems, Journal of
Research of the National Bureau of Standards 49 (1952), 409-436.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onesided.sparse.linear import Linear
from onesided.sparse.solvers.run import Callback, Rules, Run, several
from onesided.sparse.solvers.solution import Solution
from onesided.sparse.solvers.space import Vector


@several
def cg(
    A: Linear,
    b: Any,
    x0: Any = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
    callback: Callback = None,
    nullspace: Any = None,
) -> Solution:
    """Collective. Solve A x = b; A, and M if given, are Hermitian and positive definite.

    Stops when norm(b - A x) <= max(rtol * norm(b), atol), by the residual of the recurrence, as in
    SciPy, and then by b - A x itself. Two reductions an iteration. A direction p with
    (p, A p) <= 0, or a residual r with (r, M r) <= 0, is a breakdown. See :class:`Rules` for the
    other arguments, :class:`Run` for the errors. b may be a block of k right-hand sides, (n, k).
    """
    run = Run("cg", A, b, x0, Rules(rtol, atol, maxiter, callback, nullspace), M, hermitian=True)
    return run.solve(_iterate)


def cg_coefficients(
    A: Linear, b: Any, M: Any, steps: int, nullspace: Any = None
) -> tuple[list[float], list[float], str]:
    """Collective. alpha and beta of up to ``steps`` iterations of cg, and how they ended.

    alpha is the length of a step, beta the part of the direction that goes into the next one.
    """
    rounding = 100 * float(np.finfo(np.result_type(A.dtype, b)).eps)
    rules = Rules(max(1e-10, rounding), 0.0, steps, None, nullspace)
    run = Run("cg_coefficients", A, b, None, rules, M, hermitian=True)
    coefficients: list[tuple[float, float]] = []
    _iterate(run, coefficients)
    return [alpha for alpha, _ in coefficients], [beta for _, beta in coefficients], run.reason


def _iterate(run: Run, coefficients: list[tuple[float, float]] | None = None) -> None:
    space, x = run.space, run.x
    r, q = run.residual(), space.vector()
    z = run.precondition(r, run.room())
    if run.M is None:
        rr = rz = space.dots((r, r))[0].real
    else:
        rr, rz = (value.real for value in space.dots((r, r), (r, z)))
    if run.record(float(np.sqrt(rr))):
        return
    p = z.copy()
    while run.positive(rz, "(r, M r)"):
        run.multiply(p, q)
        pq = space.dots((p, q))[0].real
        if not run.positive(pq, "(p, A p)"):
            return
        alpha, before = rz / pq, rz
        rr, rz = _lowered(run, r, alpha, q, z)
        if coefficients is not None:
            coefficients.append((alpha, rz / before))
        ends = run.record(float(np.sqrt(rr)))
        if ends:
            space.add(x, alpha, p)
        else:
            space.advance(x, alpha, p, rz / before, z)
        run.call_back()
        if ends:
            return


def _lowered(run: Run, r: Vector, alpha: float, q: Vector, z: Vector) -> tuple[float, float]:
    """Collective. r -= alpha q and z = M r; then (r, r) and (r, z)."""
    square = run.space.add_square(r, -alpha, q)
    if run.M is None:
        (rr,) = run.space.sums(square)
        return rr.real, rr.real
    run.precondition(r, z)
    rr, rz = run.space.sums(square, run.space.share(r, z))
    return rr.real, rz.real
