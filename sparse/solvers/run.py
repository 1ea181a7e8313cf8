"""One run of a solver: its system, when it stops, and what it has seen.

What is the same for every method is here, and here alone: checking what was given, the null space,
the limit, and that convergence is seen in b - A x itself before it is told. A method iterates from
``run.x`` until ``run.record`` says that it ends; :meth:`Run.solve` then looks, and lets it go on if
it has to.
"""

from __future__ import annotations

import math
import traceback
import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

from onesided.collectives import sums
from onesided.collectives.agreement import Agreement, agree, agreed, largest, number_of
from onesided.collectives.errors import RequestError
from onesided.collectives.reduction.operation import broken_sums, drop_broken_sums
from onesided.sparse.alike import block, columns, plain
from onesided.sparse.linear import Linear, LinearOperator, whose
from onesided.sparse.moving import one_width, shared_dtype, width
from onesided.sparse.preconditioners.preconditioner import OfMatrix, preconditioner
from onesided.sparse.solvers.solution import BREAKDOWN, CONVERGED, LEAST_SQUARES, LIMIT, Solution
from onesided.sparse.solvers.space import Scalar, Space, Vector
from onesided.sparse.vector import DistVector

Callback = Callable[[Any], object] | None
Check = Callable[[], object] | None
Method = Callable[["Run"], object]

#: What ranks agree on first, with the name of the method.
_RIGHT = "right-hand sides of "

#: What a leg must at least have taken off the residual, if another one is to follow.
_WORTH_GOING_ON = 0.5

#: So many times eps of a vector's norm are rounding, where parts of it have been taken away.
_ROUNDING = 10

#: Powers of two that can be squared in any dtype, and times a tolerance.
_MODERATE = 40


class Rules(NamedTuple):
    """When a run stops: norm of the residual <= max(rtol * norm(b), atol), or too many iterations.

    ``maxiter`` None: ten times the number of unknowns. ``callback(x)`` is called after every
    iteration with what the solver will return as x; not all ranks need to have one. An error of it
    on one rank is raised on all. ``nullspace``: this rank's block of vectors, (n,) or (n, m), that
    A maps to zero: what M r and x have of them is taken away. ``left_nullspace``: of vectors that
    A.H maps to zero: what b has of them is taken away, so that the system has a solution. For
    methods of Hermitian matrices the two are the same, and ``nullspace`` alone is given.
    """

    rtol: float
    atol: float
    maxiter: int | None
    callback: Callback
    nullspace: Any = None
    left_nullspace: Any = None

    def check(self) -> None:
        """Local. ``ValueError`` for tolerances below zero or not a number, or a bad limit."""
        for name, value in (("rtol", self.rtol), ("atol", self.atol)):
            if not value >= 0:
                raise ValueError(f"{name} is {value}; it must be zero or above")
        if self.maxiter is not None and self.maxiter < 0:
            raise ValueError(f"maxiter is {self.maxiter}; it must be zero or above")
        if self.callback is not None and not callable(self.callback):
            raise TypeError(f"callback is {self.callback!r}, which cannot be called")

    def tolerance(self, size: float) -> float:
        """Local. What is allowed relative to a norm."""
        return max(self.atol, self.rtol * size)


class Run:
    """A x = b, or A x close to b: blocks, preconditioner, residual history, and how it ended.

    ``b`` and ``x`` are this rank's blocks (x is the run's own), ``space`` that of b, ``domain``
    that of x; the same for a square matrix. ``nullspace``: an orthonormal basis of what vectors
    lose, or None. ``resumed``: a leg that goes on begins. ``calls_back``: a rank has a callback.
    ``square`` is (b, b). ``again``: how ranks agree that a later call fits all of them.
    """

    @np.errstate(all="ignore")  # of the caller; else one rank might raise alone
    def __init__(
        self, name: str, A: Linear, b: Any, x0: Any, rules: Rules, M: Any = None, *,
        square: bool = True, hermitian: bool = False, choices: Any = None, check: Check = None,
    ) -> None:  # fmt: skip
        """Collective. Check what was given; raises the same error on every rank.

        ``hermitian``: the method is for Hermitian matrices and preconditioners. ``choices``: what
        else it is told, the same on all ranks; ``check()``, Local, raises what is wrong with it.
        ``ValueError`` for lengths, shapes and tolerances, ``TypeError`` for dtypes that the matrix
        does not hold and for what is no preconditioner.
        """
        comm, self.name = A.comm, name
        given_or_not = [each is None for each in (x0, M, rules.nullspace, rules.left_nullspace)]
        what = plain((name, choices, rules.rtol, rules.atol, rules.maxiter, given_or_not))
        n_rows, n_cols = (stop - start for start, stop in (A.row_range, A.col_range))
        error: Exception | None = None
        words = [0] * 5
        try:
            if A.freed:
                raise RequestError("the matrix has been freed")
            rules.check()
            if check is not None:
                check()
            if square:
                A.check_square(name)
            made = preconditioner(M, A)
            dtype = np.dtype(A.dtype)
            right = block("b", b, n_rows, dtype)
            guess = None if x0 is None else block("x0", x0, n_cols, dtype)
            given = [each.dtype for each in (right, guess) if each is not None and len(each)]
            if np.dtype(getattr(made, "dtype", dtype)).kind == "c":  # and so is M r
                given.append(np.dtype(np.complex64))
            dtype = np.result_type(dtype, *given)
            # code of the caller's, which does not communicate as the product of a matrix does
            foreign = not isinstance(made, OfMatrix | None) and isinstance(
                whose(getattr(made, "map", None)), LinearOperator | None)
            refresh = getattr(made, "refresh", None)
            if refresh is None:
                self._check_hermitian(made, hermitian)
            words = [int(rules.callback is not None), int(broken_sums(comm)),
                     foreign + int(foreign and refresh is not None),
                     dtype.num, -dtype.num]  # fmt: skip
        except Exception as problem:
            error = problem
        self.calls_back, broken, self._foreign, *numbers = largest(comm, error, what, words)
        if numbers[0] != -numbers[1]:
            dtype = shared_dtype(comm, dtype)
        if broken:
            drop_broken_sums(comm)
        self._hermitian = hermitian
        self.A, self.M, self.comm, self.rules = A.promoted(dtype), made, comm, rules
        self._choices = repr(choices)
        with agreed(comm, name) if self._foreign > 1 else nullcontext():
            if refresh is not None:
                refresh()
                self._check_hermitian(made, hermitian)
        self.space = Space(comm, n_rows, dtype)
        self.domain = self.space if square else Space(comm, n_cols, dtype)
        self.nullspace = self._basis("nullspace", rules.nullspace)
        left = self._basis("left_nullspace", rules.left_nullspace)
        if hermitian and left is None:
            left = self.nullspace
        self._trouble: Exception | None = None
        self._begin(b, right, guess, left)

    def _begin(self, b: Any, right: Any, guess: Any, left: Vector | None) -> None:
        """Collective. Take the vectors, b and what it is on this rank, and the guess; b loses what
        it has of ``left``."""
        rules, dtype = self.rules, self.space.dtype
        self._adjoint: Linear | None = None
        self.b: Vector = np.ascontiguousarray(right, dtype)
        if left is not None:
            self.b = self.b.copy()
            taken = np.linalg.norm(self._take(left, self.b))
        self.x = self.domain.vector()
        self._guessed = guess is not None
        if guess is not None:
            self.x[:] = guess
        self._wrapped: Any = self.x
        if isinstance(b, DistVector):
            self._wrapped = b.like(self.x, self.A.col_partition)
        self.square = self.space.square(self.b)
        self.size = self.space.norm_of(self.square, self.b)
        if left is not None and self.size <= _ROUNDING * np.finfo(dtype).eps * taken:
            self.b.fill(0)  # what is left is rounding
            self.square = self.size = 0.0
        self.tolerance = rules.tolerance(self.size)
        self.limit = 10 * self.A.shape[1] if rules.maxiter is None else rules.maxiter
        self.residuals: list[float] = []
        self.reason = ""
        self.resumed = False
        self._exponent = 0

    def _check_hermitian(self, M: Any, needed: bool) -> None:
        """Local. ``ValueError`` for a preconditioner, as it is now, that the method cannot use."""
        if needed and not getattr(M, "hermitian", True):
            raise ValueError(
                f"{self.name} needs a Hermitian preconditioner, which {M!r:.80} is not: BlockILU("
                "..., hermitian=True), or gmres"
            )

    # -- from call to call -----------------------------------------------------------------------

    def keep(self, A: Linear, b: Any, x0: Any, M: Any) -> None:
        """Local. Wait idle with A, if that can be, for a call that differs in the entries of
        vectors alone."""
        rules, forms = self.rules, (_form(b), _form(x0))
        others = any(each is not None for each in rules[3:]) or self.calls_back
        own = self.A is A and self.M is M and isinstance(M, OfMatrix | None)
        if not own or others or None in forms:
            return
        kind = self.space.dtype
        number = number_of(repr((rules[:3], self._choices, x0 is None, M is None, kind.str)))
        numbers = [*width(self.b), 0, number, -number]
        self.again = Agreement(self.comm, None, _RIGHT + self.name, numbers)
        self._known = rules, self._choices, *forms
        self._given = weakref.ref(self if M is None else M)
        self.rest(A)

    def rest(self, A: Linear) -> None:
        """Local. Be idle, without matrix, preconditioner and vectors."""
        A.kept[self.name] = self
        del self.A, self.M, self.b, self.x, self._wrapped, self._adjoint

    def fits(self, b: Any, x0: Any, rules: Rules, M: Any, choices: Any) -> bool:
        """Local. Whether this idle run can go on with a call, as far as this rank knows."""
        try:  # what cannot be compared is refused by a new run
            same = bool((rules, repr(choices), _form(b), _form(x0)) == self._known)
        except Exception:
            return False
        return same and self._given() is (self if M is None else M) and not broken_sums(self.comm)

    @np.errstate(all="ignore")
    def resume(self, A: Linear, b: Any, x0: Any, M: Any) -> Run:
        """Collective. Go on with a call that fits on all ranks."""
        self.A, self.M = A, M
        if M is not None:
            M.refresh()
            self._check_hermitian(M, self._hermitian)
        rhs, guess = (v.array if isinstance(v, DistVector) else v for v in (b, x0))
        self._begin(b, rhs, guess, None)
        return self

    # -- from leg to leg -------------------------------------------------------------------------

    @np.errstate(all="ignore")
    def solve(
        self, method: Method, least_squares: Callable[[Vector, float], bool] | None = None
    ) -> Solution[Any]:
        """Collective. Legs of a method, each from where the last one ended, until x is seen right.

        A leg that says "converged" is believed when norm(b - A x) is; else, and after a
        breakdown, another one follows if this one took at least half of the residual.
        ``least_squares(r, norm)`` says whether r, of that norm, is orthogonal to the columns.
        """
        if not self.size:
            self.x.fill(0)
            self.record(0.0)
            return self.solution(0.0)
        true = math.inf
        self.scale()
        while True:
            if not self.reason:  # else the first leg has ended already, together with others
                method(self)
            before = true if true < math.inf else self.residuals[0]
            rest = self.residual()
            true = self.space.norm(rest)
            confirmed = math.isfinite(true) and true <= self.tolerance
            if self.reason == LEAST_SQUARES and least_squares is not None:
                confirmed = confirmed or least_squares(rest, true)
            elif confirmed:
                self.reason = CONVERGED
            self.hear()
            if confirmed:
                break
            if self.iterations >= self.limit:
                self.reason = LIMIT
                break
            if not true < _WORTH_GOING_ON * before:
                if self.reason.startswith(CONVERGED):
                    self.broken(f"the true residual stays at {true:.3g}")
                break
            self.reason, self.resumed = "", True
            self.residuals[-1] = true
        return self.solution(true)

    def scale(self) -> None:
        """Collective. Go on with b, x and tolerance times a power of two, where squares of b, or b
        in a narrower dtype of M, might vanish or overflow."""
        exponent = math.frexp(self.size)[1]
        if self._exponent or abs(exponent) <= _MODERATE:
            return
        self._exponent, self.b = -exponent, self.b.copy()
        self.tolerance = float(np.ldexp(self.tolerance, -exponent))
        for vector in (self.b, self.x):
            self._shift(vector, -exponent)
        self.square = self.space.square(self.b)

    def _shift(self, vector: Vector, exponent: int) -> None:
        """Local. A vector times a power of two, which rounds nothing that is not tiny."""
        parts = vector.view(vector.real.dtype)
        np.ldexp(parts, exponent, out=parts)

    def hear(self) -> None:
        """Collective. Raise on all ranks what a caller's preconditioner has raised on any."""
        if self._foreign:
            agree(self.comm, self._trouble, self.name)

    def solution(self, true: float) -> Solution[Any]:
        """Collective. What the run has come to."""
        self.take_null_space(self.x)
        history = np.array(self.residuals)
        if self._exponent:
            self._shift(self.x, -self._exponent)
            self._shift(history, -self._exponent)
            true = float(np.ldexp(true, -self._exponent))
        converged = self.reason.startswith(CONVERGED)
        reason = self.told()
        return Solution(self._wrapped, converged, self.iterations, history, reason, true, self.size)

    def told(self) -> str:
        """Local. How the run ended, and at the limit what to try."""
        return f"{LIMIT}: {self._advice()}" if self.reason == LIMIT else self.reason

    def _advice(self) -> str:
        """Local. What helps more than many iterations."""
        strong = "M=AMG(A) of elliptic problems" if self._hermitian else "M=BlockILU(A)"
        if self.domain is not self.space:
            return "a larger maxiter, or columns scaled alike (A.scale_columns)"
        if self.name == "pagerank":
            return "a larger maxiter, or a smaller damping"
        if self.name == "power_iteration":
            return "a larger maxiter, another x0, or lobpcg of a Hermitian matrix"
        if self.name == "lobpcg" and self.M is None:
            return "a larger maxiter, more vectors, or for the smallest values M=AMG(A)"
        if self.M is None:
            return f"there was no preconditioner; try {strong}, or M=SSOR(A)"
        name = type(self.M).__name__
        if name == "AMG":
            return "a larger maxiter, or other options of AMG: near_nullspace, block, strength"
        return f"try a larger maxiter, or {strong} instead of {name}"

    # -- what methods call -----------------------------------------------------------------------

    @property
    def iterations(self) -> int:
        """Local. How many iterations have been recorded."""
        return max(0, len(self.residuals) - 1)

    @property
    def at_zero(self) -> bool:
        """Local. Whether the run begins with x zero, so that the residual is b."""
        return not (self._guessed or self.residuals)

    def residual(self, out: Vector | None = None) -> Vector:
        """Collective. b - A x, without a product for the guess zero."""
        r = self.space.vector() if out is None else out
        if self.at_zero:
            r[:] = self.b
        else:
            self.multiply(self.x, r)
            np.subtract(self.b, r, out=r)
        return r

    def multiply(self, x: Vector, y: Vector) -> None:
        """Collective. y = A x; as vectors of a run are alike on all ranks, nothing is checked."""
        _multiply(self.A, x, y)

    def multiply_adjoint(self, x: Vector, y: Vector) -> None:
        """Collective. y = A.H x; the first one is planned."""
        if self._adjoint is None:
            self._adjoint = self.A.H
        _multiply(self._adjoint, x, y)

    def precondition(self, r: Vector, out: Vector) -> Vector:
        """As the preconditioner's apply; without one, ``r`` itself, and ``out`` is left alone."""
        if self.M is None:
            return r
        try:
            self.M.apply(r, out)
        except Exception as problem:
            if not self._foreign:
                raise
            # it waits until all ranks hear. No number: where this rank has rows that ends the leg
            # on all ranks, which do not know of it. It is told at once as well: one that
            # communicates may leave others waiting
            if self._trouble is None and self.comm.size > 1:
                traceback.print_exception(problem)
            self._trouble = self._trouble or problem
            out.fill(np.nan)
        self.take_null_space(out)
        return out

    def room(self) -> Vector:
        """Local. A new vector for what the preconditioner writes; empty where there is none."""
        return self.space.vector() if self.M is not None else self.x[:0]

    def record(self, norm: float) -> bool:
        """Collective where any rank has a callback, else local. Note the norm of the residual after
        an iteration, and call back; True where the leg ends.

        The first one of a leg is no iteration; where a leg goes on it takes the place of the last.
        """
        if self.resumed:
            self.residuals.pop()
        first = self.resumed or not self.residuals
        self.resumed = False
        self.residuals.append(norm)
        if not math.isfinite(norm):
            self.broken(f"the residual is {norm}")
        elif norm <= self.tolerance:
            self.reason = CONVERGED
        elif len(self.residuals) > self.limit:
            self.reason = LIMIT
        if self.calls_back and not first:
            self.call_back()
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
        """Collective, where any rank has a callback: call it with x, and agree on its errors."""
        before, scaled = self._versions(), self.x.copy() if self._exponent else None
        with agreed(self.comm):
            if scaled is not None:
                self._shift(self.x, -self._exponent)
            if self.rules.callback is not None:
                self.rules.callback(self._wrapped)
            if self._versions() != before:
                raise ValueError(f"a callback of {self.name} changed values of the matrix")
        if scaled is not None:
            self.x[:] = scaled

    def _versions(self) -> tuple[Any, ...]:
        """Local. Numbers that change with the values of the matrix, or of one that M is or has."""
        watched = self.A, getattr(self.M, "map", None), getattr(self.M, "matrix", None)
        return tuple(getattr(whose(each), "version", None) for each in watched)

    # -- the null space --------------------------------------------------------------------------

    def _basis(self, name: str, vectors: Any) -> Vector | None:
        """Collective. An orthonormal basis of a null space, this rank's rows; None without."""
        if vectors is None:
            return None
        dtype = self.space.dtype
        given = columns(self.comm, name, vectors, self.space.length, dtype)
        space = Space(self.comm, self.space.length, np.dtype(self.space.wanted[1]))
        basis: list[Vector] = []
        for column in given.T:
            vector = column.astype(space.dtype)
            size = space.norm(vector)
            if not math.isfinite(size):
                raise ValueError(f"{name} holds what is no number")
            for other in 2 * basis:
                space.add(vector, -space.dots((other, vector))[0], other)
            left = space.norm(vector) if basis else size
            if left > _ROUNDING * np.finfo(dtype).eps * size:  # else it depends on the others
                basis.append(vector / left)
        return np.stack(basis, axis=1).astype(dtype) if basis else None

    def take_null_space(self, v: Vector) -> None:
        """Collective where there is a null space. v, (n,) or (n, k), loses its part of it."""
        if self.nullspace is not None:
            self._take(self.nullspace, v)

    def _take(self, basis: Vector, v: Vector) -> Vector:
        """Collective. v loses what it has of an orthonormal basis; how much of each."""
        if v.ndim == 2:
            parts = self.space.gram(basis, v).astype(basis.dtype)
        else:
            reduction = sums(self.comm, basis.shape[1], basis.dtype)
            parts = np.array(reduction.of(*(basis.conj().T @ v)))
        v -= basis @ parts
        return parts


def solve(
    name: str, A: Linear, b: Any, x0: Any, rules: Rules, M: Any, method: Method, *,
    hermitian: bool = False, choices: Any = None, check: Check = None,
    jointly: Callable[[Sequence[Run]], object] | None = None,
) -> Solution[Any]:  # fmt: skip
    """Collective. Solve A x = b by a method, for each column of a block b; arguments as of
    :class:`Run`. ``jointly`` does a part of the work of several runs at once.

    A call that differs from one before in the entries of vectors alone goes on with the run of
    that, where ranks agree that it does on all of them.
    """
    found, again = None, False
    idle: Any = A.kept.pop(name, None) if isinstance(A, Linear) and not A.freed else None
    if idle is not None and idle.fits(b, x0, rules, M, choices):
        found = idle.again.largest()
        again = found[0] == found[2] == 0 and found[3] == -found[4]
    if again:
        solution: Solution[Any] = idle.resume(A, b, x0, M).solve(method)
        idle.rest(A)
        return solution
    pairs = each_column(A, b, x0, name, found)
    how: Any = {"hermitian": hermitian, "choices": choices, "check": check}
    if pairs is None:
        run = Run(name, A, b, x0, rules, M, **how)
        solution = run.solve(method)
        run.keep(A, b, x0, M)
        return solution
    runs = (Run(name, A, *pair, rules, M, **how) for pair in pairs)
    if jointly is not None:
        together = list(runs)
        jointly(together)
        return joined(A, b, [run.solve(method) for run in together])
    return joined(A, b, [run.solve(method) for run in runs])


def each_column(
    A: Linear, b: Any, x0: Any, name: str, found: list[int] | None = None
) -> list[tuple[Any, Any]] | None:
    """Collective. The columns of a block of right-hand sides, each with that of the guess, None
    where there is none; None for a vector b. An empty list stands for no rows.

    ``TypeError`` for an A that is no distributed map; ``ValueError`` on every rank where ranks have
    different numbers of columns, or the guess has others. ``found``: ranks have agreed already.
    """
    if not isinstance(A, Linear):
        raise TypeError(
            f"{name} takes a DistMatrix or another Linear, not {type(A).__name__}: LinearOperator "
            "makes one of a function"
        )
    right, guess = (v.array if isinstance(v, DistVector) else v for v in (b, x0))
    error: Exception | None = None
    try:
        right = np.asarray(right)
    except Exception as problem:  # a ragged list, say
        right, error = np.zeros(0), problem
    if found is None:
        found = largest(A.comm, error, _RIGHT + name, [*width(right), 1, 0, 0])
    k = one_width(_RIGHT + name, *found[:2])
    if not k:
        return None
    n = A.col_range[1] - A.col_range[0]
    with agreed(A.comm, name):
        if not (guess is None or np.shape(guess) == (n, k) or np.size(guess) == n == 0):
            raise ValueError(f"x0 has shape {np.shape(guess)}; this rank's block has {(n, k)}")
    guesses = [None] * k if guess is None else np.reshape(guess, (-1, k)).T
    return list(zip(right.reshape(-1, k).T, guesses, strict=True))


def joined(A: Linear, b: Any, found: Sequence[Solution[Any]]) -> Solution[Any]:
    """Local. The solutions of several right-hand sides as one."""
    x = np.stack([column.x for column in found], axis=1)
    most = max(column.iterations for column in found)
    residuals = np.stack(
        [np.pad(c.residuals, (0, most - c.iterations), mode="edge") for c in found], axis=1
    )
    worst = next((column for column in found if not column.converged), found[0])
    true = np.array([column.true_residual for column in found])
    size = np.array([column.size for column in found])
    return Solution(
        b.like(x, A.col_partition) if isinstance(b, DistVector) else x,
        worst.converged, most, residuals, worst.reason, true, size, tuple(found),
    )  # fmt: skip


def _form(vector: Any) -> tuple[Any, ...] | None:
    """Local. What all arrays have in common that a run can take in the place of this vector; None
    where that may be none."""
    if vector is None:
        return ()
    array = vector.array if isinstance(vector, DistVector) else vector
    return (array.dtype, array.shape) if type(array) is np.ndarray else None


def _multiply(A: Linear, x: Vector, y: Vector) -> None:
    """Collective. y = A x."""
    if x.dtype == A.dtype:
        A.multiply(x, y)
    else:  # complex, and the matrix real
        A.dot(x, out=y)
