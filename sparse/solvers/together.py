"""The iteration of cg for several right-hand sides at once.

Each column has the numbers that it would have alone, but for rounding; the matrix is read once for
all of them, and their ghosts, as their scalar products, travel in one message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.collectives import sums
from onesided.collectives.scripts import Work, script
from onesided.sparse.kernels.rows import address_of, compiled
from onesided.sparse.matrix import DistMatrix
from onesided.sparse.preconditioners.blocks import Jacobi
from onesided.sparse.solvers.run import Run
from onesided.sparse.solvers.space import root

Numbers = NDArray[np.float64]


@np.errstate(all="ignore")
def together(runs: Sequence[Run]) -> None:
    """Collective. The first leg of each of these runs of one matrix and preconditioner; nothing
    where that is done one after the other."""
    alone = len(runs) == 1 or not isinstance(runs[0].A, DistMatrix) or runs[0].calls_back
    if alone or not any(run.size for run in runs):
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
        self._x, self._r, self._p, self._q = (np.zeros((n, self._k), dtype) for _ in range(4))
        self._z = self._r if runs[0].M is None else np.zeros_like(self._r)
        #: A column of r, and what the preconditioner makes of it.
        self._pair = runs[0].room(), runs[0].room()
        real = self._r.real.dtype
        x, r, p, q, z = (each.view(real) for each in (self._x, self._r, self._p, self._q, self._z))
        #: alpha, beta, and two kinds of sums, for each of the real numbers of a row.
        self._numbers = alpha, beta, one, other = np.zeros((4, r.shape[1]))
        self._pq, self._rr, self._rz = (
            _step("dots", _dots, *each) for each in ((p, q, one), (r, r, one), (r, z, other)))
        self._lowers = _step("lowers", _lowers, alpha, q, r, one)
        self._advances = _step("advances", _advances, alpha, beta, x, p, z)
        self._sums = sums(runs[0].comm, 2 * self._k)

    def begin(self, going: NDArray[np.bool_]) -> tuple[Numbers, Numbers]:
        """Collective. r, z and p for x as it is; (r, r) and (r, z) of each column. Those that are
        not going stay zero."""
        for j in np.flatnonzero(going).tolist():
            self._x[:, j], self._r[:, j] = self._runs[j].x, self._runs[j].residual()
        self._precondition(going)
        self._p[:] = self._z
        self._rr()
        return self._products()

    def multiply(self) -> Numbers:
        """Collective. q = A p; (p, q) of each column."""
        self._runs[0].multiply(self._p, self._q)
        self._pq()
        return self._summed(1).ravel()

    def lower(self, alpha: Numbers, going: NDArray[np.bool_]) -> tuple[Numbers, Numbers]:
        """Collective. r -= alpha q, z = M r; (r, r) and (r, z) of each column."""
        self._numbers[0] = self._of_row(alpha)
        self._lowers()
        self._precondition(going)
        return self._products()

    def advance(self, alpha: Numbers, beta: Numbers) -> None:
        """Local. x += alpha p, p = z + beta p."""
        self._numbers[:2] = self._of_row(alpha), self._of_row(beta)
        self._advances()

    def ends(self, j: int) -> None:
        """Local. The run of a column has ended: x is its solution."""
        self._runs[j].x[:] = self._x[:, j]

    def _precondition(self, going: NDArray[np.bool_]) -> None:
        """Collective if the preconditioner is. z = M r; columns that have ended keep theirs."""
        run = self._runs[0]
        if type(run.M) is Jacobi and run.nullspace is None:
            np.multiply(self._r, run.M.inverse[:, None], out=self._z)
        elif run.M is not None:
            one, out = self._pair
            for j in np.flatnonzero(going).tolist():
                one[:] = self._r[:, j]
                self._z[:, j] = run.precondition(one, out)

    def _products(self) -> tuple[Numbers, Numbers]:
        """Collective. The sums of this rank's shares of (r, r), which are there, and of (r, z)."""
        if self._z is not self._r:
            self._rz()
        found = self._summed(1 if self._z is self._r else 2)
        return found[0], found[-1]

    def _summed(self, count: int) -> Numbers:
        """Collective. Of this rank's shares of one scalar product of each column, or of two."""
        if self._sums.request.state != "inactive":  # started around this solver, or dropped in it
            self._sums = sums(self._runs[0].comm, 2 * self._k)
        own = self._numbers[2 : 2 + count].reshape(count, self._k, -1).sum(axis=2)
        return np.array(self._sums.of(*own.ravel())).reshape(own.shape)

    def _of_row(self, factors: Numbers) -> Numbers:
        """Local. A factor for each real number of a row."""
        return np.repeat(factors, self._numbers.shape[1] // self._k)


def _step(name: str, reference: Callable[..., None], *places: NDArray[Any]) -> Callable[[], object]:
    """Local. A function of sparse/core/vectors.c for these blocks; what it does in Python."""
    block = places[-1] if name == "advances" else places[1]
    if not compiled():
        return lambda: reference(*places)
    function = address_of(f"{name} {block.dtype.char}")
    works = [Work(places, function, block.size, block.shape[1], 2 * block.nbytes)]
    return partial(script(works, ()), ())


def _dots(x: NDArray[Any], y: NDArray[Any], found: Numbers) -> None:
    np.einsum("ij,ij->j", x, y, out=found, dtype=np.float64)


def _lowers(alpha: Numbers, q: NDArray[Any], r: NDArray[Any], found: Numbers) -> None:
    r -= alpha.astype(r.dtype) * q
    _dots(r, r, found)


def _advances(
    alpha: Numbers, beta: Numbers, x: NDArray[Any], p: NDArray[Any], z: NDArray[Any]
) -> None:
    x += alpha.astype(x.dtype) * p
    p *= beta.astype(p.dtype)
    p += z
