"""One run of a solver: its system, when it stops, and what it has seen."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.collectives.agreement import agree, agreed
from onesided.collectives.errors import RequestError
from onesided.sparse.linear import Linear
from onesided.sparse.preconditioners.preconditioner import Preconditioner
from onesided.sparse.solvers.solution import BREAKDOWN, CONVERGED, LIMIT, Solution
from onesided.sparse.solvers.space import Scalar, Space, Vector
from onesided.sparse.vector import DistVector

Callback = Callable[[Any], object] | None


@dataclass(frozen=True)
class Rules:
    """When a run stops: norm of the residual <= max(rtol * norm(b), atol), or too many iterations.

    ``maxiter`` None: ten times the number of unknowns. ``callback(x)`` is called after every
    iteration with what the solver will return as x; not all ranks need to have one. An error of it
    on one rank is raised on all.
    """

    rtol: float
    atol: float
    maxiter: int | None
    callback: Callback

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
    that of x; the same for a square matrix.
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
    ) -> None:
        """Collective. Check what was given; raises the same error on every rank.

        ``ValueError`` for lengths, shapes and tolerances, ``TypeError`` for dtypes that the
        matrix does not hold and for what is no preconditioner.
        """
        comm = A.comm
        what = (name, rules.rtol, rules.atol, rules.maxiter, x0 is None, M is None)
        n_rows, n_cols = (stop - start for start, stop in (A.row_range, A.col_range))
        dtype = np.dtype(A.dtype)
        with agreed(comm, what):
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
        everyone = agree(comm, value=(dtype, rules.callback is not None))
        dtype = np.result_type(*(kind for kind, _ in everyone))
        self._calls_back = any(calls for _, calls in everyone)
        self.A, self.M, self.comm, self.rules = A, M, comm, rules
        self.space = Space(comm, n_rows, dtype)
        self.domain = self.space if square else Space(comm, n_cols, dtype)
        self.b = np.ascontiguousarray(right, dtype)
        self._begin(guess, b)

    def _begin(self, guess: Vector | None, given: Any) -> None:
        """Collective. The first guess, the tolerance, and what is given back for a DistVector."""
        self.x = self.domain.vector()
        self._guessed = guess is not None
        if guess is not None:
            self.x[:] = guess
        self._wrapped: Any = self.x
        if isinstance(given, DistVector):
            self._wrapped = given.like(self.x, self.A.col_partition)
        rules = self.rules
        self.size = self.space.norm(self.b)
        self.tolerance = max(rules.atol, rules.rtol * self.size)
        self.limit = 10 * self.A.shape[1] if rules.maxiter is None else rules.maxiter
        self.residuals: list[float] = []
        self.reason = ""

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
        self.multiply(self.x, r)
        np.subtract(self.b, r, out=r)
        return r

    def multiply(self, x: Vector, y: Vector) -> None:
        """Collective. y = A x; as vectors of a run are alike on all ranks, nothing is checked."""
        _multiply(self.A, x, y)

    def multiply_adjoint(self, x: Vector, y: Vector) -> None:
        """Collective. y = A.H x; the first one is planned."""
        _multiply(self.A.H, x, y)

    def precondition(self, r: Vector, out: Vector) -> Vector:
        """As the preconditioner's apply; without one, ``r`` itself, and ``out`` is left alone."""
        if self.M is None:
            return r
        self.M.apply(r, out)
        return out

    def room(self) -> Vector:
        """Local. A new vector for what the preconditioner writes; empty where there is none."""
        return self.space.vector() if self.M is not None else self.x[:0]

    def record(self, norm: float) -> bool:
        """Local. Note the norm of the residual after an iteration; True where the run ends."""
        self.residuals.append(norm)
        if norm <= self.tolerance:
            self.reason = CONVERGED
        elif not math.isfinite(norm):
            self.broken(f"the residual is {norm}")
        elif self.iterations >= self.limit:
            self.reason = LIMIT
        return bool(self.reason)

    def broken(self, words: str) -> None:
        """Local. The run ends by a breakdown."""
        self.reason = f"{BREAKDOWN}: {words}, iteration {self.iterations + 1}"

    def positive(self, value: Scalar, what: str) -> bool:
        """Local. Whether a number is above zero, and finite; else the run ends."""
        good = math.isfinite(value) and value > 0
        if not good:
            self.broken(f"{what} = {value:.3g}")
        return good

    def call_back(self) -> None:
        """Collective where any rank has a callback: call it with x, and agree on its errors."""
        if self._calls_back:
            with agreed(self.comm):
                if self.rules.callback is not None:
                    self.rules.callback(self._wrapped)

    def solution(self) -> Solution:
        """Local. What the run has come to."""
        history = np.array(self.residuals)
        converged = self.reason.startswith(CONVERGED)
        return Solution(self._wrapped, converged, self.iterations, history, self.reason)


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
    wide = np.result_type(dtype, np.complex64)
    if not np.can_cast(block.dtype, wide if block.dtype.kind == "c" else dtype):
        raise TypeError(
            f"{name} is {block.dtype} and the matrix {dtype}: create the matrix with dtype="
            f"'{np.result_type(block.dtype, dtype)}', or cast {name}"
        )
    return block
