"""An iteration of cg: in Python, for any map and any preconditioner, and as one script, where the
matrix is multiplied by what is compiled and the preconditioner is a diagonal, a matrix, or none.

The first is the reference for the second. Both send the same messages.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.collectives import sums
from onesided.collectives.scripts import Ends, Part, Place, Work, script
from onesided.sparse.kernels.rows import address_of
from onesided.sparse.matrix import DistMatrix
from onesided.sparse.preconditioners.blocks import Jacobi
from onesided.sparse.preconditioners.preconditioner import Function
from onesided.sparse.solvers.run import Run
from onesided.sparse.solvers.space import Space

#: An iteration has so many numbers, as sparse/core/vectors.c says: (p, q), alpha, (r, r), (r, z),
#: and whether (p, q) was positive; where (r, z) is.
_NUMBERS, _RZ = 5, 3

#: Ends of the script: the diagonal, which is only read, x, the ghosts of the matrix, and those of
#: the preconditioner.
_DIAGONAL, _X, _GHOSTS, _OTHERS = range(4)


class Iteration:
    """What changes x, the residual r, z = M r and the direction p, again and again; in Python. One
    run at a time uses it, ``run``, which alone has the matrix and the preconditioner."""

    def __init__(self, run: Run) -> None:
        """Local."""
        self.run = run
        self._r, self._q, self._p = (run.space.vector() for _ in range(3))
        self._z = self._r if run.M is None else run.space.vector()
        self._rz = 0.0

    def release(self) -> None:
        """Local. The run has ended: let go what it has, and wait for another one."""

    def begin(self) -> tuple[float, float]:
        """Collective. r, z and p for x as it is; (r, r) and (r, z)."""
        run, r = self.run, self._r
        z = run.precondition(run.residual(r), self._z)
        self._p[:] = z
        if z is not r:
            dots = run.space.dots((r, r), (r, z))
            rr, self._rz = dots[0].real, dots[1].real
        elif run.at_zero:
            rr = self._rz = run.square
        else:
            rr = self._rz = run.space.square(r)
        return rr, self._rz

    def step(self) -> tuple[float, float, float, float]:
        """Collective. (p, A p), the length alpha of the step, and the new (r, r) and (r, z); where
        (p, A p) is not positive only that counts, and x stays."""
        run, space, r, z, q = self.run, self.run.space, self._r, self._z, self._q
        run.multiply(self._p, q)
        pq = space.dots((self._p, q))[0].real
        if not (math.isfinite(pq) and pq > 0):
            return pq, 0.0, 0.0, 0.0
        alpha, before = self._rz / pq, self._rz
        square = space.add_square(r, -alpha, q)
        if z is r:
            rr = rz = space.sums(square)[0].real
        else:
            run.precondition(r, z)
            rr, rz = (value.real for value in space.sums(square, space.share(r, z)))
        space.advance(run.x, alpha, self._p, rz / before, z)
        self._rz = rz
        return pq, alpha, rr, rz


class Lowered(Iteration):
    """As a script."""

    def __init__(self, run: Run) -> None:
        """Collective where such sums are the first of their kind; else local."""
        super().__init__(run)
        self._numbers = np.zeros(_NUMBERS)
        self._ends: Ends = ()
        self._lower()

    def release(self) -> None:
        """Local. The matrix keeps it until it has other values."""
        A, M, space, self._ends = self.run.A, _map(self.run.M), self.run.space, ()
        del self.run
        if not isinstance(M, DistMatrix):  # whose values may change
            A.kept["steps", type(M), space.dtype] = self

    def _lower(self) -> None:
        """Collective where such sums are the first of their kind; else local."""
        matrix: Any = self.run.A
        M, r, q, p, z = _map(self.run.M), self._r, self._q, self._p, self._z
        self._sums = total = sums(matrix.comm, *self.run.space.wanted)
        apart = total.own.itemsize // 8  # of complex sums the real parts count
        own, found = (each.view(np.float64)[::apart] for each in (total.own, total.total))
        square, other = own[0:1], own[1:2]
        steps = [
            *(matrix.steps(p, q, _GHOSTS) or ()),
            step_of("dot", r, p, q, square),
            total.start,
            total.finish,
            step_of("lower", r, self._numbers, found[0:1], r, q, square),
        ]
        if isinstance(M, Jacobi):
            steps.append(step_of("diagonal", r, Part(_DIAGONAL), r, z, other))
        elif M is not None:
            steps += [*(M.steps(r, z, _OTHERS) or ()), step_of("dot", r, r, z, other)]
        last = found[0:1], found[0:1] if M is None else found[1:2]
        advance = step_of("advance", r, self._numbers, *last, Part(_X), p, z)
        steps += [total.start, total.finish, advance]
        ghosts = (
            which.halo.request.recvbuf if isinstance(which, DistMatrix) else r[:0]
            for which in (matrix, M)
        )
        self._call = script(steps, (r, r, *ghosts))

    def begin(self) -> tuple[float, float]:
        """Collective. As :meth:`Iteration.begin`."""
        M, r = self.run.M, self._r
        diagonal = M.inverse.astype(r.dtype, copy=False) if isinstance(M, Jacobi) else r
        self._ends = (diagonal, self.run.x)
        found = super().begin()
        self._numbers[_RZ] = self._rz
        return found

    def step(self) -> tuple[float, float, float, float]:
        """Collective. As :meth:`Iteration.step`."""
        if self._sums.request.state != "inactive":  # started around this solver, or dropped in it
            self._lower()
        try:
            self._call(self._ends)
        except BaseException as error:
            self._sums.give_up(error)
            raise
        pq, alpha, rr, rz, _ = self._numbers.tolist()
        return pq, alpha, rr, rz


def iteration(run: Run) -> Iteration:
    """Collective. What makes the iterations of this run: a script where there can be one."""
    A, M, space = run.A, _map(run.M), run.space
    if not (M is None or (run.nullspace is None and _has_steps(M, space))):
        return Iteration(run)
    kept: Lowered | None = A.kept.pop(("steps", type(M), space.dtype), None)
    if kept is None:
        return Lowered(run) if _has_steps(A, space) else Iteration(run)
    kept.run = run
    return kept


def _map(M: Any) -> Any:
    """Local. The matrix, where that is the preconditioner."""
    return M.map if isinstance(M, Function) and M.map is not None else M


def _has_steps(map: Any, space: Space) -> bool:
    """Local. Whether the matrix, or diagonal, multiplies vectors of a run by steps of a script; the
    same on all ranks."""
    if type(map) is Jacobi:
        fits = np.can_cast(map.inverse.dtype, space.dtype, "safe")
        return fits and len(map.inverse) == space.length
    if type(map) is not DistMatrix:  # it may multiply in its own way
        return False
    none = np.empty(0, space.dtype)
    return map.dtype == space.dtype and map.steps(none, none, _GHOSTS) is not None


def step_of(name: str, vector: NDArray[Any], *places: Place) -> Work:
    """Local. A function of sparse/core/vectors.c as a step, for vectors like this one."""
    reals = vector.view(vector.real.dtype)
    kind = vector.dtype if name == "diagonal" else reals.dtype
    function = address_of(f"{name} {kind.char}")
    return Work(places, function, len(reals), nbytes=2 * vector.nbytes)
