"""The iteration of cg for several right-hand sides at once.

Each column has the numbers that it would have alone; the matrix is read once for all of them, and
their ghosts, as their scalar products, travel in one message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.collectives import sums
from onesided.sparse.preconditioners.blocks import Jacobi
from onesided.sparse.solvers.run import Run
from onesided.sparse.solvers.space import root

_PART_BYTES = 1 << 16

Numbers = NDArray[np.float64]


@np.errstate(all="ignore")
def together(runs: Sequence[Run]) -> None:
    """Collective. The first leg of each of these runs of one matrix and preconditioner."""
    if not any(run.size for run in runs):
        return
    for run in runs:
        run.scale()
    _iterate(runs, _Columns(runs))
    runs[0].hear()


def _iterate(runs: Sequence[Run], columns: _Columns) -> None:
    going = np.array([run.size != 0 for run in runs])  # zeros have zeros as their solution
    rr, rz = columns.begin(going)
    for j in np.flatnonzero(going).tolist():
        ends = runs[j].record(root(rr[j]))
        going[j] = not ends and runs[j].positive(float(rz[j]), "(r, M r)")
    while going.any():
        pq = columns.multiply()
        alpha, beta = np.zeros(len(runs)), np.zeros(len(runs))
        for j in np.flatnonzero(going).tolist():
            if runs[j].positive(float(pq[j]), "(p, A p)"):
                alpha[j] = rz[j] / pq[j]
            else:
                columns.ends(j)
                going[j] = False
        rr, after = columns.lower(alpha, going)
        beta[going] = (after / rz)[going]
        rz = after
        columns.advance(alpha, beta)
        for j in np.flatnonzero(going).tolist():
            if runs[j].record(root(rr[j])) or not runs[j].positive(float(rz[j]), "(r, M r)"):
                columns.ends(j)
                going[j] = False


class _Columns:
    """The vectors of cg as blocks, (n, k), in memory that is also seen as real numbers."""

    def __init__(self, runs: Sequence[Run]) -> None:
        """Collective where such sums are the first of their kind; else local."""
        self._runs, self._k = runs, len(runs)
        n, dtype = runs[0].space.length, runs[0].space.dtype
        self._x, self._r, self._p, self._q = (
            np.zeros((n, self._k), dtype) for _ in range(4))
        self._z = self._r if runs[0].M is None else np.zeros_like(self._r)
        width = self._r.view(self._r.real.dtype).shape[1]
        rows = max(1, _PART_BYTES // (8 * width))
        #: Rows that stay in the cache; the factors of all columns in each of them; room for
        #: products, and for those that are summed, in double precision.
        self._parts = [slice(first, min(first + rows, n)) for first in range(0, n, rows)]
        self._factors = np.zeros((min(rows, n), width), self._r.real.dtype)
        self._room, self._wide = np.zeros_like(self._factors), np.zeros(self._factors.shape)
        self._ones = np.ones(len(self._wide))
        self._sums = sums(runs[0].comm, 2 * self._k)

    def begin(self, going: NDArray[np.bool_]) -> tuple[Numbers, Numbers]:
        """Collective. r, z and p for x as it is; (r, r) and (r, z) of each column. Those that are
        not going stay zero."""
        for j in np.flatnonzero(going).tolist():
            self._x[:, j], self._r[:, j] = self._runs[j].x, self._runs[j].residual()
        self._precondition(going)
        self._p[:] = self._z
        return self._products(self._share(self._r, self._r))

    def multiply(self) -> Numbers:
        """Collective. q = A p; (p, q) of each column."""
        self._runs[0].multiply(self._p, self._q)
        return self._summed(self._share(self._p, self._q))

    def lower(self, alpha: Numbers, going: NDArray[np.bool_]) -> tuple[Numbers, Numbers]:
        """Collective. r -= alpha q, z = M r; (r, r) and (r, z) of each column."""
        self._add(self._r, -alpha, self._q)
        self._precondition(going)
        return self._products(self._share(self._r, self._r))

    def advance(self, alpha: Numbers, beta: Numbers) -> None:
        """Local. x += alpha p, p = z + beta p."""
        self._add(self._x, alpha, self._p)
        factors, (p, z) = self._of_rows(beta), self._real(self._p, self._z)
        for part in self._parts:
            piece = p[part]
            np.multiply(piece, factors[: len(piece)], out=piece)
            piece += z[part]

    def ends(self, j: int) -> None:
        """Local. The run of a column has ended: x is its solution."""
        self._runs[j].x[:] = self._x[:, j]

    def _precondition(self, going: NDArray[np.bool_]) -> None:
        """Collective if the preconditioner is. z = M r; columns that have ended keep theirs."""
        run = self._runs[0]
        if type(run.M) is Jacobi and run.nullspace is None:
            np.multiply(self._r, run.M.inverse[:, None], out=self._z)
        elif run.M is not None:
            out = run.space.vector()
            for j in np.flatnonzero(going).tolist():
                self._z[:, j] = run.precondition(np.ascontiguousarray(self._r[:, j]), out)

    def _products(self, squares: Numbers) -> tuple[Numbers, Numbers]:
        """Collective. The sums of this rank's shares of (r, r), and of (r, z)."""
        if self._z is self._r:
            found = self._summed(squares)
            return found, found
        found = self._summed(squares, self._share(self._r, self._z))
        return found[: self._k], found[self._k :]

    def _summed(self, *own: Numbers) -> Numbers:
        if self._sums.request.state != "inactive":  # started around this solver, or dropped in it
            self._sums = sums(self._runs[0].comm, 2 * self._k)
        return np.array(self._sums.of(*np.concatenate(own)))

    def _real(self, *blocks: NDArray[Any]) -> tuple[NDArray[Any], ...]:
        return tuple(block.view(block.real.dtype) for block in blocks)

    def _of_rows(self, factors: Numbers) -> NDArray[Any]:
        """Local. A factor for each real number of some rows."""
        self._factors[:] = np.repeat(factors, self._factors.shape[1] // self._k)
        return self._factors

    def _share(self, x: NDArray[Any], y: NDArray[Any]) -> Numbers:
        """Local. What this rank adds to the real part of (x, y) of each column."""
        x, y = self._real(x, y)
        total: Numbers = np.zeros(x.shape[1])
        for part in self._parts:
            both = self._wide[: part.stop - part.start]
            np.multiply(x[part], y[part], out=both, dtype=np.float64)
            total += self._ones[: len(both)] @ both
        each: Numbers = total.reshape(self._k, -1).sum(axis=1)
        return each

    def _add(self, y: NDArray[Any], factors: Numbers, x: NDArray[Any]) -> None:
        """Local. y += factors x, column by column."""
        of_rows, (y, x) = self._of_rows(factors), self._real(y, x)
        for part in self._parts:
            piece = self._room[: part.stop - part.start]
            np.multiply(x[part], of_rows[: len(piece)], out=piece)
            y[part] += piece
