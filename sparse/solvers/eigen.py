"""Eigenvalues: the largest one by power iteration, a few at an end by LOBPCG.

R. von Mises, H. Pollaczek-Geiringer, Praktische Verfahren der Gleichungsaufloesung, Zeitschrift
fuer Angewandte Mathematik und Mechanik 9 (1929), 152-164. A. V. Knyazev, Toward the optimal
preconditioned eigensolver: locally optimal block preconditioned conjugate gradient method, SIAM
Journal on Scientific Computing 23 (2001), 517-541.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from onesided.collectives.agreement import agreed
from onesided.sparse.linear import Linear
from onesided.sparse.moving import of_all, shared_form
from onesided.sparse.solvers.run import Callback, Rules, Run
from onesided.sparse.solvers.solution import BREAKDOWN, CONVERGED, LIMIT, Eigenpairs
from onesided.sparse.solvers.space import Vector, start_block
from onesided.sparse.vector import DistVector


def power_iteration(
    A: Linear, x0: Any = None, *, rtol: float = 1e-5, atol: float = 0.0,
    maxiter: int | None = None, callback: Callback = None,
) -> Eigenpairs:  # fmt: skip
    """Collective. The dominant eigenvalue of a square matrix, with its eigenvector of norm one.

    Stops when norm(A x - value x) <= max(rtol * abs(value), atol), value being (x, A x);
    ``maxiter`` None: ten times the number of rows. Converges by the ratio of the two largest
    absolute eigenvalues; where two different ones are equally large, not at all. ``x0`` None: a
    random vector, the same on any number of ranks. An x0 that is zero is a breakdown. x is a
    DistVector where x0 is one.

    Examples
    --------
    >>> with diags(comm, [-1, 2, -1], [-1, 0, 1], shape=(8, 8)) as A:
    ...     found = power_iteration(A, rtol=1e-3, maxiter=2000)
    ...     3.8 < float(found.values[0]) < 4.0
    True
    """
    first = start_block(A.row_range, A.dtype) if x0 is None else x0
    run = Run("power_iteration", A, first, None, Rules(rtol, atol, maxiter, callback))
    run.x[:] = run.b
    value = _power(run)
    x: Any = run.x[:, None]
    vector = x0.like(x, A.col_partition) if isinstance(x0, DistVector) else x
    last, converged = np.array(run.residuals[-1:] or [math.nan]), run.reason == CONVERGED
    return Eigenpairs(np.array([value]), vector, converged, run.iterations, last, run.told())


@np.errstate(all="ignore")
def _power(run: Run) -> complex | float:
    """Collective. Normalize, multiply, compare; the eigenvalue."""
    space, x, y, r = run.space, run.x, run.space.vector(), run.space.vector()
    length: float = run.size
    value: complex | float = math.nan
    while run.positive(length, "norm(A x)" if run.residuals else "norm(x0)"):
        space.scale(1.0 / length, x)
        run.multiply(x, y)
        value, square = space.dots((x, y), (y, y))
        np.copyto(r, y)
        rest = space.norm_of(space.sums(space.add_square(r, -value, x))[0].real, r)
        run.tolerance = run.rules.tolerance(abs(value))
        if run.record(rest):
            break
        np.copyto(x, y)
        length = space.norm_of(square.real, x)
    return value


def lobpcg(
    A: Linear, X: Any = 1, *, largest: bool = False, rtol: float = 1e-5, atol: float = 0.0,
    maxiter: int = 200, M: Any = None, nullspace: Any = None,
) -> Eigenpairs:  # fmt: skip
    """Collective. The smallest, or largest, eigenvalues of a Hermitian matrix, with vectors.

    ``X``: how many, or a first guess, this rank's block (n, k) or a DistVector of it; without one
    random vectors, the same on any number of ranks. Stops when for every pair norm(A x - value x)
    <= max(rtol * max(abs(value), sqrt(eps) * norm(A)), 10 * eps * norm(A), atol): also a value that
    is zero is found. norm(A) is the largest Rayleigh quotient that was seen, eps the rounding of
    the dtype. One product with k vectors at a time and two reductions an iteration.
    ``M`` approximates the inverse of A; ``nullspace``, (n,) or (n, m), is kept out. Raises the same
    error on every rank: ``ValueError`` where three times as many vectors as are asked for do not
    fit into the matrix, or for the shape of X.

    Eigenvalues inside the spectrum, next to s: SciPy's ``eigsh`` on ``A.as_linear_operator()`` with
    shift and invert by a solver, as in the guide of solvers; or ``lobpcg`` of (A - s I)^2, a
    :class:`LinearOperator`, whose smallest eigenvectors they have.

    Examples
    --------
    >>> with diags(comm, [-1, 2, -1], [-1, 0, 1], shape=(8, 8)) as A:
    ...     found = lobpcg(A, 1, rtol=1e-6)
    ...     bool(np.isclose(found.values[0], 2 - 2 * np.cos(np.pi / 9), atol=1e-4))
    True
    """
    n_rows, comm = A.row_range[1] - A.row_range[0], A.comm
    rules = Rules(rtol, atol, maxiter, None, nullspace)
    number = isinstance(X, int | np.integer)
    with agreed(comm, ("lobpcg", largest, int(X) if number else "X", M is None)):
        given = X.array if isinstance(X, DistVector) else X
        if number:
            spans = [start_block(A.row_range, np.dtype(A.dtype), seed) for seed in range(given)]
            block = np.stack(spans, axis=1) if given > 0 else np.zeros((n_rows, 0))
        else:
            block = np.asarray(given)
    _, k, _ = shared_form(comm, "X", block)
    with agreed(comm, "lobpcg"):
        block = block.reshape(len(block), k) if k and not block.size else block
        if block.ndim != 2 or len(block) != n_rows or block.shape[1] < 1:
            raise ValueError(f"X has shape {block.shape}; ({n_rows}, k) is needed, k from 1 on")
        if 3 * block.shape[1] > A.shape[0]:
            raise ValueError(f"{block.shape[1]} eigenvectors of a matrix of {A.shape[0]} rows")
    run = Run("lobpcg", A, block[:, 0], None, rules, M, hermitian=True)
    blocks = _Blocks(run, block.astype(run.space.dtype), largest)
    blocks.iterate()
    run.hear()
    vectors: Any = X.like(blocks.X, A.col_partition) if isinstance(X, DistVector) else blocks.X
    converged = run.reason == CONVERGED
    values = np.asarray(blocks.values)
    return Eigenpairs(values, vectors, converged, blocks.iterations, blocks.norms, run.told())


class _Blocks:
    """X, the residuals R = M (A X - X values), the last steps P, and A times each of them."""

    def __init__(self, run: Run, X: Vector, largest: bool) -> None:
        self._run, self._sign, self.k = run, -1.0 if largest else 1.0, X.shape[1]
        self.X, self.iterations = X, 0
        #: A column of a residual, and what the preconditioner makes of it.
        self._pair = run.space.vector(), run.room()
        self.values: Any = np.zeros(self.k)
        self.norms: Any = np.full(self.k, math.inf)

    @np.errstate(all="ignore")
    def iterate(self) -> None:
        """Collective. Rayleigh and Ritz over X, R and P, again and again."""
        run, rules, k = self._run, self._run.rules, self.k
        eps, size = float(np.finfo(self.X.dtype).eps), 0.0
        run.take_null_space(self.X)
        basis = self._orthonormal(self.X)
        if basis.shape[1] < k:
            run.reason = f"{BREAKDOWN}: the first vectors are dependent"
            return
        images, steps = self._image(basis), basis[:, :0]
        while True:
            gram = run.space.gram(basis, images)
            if not np.all(np.isfinite(gram)):
                run.reason = f"{BREAKDOWN}: the product of the matrix is not finite"
                return
            values, vectors = self._pairs(self._sign * (gram + gram.conj().T) / 2)
            size = max(size, float(np.max(np.abs(values))))
            self.values = self._sign * values[:k]
            turn = vectors[:, :k].astype(basis.dtype)
            X, AX = basis @ turn, images @ turn
            if basis.shape[1] > k:  # what the step added to the last X
                turn[:k] = 0
                steps = basis @ turn
            self.X = X
            rest = AX - X * self.values.astype(X.dtype)
            unit = size or 1.0  # no square overflows or vanishes
            squares = np.sum(np.abs(rest.astype(complex) / unit) ** 2, axis=0)
            self.norms = unit * np.sqrt(run.comm.allreduce(squares))
            if not np.all(np.isfinite(self.norms)):
                run.reason = f"{BREAKDOWN}: the residuals are {self.norms}"
                return
            scale = np.maximum(np.abs(self.values), math.sqrt(eps) * size)
            allowed = np.maximum(rules.rtol * scale, max(rules.atol, 10 * eps * size))
            if np.all(self.norms <= allowed):
                run.reason = CONVERGED
                return
            if self.iterations >= run.limit:
                run.reason = LIMIT
                return
            self.iterations += 1
            active = self.norms > allowed
            directions = steps[:, active] if steps.shape[1] else steps
            new = np.concatenate([self._preconditioned(rest[:, active]), directions], axis=1)
            run.take_null_space(new)
            for _ in range(2):
                new -= X @ run.space.gram(X, new).astype(X.dtype)
                new = self._orthonormal(new)
            if not new.shape[1]:
                run.reason = f"{BREAKDOWN}: the basis cannot be extended"
                return
            basis = np.concatenate([X, new], axis=1)
            images = np.concatenate([AX, self._image(new)], axis=1)

    def _pairs(self, small: Vector) -> tuple[Any, Any]:
        """Collective. Eigenpairs of a matrix that all have, those of rank 0 on every rank: others'
        processors may round in another way, and take another basis of equal eigenvalues."""
        found = np.vstack(np.linalg.eigh(small))
        self._run.comm.Bcast(found)
        return found[0].real, found[1:]

    def _orthonormal(self, V: Vector) -> Vector:
        """Collective. An orthonormal basis of the columns, dependent ones left out."""
        space = self._run.space
        gram = space.gram(V, V)
        unsafe = not all(space.is_safe(square) for square in gram.diagonal().real)
        if of_all(self._run.comm, unsafe).any():  # MPI may round sums in another way elsewhere
            norms = [space.norm(np.ascontiguousarray(column)) for column in V.T]
            V = V / np.array([norm or 1.0 for norm in norms], V.real.dtype)
            gram = space.gram(V, V)
        sizes = np.sqrt(np.maximum(gram.diagonal().real, 0))
        kept = sizes > 0
        scale = 1.0 / sizes[kept]
        values, vectors = self._pairs(gram[np.ix_(kept, kept)] * np.outer(scale, scale))
        good = values > 10 * len(values) * np.finfo(V.dtype).eps
        turn = (scale[:, None] * vectors[:, good] / np.sqrt(values[good])).astype(V.dtype)
        basis: Vector = V[:, kept] @ turn
        return basis

    def _image(self, V: Vector) -> Vector:
        """Collective. A V, always k columns at a time: each number of them has its own request."""
        out, part = np.empty_like(V), np.zeros((len(V), self.k), V.dtype)
        image = np.empty_like(part)
        for first in range(0, V.shape[1], self.k):
            columns = V[:, first : first + self.k]
            part[:, : columns.shape[1]] = columns
            self._run.multiply(part, image)
            out[:, first : first + self.k] = image[:, : columns.shape[1]]
        return out

    def _preconditioned(self, R: Vector) -> Vector:
        """As the preconditioner. M R, column by column."""
        out, (r, room) = np.empty_like(R), self._pair
        for j in range(R.shape[1]):
            r[:] = R[:, j]
            out[:, j] = self._run.precondition(r, room)
        return out
