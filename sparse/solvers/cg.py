"""The method of conjugate gradients, for Hermitian positive definite matrices.

M. R. Hestenes, E. Stiefel, Methods of conjugate gradients for solving linear systems, Journal of
Research of the National Bureau of Standards 49 (1952), 409-436. With one reduction an iteration,
hidden behind the product: P. Ghysels, W. Vanroose, Hiding global synchronization latency in the
preconditioned Conjugate Gradient algorithm, Parallel Computing 40 (2014), 224-238, Algorithm 4.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from onesided.sparse.linear import Linear
from onesided.sparse.solvers.iteration import iteration
from onesided.sparse.solvers.run import Callback, Rules, Run, solve
from onesided.sparse.solvers.solution import Solution, V
from onesided.sparse.solvers.space import Scalar, root
from onesided.sparse.solvers.together import together


def cg(
    A: Linear, b: V, x0: V | None = None, *, rtol: float = 1e-5, atol: float = 0.0,
    maxiter: int | None = None, M: Any = None, callback: Callback = None, nullspace: Any = None,
) -> Solution[V]:  # fmt: skip
    """Collective. Solve A x = b; A, and M if given, are Hermitian and positive definite.

    Stops when norm(b - A x) <= max(rtol * norm(b), atol), by the residual of the recurrence, as in
    SciPy, and then by b - A x itself. Two reductions an iteration. A direction p with
    (p, A p) <= 0, or a residual r with (r, M r) <= 0, is a breakdown. See :class:`Rules` for the
    other arguments, :class:`Run` for the errors. b may be a block of k right-hand sides, (n, k):
    those of a DistMatrix are solved for together where there is no callback, the matrix read once.

    Examples
    --------
    >>> with diags(comm, [-1, 2, -1], [-1, 0, 1], shape=(8, 8)) as A:
    ...     b = A @ np.ones(A.col_range[1] - A.col_range[0])
    ...     np.allclose(cg(A, b, rtol=1e-8).x, 1, atol=1e-3)
    True
    """
    rules = Rules(rtol, atol, maxiter, callback, nullspace)
    return solve("cg", A, b, x0, rules, M, _iterate, hermitian=True, jointly=together)


def pipelined_cg(
    A: Linear, b: V, x0: V | None = None, *, rtol: float = 1e-5, atol: float = 0.0,
    maxiter: int | None = None, M: Any = None, callback: Callback = None, nullspace: Any = None,
    replacement: int = 50,
) -> Solution[V]:  # fmt: skip
    """Collective. As :func:`cg`; the reduction is under way during product and preconditioner.

    Pays where a reduction takes about as long as a product. The recurrences lose accuracy faster
    than those of cg, so after every ``replacement`` iterations (0: never) the vectors are computed
    anew, by four products; badly conditioned systems need it more often, or a preconditioner. One
    product is done in vain at the end.

    Examples
    --------
    >>> with diags(comm, [-1, 2, -1], [-1, 0, 1], shape=(8, 8)) as A:
    ...     b = A @ np.ones(A.col_range[1] - A.col_range[0])
    ...     np.allclose(pipelined_cg(A, b, rtol=1e-8).x, 1, atol=1e-3)
    True
    """
    rules = Rules(rtol, atol, maxiter, callback, nullspace)
    how: Any = {"hermitian": True, "choices": replacement}
    leg = partial(_pipeline, replacement=replacement)
    return solve("pipelined_cg", A, b, x0, rules, M, leg, **how)


@np.errstate(all="ignore")
def cg_coefficients(
    A: Linear, b: Any, M: Any, steps: int, nullspace: Any = None
) -> tuple[list[tuple[float, float]], str]:
    """Collective. alpha and beta of each of up to ``steps`` iterations of cg, and how they ended.

    alpha is the length of a step, beta the part of the direction that goes into the next one.
    """
    rounding = 100 * float(np.finfo(np.result_type(A.dtype, b)).eps)
    rules = Rules(max(1e-10, rounding), 0.0, steps, None, nullspace)
    run = Run("cg_coefficients", A, b, None, rules, M, hermitian=True)
    coefficients: list[tuple[float, float]] = []
    _iterate(run, coefficients)
    run.hear()
    return coefficients, run.reason


def _iterate(run: Run, coefficients: list[tuple[float, float]] | None = None) -> None:
    iterations = iteration(run)
    rr, rz = iterations.begin()
    ends = run.record(root(rr))
    while not ends and run.positive(rz, "(r, M r)"):
        before = rz
        pq, alpha, rr, rz = iterations.step()
        if not run.positive(pq, "(p, A p)"):
            break
        if coefficients is not None:
            coefficients.append((alpha, rz / before))
        ends = run.record(root(rr))
    iterations.release()


def _pipeline(run: Run, replacement: int) -> None:
    """In the letters of Algorithm 4: r is the residual, u = M r, w = A u; p the direction, s = A p,
    q = M s, z = A q; m = M w and n = A m, which the reduction hides. Without a preconditioner u is
    r, q is s, and m is w.
    """
    space, vector = run.space, run.space.vector
    r, w, n, p, s, z = run.residual(), vector(), vector(), vector(), vector(), vector()
    u, m, q = r, w, s
    directions, residuals = [(n, z), (w, s), (u, p)], [(s, r), (z, w)]
    if run.M is not None:
        u, m, q = vector(), vector(), vector()
        directions, residuals = [(n, z), (w, s), (u, p), (m, q)], [(s, r), (z, w), (q, u)]

    def hidden() -> None:
        """Collective. What is done while the reduction is under way."""
        run.precondition(w, m)
        run.multiply(m, n)

    def step(alpha: float, beta: float) -> list[Scalar]:
        """Local. All recurrences, part by part; this rank's share of the next reduction."""
        axpy, scal = space.axpy, space.scal
        own: list[Scalar] = [0.0, 0.0, 0.0]
        for part in space.parts:
            for source, target in directions:
                scal(beta, target[part])
                axpy(source[part], target[part])
            axpy(p[part], run.x[part], a=alpha)
            for source, target in residuals:
                axpy(source[part], target[part], a=-alpha)
            own[0] += np.vdot(r[part], r[part]).item()
            own[1] += np.vdot(r[part], u[part]).item()
            own[2] += np.vdot(w[part], u[part]).item()
        return own

    def shares() -> list[Scalar]:
        """Local. The same without a step."""
        return [space.share(r, r), space.share(r, u), space.share(w, u)]

    run.precondition(r, u)
    run.multiply(u, w)
    gamma_before = alpha = 0.0
    own = shares()
    while True:
        rr, gamma, delta = (value.real for value in space.sums_during(hidden, *own))
        if run.record(float(np.sqrt(rr))) or not run.positive(gamma, "(r, M r)"):
            return
        beta = gamma / gamma_before if gamma_before else 0.0
        curvature = delta - (beta * gamma / alpha if alpha else 0.0)
        if not run.positive(curvature, "(p, A p)"):
            return
        alpha, gamma_before = gamma / curvature, gamma
        own = step(alpha, beta)
        if replacement and (run.iterations + 1) % replacement == 0:
            # all that follows from x and p, computed anew
            run.residual(r)
            run.precondition(r, u)
            run.multiply(u, w)
            run.multiply(p, s)
            run.precondition(s, q)
            run.multiply(q, z)
            own = shares()
