"""The generalized minimal residual method, restarted, for general square matrices.

Y. Saad, M. H. Schultz, GMRES: a generalized minimal residual algorithm for solving nonsymmetric
linear systems, SIAM Journal on Scientific and Statistical Computing 7 (1986), 856-869. Y. Saad, A
flexible inner-outer preconditioned GMRES algorithm, the same journal, 14 (1993), 461-469.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from onesided.collectives import sums
from onesided.sparse.linear import Linear
from onesided.sparse.preconditioners.preconditioner import Function
from onesided.sparse.solvers.run import Callback, Rules, Run, solve
from onesided.sparse.solvers.solution import Solution, V
from onesided.sparse.solvers.space import Scalar, Vector

RESTART = 20


def gmres(
    A: Linear, b: V, x0: V | None = None, *, rtol: float = 1e-5, atol: float = 0.0,
    maxiter: int | None = None, M: Any = None, callback: Callback = None, nullspace: Any = None,
    left_nullspace: Any = None, restart: int = RESTART,
) -> Solution[V]:  # fmt: skip
    """Collective. Solve A x = b for any square matrix, preconditioned from the right.

    An iteration is one product, which adds a vector to the basis of at most ``restart``; x is
    formed, the residual computed anew and ``callback`` called at the end of a cycle only.
    ``maxiter`` counts iterations, not cycles as in SciPy, which preconditions from the left.
    Two reductions an iteration (classical Gram-Schmidt, twice). A basis that cannot be extended
    although the system is not solved, as with a singular matrix, is a breakdown; x is then the one
    with the least residual that was seen. Stops as :func:`cg` does; the memory is ``restart`` + 1
    vectors.

    Examples
    --------
    >>> with diags(comm, [-1, 2, -1], [-1, 0, 1], shape=(8, 8)) as A:
    ...     b = A @ np.ones(A.col_range[1] - A.col_range[0])
    ...     np.allclose(gmres(A, b, rtol=1e-8).x, 1, atol=1e-3)
    True
    """
    rules = Rules(rtol, atol, maxiter, callback, nullspace, left_nullspace)
    return _solve("gmres", A, b, x0, rules, M, restart)


def fgmres(
    A: Linear, b: V, x0: V | None = None, *, rtol: float = 1e-5, atol: float = 0.0,
    maxiter: int | None = None, M: Any = None, callback: Callback = None, nullspace: Any = None,
    left_nullspace: Any = None, restart: int = RESTART,
) -> Solution[V]:  # fmt: skip
    """Collective. As :func:`gmres`, with an M that may be another one at every iteration.

    Such as some iterations of another solver. The memory is twice that of gmres.

    Examples
    --------
    >>> with diags(comm, [-1, 2, -1], [-1, 0, 1], shape=(8, 8)) as A:
    ...     b = A @ np.ones(A.col_range[1] - A.col_range[0])
    ...     np.allclose(fgmres(A, b, rtol=1e-8).x, 1, atol=1e-3)
    True
    """
    rules = Rules(rtol, atol, maxiter, callback, nullspace, left_nullspace)
    return _solve("fgmres", A, b, x0, rules, M, restart)


class Inner(Function):
    """M r by some iterations of a solver, from zero: another map for each r."""

    hermitian = False


def inner(A: Linear, solver: Callable[..., Solution[Any]], **how: Any) -> Inner:
    """Local. A preconditioner that solves A x = r by ``solver(A, r, **how)``, as far as told.

    As in ``fgmres(A, b, M=inner(A, cg, maxiter=5))``. ``how`` is the same on every rank.

    Examples
    --------
    >>> with diags(comm, [-1, 2, -1], [-1, 0, 1], shape=(8, 8)) as A:
    ...     b = A @ np.ones(A.col_range[1] - A.col_range[0])
    ...     np.allclose(fgmres(A, b, rtol=1e-8, M=inner(A, cg, rtol=0.1)).x, 1, atol=1e-3)
    True
    """
    return Inner(lambda r: solver(A, r, **how).x)


def _solve(
    name: str, A: Linear, b: Any, x0: Any, rules: Rules, M: Any, restart: int
) -> Solution[Any]:
    def check() -> None:
        if restart < 1:
            raise ValueError(f"restart is {restart}; a cycle has at least one iteration")

    def leg(run: Run) -> None:
        most = max(1, min(restart, run.A.shape[0]))
        _Cycles(run, most, name == "fgmres" and run.M is not None).iterate()

    return solve(name, A, b, x0, rules, M, leg, choices=restart, check=check)


class _Cycles:
    """The basis, and the small least-squares problem of a cycle, the same on every rank.

    ``_triangle`` holds the Hessenberg matrix of the cycle after the rotations, ``_right`` the
    right-hand side after them: the entry behind the last is the residual's norm but for its sign.
    """

    def __init__(self, run: Run, most: int, flexible: bool) -> None:
        self._run, self._space, self._most = run, run.space, most
        dtype = run.space.dtype
        wide = np.complex128 if dtype.kind == "c" else np.float64
        self._basis = np.zeros((most + 1, run.space.length), dtype)
        #: What the preconditioner has made of the basis; all of it is kept if it may change.
        self._hats: list[Vector] = [run.room() for _ in range(most if flexible else 1)]
        self._flexible = flexible
        self._kept = run.space.vector()
        self._conjugate = run.space.vector() if dtype.kind == "c" else run.x[:0]
        self._change = run.space.vector()
        self._sums = sums(run.comm, most + 1, wide)
        self._total: Vector = self._sums.total
        self._coefficients = np.zeros(most, dtype)
        self._triangle: Vector = np.zeros((most + 1, most), wide)
        self._column: Vector = np.zeros(most + 1, wide)
        self._rotations: list[tuple[Scalar, float]] = []
        self._right: Vector = np.zeros(most + 1, wide)
        self._nothing, self._length = 10 * float(np.finfo(dtype).eps), 0.0

    def iterate(self) -> None:
        """Collective. Cycles, until one ends the run."""
        run, residual = self._run, self._basis[0]
        run.residual(residual)
        norm = self._space.norm(residual)
        ends = run.record(norm)
        while not ends:
            count, complete = self._cycle(norm)
            if run.reason:
                return
            before = norm
            self._kept[:] = run.x
            self._form(count)
            run.residual(residual)
            norm = self._space.norm(residual)
            worse = not norm <= before
            if worse:
                run.x[:], norm = self._kept, before
            run.residuals.pop()  # an estimate; this is the norm itself
            ends = run.record(norm)
            if worse and not ends:
                run.broken("no cycle makes the residual smaller")
                return
            if complete and not ends:
                run.broken("the basis cannot be extended")
                return

    def _cycle(self, norm: float) -> tuple[int, bool]:
        """Collective. The columns of the triangle, and whether the basis cannot be extended."""
        run = self._run
        self._space.scale(1.0 / norm, self._basis[0])
        self._right.fill(0)
        self._right[0] = norm
        self._rotations.clear()
        for step in range(self._most):
            complete = self._extend(step)
            if abs(self._triangle[step, step]) <= self._nothing * self._length:
                # all of A M v lies in what is there already
                run.residuals.append(run.residuals[-1])
                return step, True
            estimate = float(abs(self._right[step + 1]))
            run.residuals.append(estimate)
            if not math.isfinite(estimate):
                run.broken(f"the residual is {estimate}")
            at_end = estimate <= run.tolerance or run.iterations >= run.limit
            if complete or at_end or run.reason:
                return step + 1, complete
        return self._most, False

    def _extend(self, step: int) -> bool:
        """Collective. One more vector of the basis; True where nothing is left for it."""
        run, vector = self._run, self._basis[step + 1]
        hat = self._hats[step if self._flexible else 0]
        run.multiply(run.precondition(self._basis[step], hat), vector)
        column = self._column
        square = self._project(step + 1, vector)
        column[: step + 1] = self._total[: step + 1]
        rest = self._project(step + 1, vector)
        again = self._total[: step + 1]
        column[: step + 1] += again
        left = math.sqrt(max(rest - float(np.vdot(again, again).real), 0.0))
        self._length = math.sqrt(square)
        complete = left <= self._nothing * self._length
        column[step + 1] = 0.0 if complete else left
        if not complete:
            self._space.scale(1.0 / left, vector)
        self._rotate(step)
        return complete

    def _project(self, count: int, vector: Vector) -> float:
        """Collective. Take the first ``count`` vectors out of this one; its square norm before.

        What was taken is in ``_total``.
        """
        basis, own, total = self._basis[:count], self._sums.own, self._total
        if self._conjugate.size:
            np.conjugate(vector, out=self._conjugate)
            np.matmul(basis, self._conjugate, out=own[:count])
            np.conjugate(own[:count], out=own[:count])
        else:
            np.matmul(basis, vector, out=own[:count])
        own[count] = np.vdot(vector, vector)
        self._sums.reduce()
        self._coefficients[:count] = total[:count]
        np.matmul(self._coefficients[:count], basis, out=self._change)
        np.subtract(vector, self._change, out=vector)
        return float(total[count].real)

    def _rotate(self, step: int) -> None:
        """Local. Make the new column one of a triangle, by the rotations so far and a new one."""
        column = self._column
        for row, (c, s) in enumerate(self._rotations):
            upper, lower = column[row], column[row + 1]
            column[row], column[row + 1] = np.conj(c) * upper + s * lower, c * lower - s * upper
        upper, lower = column[step], float(column[step + 1].real)
        length = math.hypot(abs(upper), lower)
        c, s = (upper / length, lower / length) if length else (1.0, 0.0)
        self._rotations.append((c, s))
        column[step] = length
        self._triangle[: step + 1, step] = column[: step + 1]
        right = self._right[step]
        self._right[step], self._right[step + 1] = np.conj(c) * right, -s * right

    def _form(self, count: int) -> None:
        """As the preconditioner. x += M (the combination of the basis with the least residual)."""
        if not count:
            return
        from scipy.linalg import solve_triangular  # slow to import

        run, triangle = self._run, self._triangle[:count, :count]
        self._coefficients[:count] = solve_triangular(triangle, self._right[:count])
        if self._flexible:
            for factor, hat in zip(self._coefficients[:count], self._hats, strict=False):
                self._space.add(run.x, factor, hat)
            return
        np.matmul(self._coefficients[:count], self._basis[:count], out=self._change)
        self._space.add(run.x, 1.0, run.precondition(self._change, self._hats[0]))
