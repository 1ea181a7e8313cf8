"""Conjugate gradients with one reduction an iteration, hidden behind the product.

P. Ghysels, W. Vanroose, Hiding global synchronization latency in the preconditioned Conjugate
Gradient algorithm, Parallel Computing 40 (2014), 224-238, Algorithm 4.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onesided.sparse.linear import Linear
from onesided.sparse.solvers.run import Callback, Rules, Run, several
from onesided.sparse.solvers.solution import Solution, V
from onesided.sparse.solvers.space import Scalar, Vector


@several
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
    >>> A = diags(comm, [-1, 2, -1], [-1, 0, 1], shape=(8, 8))
    >>> b = A @ np.ones(A.col_range[1] - A.col_range[0])
    >>> np.allclose(pipelined_cg(A, b, rtol=1e-8).x, 1, atol=1e-3)
    True
    >>> A.Free()
    """
    rules = Rules(rtol, atol, maxiter, callback, nullspace)
    run = Run("pipelined_cg", A, b, x0, rules, M, hermitian=True)
    return run.solve(lambda run: _Pipeline(run).iterate(replacement))


class _Pipeline:
    """The vectors of Algorithm 4, in its letters.

    r is the residual, u = M r, w = A u; p the direction, s = A p, q = M s, z = A q; m = M w and
    n = A m, which the reduction hides. Without a preconditioner u is r, q is s, and m is w.
    """

    def __init__(self, run: Run) -> None:
        self._run, self._space = run, run.space
        vector = run.space.vector
        alone = run.M is None
        self.r = run.residual()
        self.u = self.r if alone else vector()
        self.w, self.n = vector(), vector()
        self.m = self.w if alone else vector()
        self.p, self.s, self.z = vector(), vector(), vector()
        self.q = self.s if alone else vector()
        run.precondition(self.r, self.u)
        run.multiply(self.u, self.w)

    def iterate(self, replacement: int) -> None:
        """Collective. The run, from its first guess to its end."""
        run, space = self._run, self._space
        gamma_before = alpha = 0.0
        own = self._shares()
        while True:
            sums = space.sums_during(self._hiding, *own)
            rr, gamma, delta = (value.real for value in sums)
            if run.record(float(np.sqrt(rr))) or not run.positive(gamma, "(r, M r)"):
                return
            beta = gamma / gamma_before if gamma_before else 0.0
            curvature = delta - (beta * gamma / alpha if alpha else 0.0)
            if not run.positive(curvature, "(p, A p)"):
                return
            alpha, gamma_before = gamma / curvature, gamma
            own = self._step(alpha, beta)
            if replacement and (run.iterations + 1) % replacement == 0:
                own = self._replace()

    def _hiding(self) -> None:
        """Collective. What is done while the reduction is under way."""
        self._run.precondition(self.w, self.m)
        self._run.multiply(self.m, self.n)

    def _step(self, alpha: float, beta: float) -> list[Scalar]:
        """Local. All recurrences, part by part; this rank's share of the next reduction."""
        axpy, scal, x = self._space.axpy, self._space.scal, self._run.x
        directions = [(self.n, self.z), (self.w, self.s), (self.u, self.p)]
        residuals = [(self.s, self.r), (self.z, self.w)]
        if self._run.M is not None:
            directions.append((self.m, self.q))
            residuals.append((self.q, self.u))
        own: list[Scalar] = [0.0, 0.0, 0.0]
        for part in self._space.parts:
            for source, target in directions:
                scal(beta, target[part])
                axpy(source[part], target[part])
            axpy(self.p[part], x[part], a=alpha)
            for source, target in residuals:
                axpy(source[part], target[part], a=-alpha)
            r, u = self.r[part], self.u[part]
            own[0] += np.vdot(r, r)
            own[1] += np.vdot(r, u)
            own[2] += np.vdot(self.w[part], u)
        return own

    def _replace(self) -> list[Scalar]:
        """Collective. All that follows from x and p computed anew."""
        run = self._run
        run.residual(self.r)
        for residual, preconditioned, product in (
            (self.r, self.u, self.w),
            (None, self.p, self.s),
            (self.s, self.q, self.z),
        ):
            if residual is not None:
                run.precondition(residual, preconditioned)
            run.multiply(preconditioned, product)
        return self._shares()

    def _shares(self) -> list[Scalar]:
        """Local. This rank's shares of (r, r), (r, u) and (w, u)."""
        pairs: list[tuple[Vector, Vector]] = [(self.r, self.r), (self.r, self.u), (self.w, self.u)]
        return [self._space.share(a, b) for a, b in pairs]
