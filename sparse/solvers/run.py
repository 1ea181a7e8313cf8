"""One run of a solver: its system, when it stops, and what it has seen.

What is the same for every method is here, and here alone: checking what was given, the scale that
keeps sums of squares away from the ends of the numbers, the null space, the limit, and that
convergence is seen in b - A x itself before it is told. A method iterates from ``run.x`` until
``run.record`` says that it ends; :meth:`Run.solve` then looks, and lets it go on if it has to.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ParamSpec

import numpy as np
from numpy.typing import NDArray

from onesided.collectives import sums
from onesided.collectives.agreement import agree, agreed, largest
from onesided.collectives.errors import RequestError
from onesided.sparse.linear import Linear, common_dtype
from onesided.sparse.moving import shared_dtype
from onesided.sparse.preconditioners.preconditioner import Preconditioner
from onesided.sparse.solvers.solution import BREAKDOWN, CONVERGED, LEAST_SQUARES, LIMIT, Solution
from onesided.sparse.solvers.space import Scalar, Space, Vector
from onesided.sparse.vector import DistVector

Callback = Callable[[Any], object] | None
Arguments = ParamSpec("Arguments")

#: What a leg must at least have taken off the residual, if another one is to follow.
_WORTH_GOING_ON = 0.5


@dataclass(frozen=True)
class Rules:
    """When a run stops: norm of the residual <= max(rtol * norm(b), atol), or too many iterations.

    ``maxiter`` None: ten times the number of unknowns. ``callback(x)`` is called after every
    iteration with what the solver will return as x; not all ranks need to have one. An error of it
    on one rank is raised on all. ``nullspace``: this rank's block of vectors, (n,) or (n, m), that
    A maps to zero: what b, M r and x have of them is taken away.
    """

    rtol: float
    atol: float
    maxiter: int | None
    callback: Callback
    nullspace: Any = None

    def check(self) -> None:
        """Local. ``ValueError`` for tolerances below zero or not a number, or a bad limit."""
        for name, value in (("rtol", self.rtol), ("atol", self.atol)):
            if not value >= 0:
                raise ValueError(f"{name} is {value}; it must be zero or above")
        if self.maxiter is not None and self.maxiter < 0:
            raise ValueError(f"maxiter is {self.maxiter}; it must be zero or above")
        if self.callback is not None and not callable(self.callback):
            raise TypeError(f"callback is {self.callback!r}, which cannot be called")


class Run:
    """A x = b, or A x close to b: blocks, preconditioner, residual history, and how it ended.

    ``b`` and ``x`` are this rank's blocks (x is the run's own), ``space`` that of b, ``domain``
    that of x; the same for a square matrix. Where b or A are so large or small that squares would
    leave the range of the numbers, both are divided by powers of two: then ``x``, ``b`` and what
    ``multiply`` and ``precondition`` give are in these units, and so is ``tolerance``.
    """

    def __init__(
        self,
        name: str,
        A: Linear,
        b: Any,
        x0: Any,
        rules: Rules,
        M: Preconditioner | None = None,
        *,
        square: bool = True,
        units: bool = True,
    ) -> None:
        """Collective. Check what was given; raises the same error on every rank.

        Without ``units`` nothing is divided by anything.
        ``ValueError`` for lengths, shapes and tolerances, ``TypeError`` for dtypes that the
        matrix does not hold and for what is no preconditioner.
        """
        comm = A.comm
        what = (name, rules.rtol, rules.atol, rules.maxiter, x0 is None, M is None)
        n_rows, n_cols = (stop - start for start, stop in (A.row_range, A.col_range))
        dtype = np.dtype(A.dtype)
        with agreed(comm, (*what, rules.nullspace is None)):
            if A.freed:
                raise RequestError("the matrix has been freed")
            rules.check()
            if square and (A.shape[0] != A.shape[1] or A.row_range != A.col_range):
                raise ValueError(f"{name} needs a square matrix; this one is {A.shape}")
            if M is not None and not callable(getattr(M, "apply", None)):
                raise TypeError(f"M is {M!r}, which has no apply(r, out)")
            right = _block("b", b, n_rows, dtype)
            guess = None if x0 is None else _block("x0", x0, n_cols, dtype)
            given = [each.dtype for each in (right, guess) if each is not None]
            dtype = np.result_type(dtype, *given)
        dtype = shared_dtype(comm, dtype)
        calls = largest(comm, None, "callback", [int(rules.callback is not None)])
        self._calls_back = bool(calls[0])
        self.A, self.M, self.comm, self.rules = A.promoted(dtype), M, comm, rules
        refresh = getattr(M, "refresh", None)
        if refresh is not None:
            refresh()
        self.space = Space(comm, n_rows, dtype)
        self.domain = self.space if square else Space(comm, n_cols, dtype)
        self.b = np.ascontiguousarray(right, dtype)
        self._nothing = self._null_space(n_cols)
        self._b_unit = self._A_unit = 0
        if units:
            self._b_unit = _unit(self.space.largest(self.b), self.space.dtype)
            self._A_unit = _unit(self.A.magnitude(), self.space.dtype)
        self._begin(guess, b)

    def _begin(self, guess: Vector | None, given: Any) -> None:
        """Collective. The first guess, the tolerance, and what is given back."""
        self._scaled = bool(self._b_unit or self._A_unit)
        if self._b_unit or self._nothing is not None:
            self.b = self.b.copy()
        _times_two_to(self.b, -self._b_unit)
        self.take_null_space(self.b)
        self.x = self.domain.vector()
        self._guessed = guess is not None
        if guess is not None:
            self.x[:] = guess
            _times_two_to(self.x, self._A_unit - self._b_unit)
        self._wrapped: Any = self.x
        if isinstance(given, DistVector):
            self._wrapped = given.like(self.x, self.A.col_partition)
        rules = self.rules
        self.size = self.space.norm(self.b)
        self.tolerance = self.tolerance_of(self.size)
        self.limit = 10 * self.A.shape[1] if rules.maxiter is None else rules.maxiter
        self.residuals: list[float] = []
        self.reason = ""
        self._resumed = False

    def tolerance_of(self, size: float) -> float:
        """Local. What the rules allow relative to a norm."""
        return max(math.ldexp(self.rules.atol, -self._b_unit), self.rules.rtol * size)

    def measure_in_A(self) -> None:
        """Local. Norms are those of vectors A x from now on, x being of norm one."""
        self._b_unit, self._scaled = self._A_unit, bool(self._A_unit)

    # -- from leg to leg -------------------------------------------------------------------------

    def solve(
        self,
        method: Callable[[Run], object],
        least_squares: Callable[[Vector, float], bool] | None = None,
    ) -> Solution:
        """Collective. Legs of a method, each from where the last one ended, until x is seen right.

        A leg that says "converged" is believed when norm(b - A x) is; else, and after a
        breakdown, another one follows if this one took at least half of the residual.
        ``least_squares(r, norm)`` says whether r, of that norm, is orthogonal to the columns.
        """
        if not self.size:
            self.x.fill(0)
            self.record(0.0)
            return self.solution(0.0)
        true, rest = math.inf, self.x[:0]
        while True:
            method(self)
            before = true if true < math.inf else self.residuals[0]
            if len(rest) != self.space.length:
                rest = self.space.vector()
            true = self.space.norm(self._rest(rest))
            if self._confirmed(rest, true, least_squares):
                break
            if self.reason == LIMIT:
                break
            if self.iterations >= self.limit:
                self.reason = LIMIT
                break
            if not true < _WORTH_GOING_ON * before:
                if self.reason.startswith(CONVERGED):
                    self.broken(f"the true residual stays at {self._told(true):.3g}")
                break
            self.reason, self._resumed = "", True
            self.residuals[-1] = true
        return self.solution(true)

    def _confirmed(
        self,
        rest: Vector,
        true: float,
        least_squares: Callable[[Vector, float], bool] | None,
    ) -> bool:
        """Collective. Whether the residual itself says what the method did."""
        if self.reason == LEAST_SQUARES and least_squares is not None:
            return true <= self.tolerance or least_squares(rest, true)
        if true <= self.tolerance and math.isfinite(true):
            self.reason = CONVERGED
        return self.reason == CONVERGED and true <= self.tolerance

    def _rest(self, out: Vector) -> Vector:
        """Collective. b - A x."""
        self.multiply(self.x, out)
        np.subtract(self.b, out, out=out)
        return out

    def _told(self, norm: float) -> float:
        """Local. A norm in the caller's units."""
        try:
            return math.ldexp(norm, self._b_unit)
        except OverflowError:
            return math.inf

    def solution(self, true: float) -> Solution:
        """Collective. What the run has come to, in the caller's units."""
        self.take_null_space(self.x)
        if self._scaled:
            _times_two_to(self.x, self._b_unit - self._A_unit)
            if not math.isfinite(self.domain.largest(self.x)):
                self.broken("x is out of the range of its dtype")
        history = np.array([self._told(norm) for norm in self.residuals])
        converged = self.reason.startswith(CONVERGED)
        told = self._told(true)
        return Solution(self._wrapped, converged, self.iterations, history, self.reason, told)

    # -- what methods call -----------------------------------------------------------------------

    @property
    def iterations(self) -> int:
        """Local. How many iterations have been recorded."""
        return max(0, len(self.residuals) - 1)

    def residual(self, out: Vector | None = None) -> Vector:
        """Collective. b - A x, without a product for the guess zero."""
        r = self.space.vector() if out is None else out
        if not self._guessed and not self.residuals:
            r[:] = self.b
            return r
        return self._rest(r)

    def multiply(self, x: Vector, y: Vector) -> None:
        """Collective. y = A x; as vectors of a run are alike on all ranks, nothing is checked."""
        _multiply(self.A, x, y)
        if self._A_unit:
            _times_two_to(y, -self._A_unit)

    def multiply_adjoint(self, x: Vector, y: Vector) -> None:
        """Collective. y = A.H x; the first one is planned."""
        _multiply(self.A.H, x, y)
        if self._A_unit:
            _times_two_to(y, -self._A_unit)

    def precondition(self, r: Vector, out: Vector) -> Vector:
        """As the preconditioner's apply; without one, ``r`` itself, and ``out`` is left alone."""
        if self.M is None:
            return r
        self.M.apply(r, out)
        if self._A_unit:
            _times_two_to(out, self._A_unit)
        self.take_null_space(out)
        return out

    def eigenvalue(self, value: Scalar, back: bool = False) -> Scalar:
        """Local. An eigenvalue of A, or of M A, from this run's units to the caller's, or back."""
        exponent = self._A_unit if self.M is None else 0
        return value * 2.0 ** (-exponent if back else exponent)

    def room(self) -> Vector:
        """Local. A new vector for what the preconditioner writes; empty where there is none."""
        return self.space.vector() if self.M is not None else self.x[:0]

    def record(self, norm: float) -> bool:
        """Local. Note the norm of the residual after an iteration; True where the leg ends.

        The first one of a leg that goes on is no iteration, it takes the place of the last.
        """
        if self._resumed:
            self._resumed = False
            self.residuals.pop()
        self.residuals.append(norm)
        if not math.isfinite(norm):
            self.broken(f"the residual is {norm}")
        elif norm <= self.tolerance:
            self.reason = CONVERGED
        elif self.iterations >= self.limit:
            self.reason = LIMIT
        return bool(self.reason)

    def broken(self, words: str) -> None:
        """Local. The leg ends by a breakdown."""
        self.reason = f"{BREAKDOWN}: {words}, iteration {self.iterations + 1}"

    def positive(self, value: Scalar, what: str) -> bool:
        """Local. Whether a number is above zero, and finite; else the leg ends."""
        good = math.isfinite(value) and value > 0
        if not good:
            self.broken(f"{what} = {value:.3g}")
        return good

    def call_back(self) -> None:
        """Collective where any rank has a callback: call it with x, and agree on its errors."""
        if self._calls_back:
            kept = self.x.copy() if self._scaled else None
            _times_two_to(self.x, self._b_unit - self._A_unit)
            with agreed(self.comm):
                if self.rules.callback is not None:
                    self.rules.callback(self._wrapped)
            if kept is not None:
                self.x[:] = kept

    # -- the null space --------------------------------------------------------------------------

    def _null_space(self, length: int) -> Vector | None:
        """Collective. An orthonormal basis of the null space, this rank's rows; None without."""
        if self.rules.nullspace is None:
            return None
        with agreed(self.comm, "nullspace"):
            given = self.rules.nullspace
            given = np.asarray(given.array if isinstance(given, DistVector) else given)
            basis = given.reshape(len(given), -1).astype(self.space.dtype, casting="same_kind")
            if len(basis) != length:
                raise ValueError(
                    f"nullspace has shape {given.shape}; this rank's block has {length} entries"
                )
        width = basis.shape[1]
        most, least = largest(self.comm, None, "nullspace", [width, -width])
        if most != -least:
            raise ValueError(f"nullspace has {-least} to {most} vectors on the ranks")
        gram = np.asarray(self.comm.allreduce(basis.conj().T @ basis))
        values, vectors = np.linalg.eigh(gram)
        kept = values > len(values) * np.finfo(self.space.dtype).eps * values.max(initial=0)
        orthonormal: Vector = basis @ (vectors[:, kept] / np.sqrt(values[kept]))
        return orthonormal.astype(self.space.dtype)

    def take_null_space(self, v: Vector) -> None:
        """Collective where there is a null space. v loses its part of it."""
        if self._nothing is not None:
            reduction = sums(self.comm, self._nothing.shape[1], self._nothing.dtype)
            v -= self._nothing @ reduction.of(*(self._nothing.conj().T @ v))


def several(solver: Callable[Arguments, Solution]) -> Callable[Arguments, Solution]:
    """A solver that also takes blocks of right-hand sides, (n, k), and solves for each of them."""

    @functools.wraps(solver)
    def solve(*given: Arguments.args, **how: Arguments.kwargs) -> Solution:
        A, b = given[0], given[1] if len(given) > 1 else how.get("b")
        if not isinstance(A, Linear):
            raise TypeError(
                f"{solver.__name__} takes a DistMatrix or another Linear, not {type(A).__name__}: "
                "LinearOperator makes one of a function"
            )
        block: Any = b.array if isinstance(b, DistVector) else b
        k = np.shape(block)[1] if np.ndim(block) == 2 else 0
        agree(A.comm, None, (solver.__name__, f"{k} right-hand sides"))
        if not k:
            return solver(*given, **how)
        x0: Any = given[2] if len(given) > 2 else how.get("x0")
        guess = x0.array if isinstance(x0, DistVector) else x0
        how.pop("b", None), how.pop("x0", None)
        call: Any = solver
        columns = []
        for j in range(k):
            first = None if guess is None else np.asarray(guess)[:, j]
            columns.append(call(A, np.asarray(block)[:, j], first, *given[3:], **how))
        return _joined(A, b, tuple(columns))

    return solve


def _joined(A: Linear, b: Any, columns: tuple[Solution, ...]) -> Solution:
    """Local. The solutions of several right-hand sides as one."""
    x = np.stack([column.x for column in columns], axis=1)
    most = max(column.iterations for column in columns)
    residuals = np.stack(
        [np.pad(c.residuals, (0, most - c.iterations), mode="edge") for c in columns], axis=1
    )
    worst = next((column for column in columns if not column.converged), columns[0])
    return Solution(
        b.like(x, A.col_partition) if isinstance(b, DistVector) else x,
        worst.converged,
        most,
        residuals,
        worst.reason,
        np.array([column.true_residual for column in columns]),
        columns,
    )


def _unit(largest: float, dtype: np.dtype[Any]) -> int:
    """Local. The power of two to divide by; 0 where squares of such numbers do no harm."""
    if not 0 < largest < math.inf:
        return 0
    exponent = math.frexp(largest)[1]
    harmless = np.finfo(dtype).maxexp // 3
    return 0 if -harmless < exponent < harmless else exponent


def _times_two_to(x: Vector, exponent: int) -> None:
    """Local. x *= 2**exponent."""
    if exponent:
        parts = x.view(x.real.dtype)
        np.ldexp(parts, exponent, out=parts)


def _multiply(A: Linear, x: Vector, y: Vector) -> None:
    """Collective. y = A x."""
    if x.dtype == A.dtype:
        A.multiply(x, y)
    else:  # complex, and the matrix real
        A.dot(x, out=y)


def _block(name: str, vector: Any, length: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Local. This rank's block of a vector; it shares memory with what was given."""
    block = np.asarray(vector.array if isinstance(vector, DistVector) else vector)
    if block.shape != (length,):
        raise ValueError(f"{name} has shape {block.shape}; this rank's block has {length} entries")
    common_dtype(name, block.dtype, dtype)
    return block
