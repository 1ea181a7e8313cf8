"""A mesh on the ranks of a communicator: its equations, its matrix, and how good a solution is."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray
from scipy import sparse

from onesided.apps.failures import user_errors
from onesided.apps.minife.assembly import assembled
from onesided.apps.minife.mesh import Mesh, Triple
from onesided.apps.minife.problem import Problem
from onesided.apps.spmv import traffic
from onesided.apps.timing import setup_time
from onesided.collectives import agreed
from onesided.sparse import DistMatrix, Linear, cg
from onesided.sparse.solvers import Solution

Values = NDArray[np.float64]

_METHOD = "p2p"  # of the matrix's own halo, which no way uses
_AT_ONCE = 1 << 15  # nodes at which the known solution is computed
_FLOPS = 10  # of the vectors for an unknown in an iteration: two products, three sums
_VECTORS = 10  # read and written: two for (p, A p), three for the residual, five for x and p
_DISTORTED = 20.0  # what a distortion of 1 adds to the bound of the error, in times of it


@dataclass(frozen=True)
class Errors:
    """Of a solution where it is judged, relative to the largest value that is known there."""

    largest: float
    rms: float


class System:
    """The equations of a mesh, distributed, and the solution that is known.

    ``matrix`` has the entries that all ways multiply with, ``side`` and ``guess`` are this rank's
    blocks. ``seconds``: what the parts of the set-up took on the slowest rank.
    """

    def __init__(
        self, comm: MPI.Intracomm, elements: Triple, problem: Problem, distortion: float
    ) -> None:
        """Collective. :class:`CommandError` where the mesh does not fit the ranks or the memory."""
        self.comm, self.problem = comm, problem
        made: list[DistMatrix] = []
        with user_errors():
            self.mesh = mesh = Mesh.of(elements, comm.size, distortion)
            equations = assembled(comm, mesh, problem)
            seconds = setup_time(comm, lambda: made.append(_matrix(comm, mesh, equations.rows)))
        self.side, self.guess = equations.side, equations.guess
        self.matrix = made[0]
        self.seconds = {**equations.seconds, "matrix": seconds}
        self._known: tuple[NDArray[np.intp], Values] | None = None

    @property
    def unknowns(self) -> int:
        """Local. Nodes that are not on the surface."""
        return prod(count - 1 for count in self.mesh.elements)

    @property
    def bound(self) -> float:
        """Local. The largest error that the spacing explains."""
        factor = 1.0 + _DISTORTED * self.mesh.distortion
        return self.problem.bound * factor * self.mesh.spacing**2

    @property
    def flops(self) -> float:
        """Local. Operations of an iteration of conjugate gradients on all ranks."""
        return float(2 * self.matrix.nnz + _FLOPS * self.matrix.shape[0])

    @property
    def nbytes(self) -> int:
        """Local. Bytes that an iteration reads and writes at least, on all ranks."""
        return traffic(self.matrix) + _VECTORS * self.matrix.shape[0] * self.matrix.dtype.itemsize

    def solution(self, operator: Linear, rtol: float, most: int) -> Solution:
        """Collective. By conjugate gradients, the products those of ``operator``."""
        return cg(operator, self.side, self.guess, rtol=rtol, maxiter=most)

    def residual(self, x: Values) -> float:
        """Collective. The norm of side - matrix x, relative to that of the side."""
        rest = self.side - self.matrix @ x
        squares = np.array([np.vdot(rest, rest), np.vdot(self.side, self.side)])
        self.comm.Allreduce(MPI.IN_PLACE, squares)
        return float(np.sqrt(squares[0] / squares[1]))

    def errors(self, x: Values) -> Errors:
        """Collective. How far a solution lies off the known one.

        :class:`.CommandError` on every rank where one has no memory for the known one.
        """
        with user_errors(), agreed(self.comm):
            where, known = self._judged()
        off = np.abs(x[where] - known)
        most = np.array([np.max(np.abs(known), initial=0.0), np.max(off, initial=0.0)])
        sums = np.array([np.vdot(off, off), float(len(where))])
        self.comm.Allreduce(MPI.IN_PLACE, most, op=MPI.MAX)
        self.comm.Allreduce(MPI.IN_PLACE, sums)
        rms = np.sqrt(sums[0] / sums[1]) / most[0]
        return Errors(float(most[1] / most[0]), float(rms))

    def _judged(self) -> tuple[NDArray[np.intp], Values]:
        """Local. Own nodes at which solutions are judged, and the known one there."""
        if self._known is None:
            places = self.mesh.coordinates(self.mesh.own(self.comm.rank)).reshape(3, -1)
            where = np.flatnonzero(self.problem.judged(places[0]))
            known = np.empty(len(where))
            for first in range(0, len(where), _AT_ONCE):
                part = slice(first, first + _AT_ONCE)
                known[part] = self.problem.solution(*places[:, where[part]])
            self._known = where, known
        return self._known

    def Free(self) -> None:
        """Collective. Free the matrix, after everything that was made of it."""
        self.matrix.Free()


def _matrix(comm: MPI.Intracomm, mesh: Mesh, rows: sparse.csr_array) -> DistMatrix:
    """Collective. Rows and columns as the nodes are owned."""
    return DistMatrix(comm, rows, mesh.partition, mesh.partition, method=_METHOD)
