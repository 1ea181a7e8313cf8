"""The method of conjugate gradients, for Hermitian positive definite matrices.

M. R. Hestenes, E. Stiefel, Methods of conjugate gradients for solving linear systems, Journal of
Research of the National Bureau of Standards 49 (1952), 409-436.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onesided.sparse.linear import Linear
from onesided.sparse.matrix import DistMatrix
from onesided.sparse.solvers.iteration import iteration
from onesided.sparse.solvers.run import Callback, Rules, Run, each_column, joined
from onesided.sparse.solvers.solution import Solution, V
from onesided.sparse.solvers.space import root
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
    >>> A = diags(comm, [-1, 2, -1], [-1, 0, 1], shape=(8, 8))
    >>> b = A @ np.ones(A.col_range[1] - A.col_range[0])
    >>> np.allclose(cg(A, b, rtol=1e-8).x, 1, atol=1e-3)
    True
    >>> A.Free()
    """
    rules = Rules(rtol, atol, maxiter, callback, nullspace)
    pairs = each_column(A, b, x0, "cg")
    runs = [Run("cg", A, *pair, rules, M, hermitian=True) for pair in pairs or [(b, x0)]]
    if len(runs) > 1 and isinstance(A, DistMatrix) and not runs[0].calls_back:
        together(runs)
    found = [run.solve(_iterate) for run in runs]
    return found[0] if pairs is None else joined(A, b, found)


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
    run.hear()
    return [alpha for alpha, _ in coefficients], [beta for _, beta in coefficients], run.reason


def _iterate(run: Run, coefficients: list[tuple[float, float]] | None = None) -> None:
    with iteration(run) as iterations:
        rr, rz = iterations.begin()
        if run.record(root(rr)):
            return
        while run.positive(rz, "(r, M r)"):
            before = rz
            pq, alpha, rr, rz = iterations.step()
            if not run.positive(pq, "(p, A p)"):
                return
            if coefficients is not None:
                coefficients.append((alpha, rz / before))
            if run.record(root(rr)):
                return
