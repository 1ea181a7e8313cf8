"""A mesh on the ranks of a communicator: its equations, its matrix, and how good a solution is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray
from scipy import sparse

from onesided.apps.bench.race import clocked
from onesided.apps.cli.failures import user_errors
from onesided.apps.miniapps.minife_mesh import (
    CORNERS,
    GHOSTS,
    Hexahedra,
    Mesh,
    Problem,
    Sums,
    Triple,
    full,
    shifted,
)
from onesided.apps.tools.spmv import traffic
from onesided.collectives import Grid, agreed
from onesided.collectives.halo.faces import extents
from onesided.collectives.pattern import Box
from onesided.sparse import DistMatrix, Linear, cg
from onesided.sparse.solvers import Solution

# From elements to equations: every rank integrates its own elements, some hundreds at once.

Values = NDArray[np.float64]

AT_ONCE = 1024  # elements whose matrices fit the cache, about
_EACH = np.arange(8)


@dataclass(frozen=True, eq=False)
class Equations:
    """A rank's part of a system: ``rows`` (CSR, columns global), the right side, and a first guess.

    The guess has the values given on the surface, and is 0 inside. ``seconds``: by the slowest
    rank, of integrating and adding up, and of bringing what is ghosts' to the owners.
    """

    rows: sparse.csr_array
    side: Values
    guess: Values
    seconds: dict[str, float] = field(default_factory=dict)


def assembled(comm: MPI.Intracomm, mesh: Mesh, problem: Problem) -> Equations:
    """Collective. The equations of this rank's own nodes.

    Values on the surface are eliminated element by element: the matrix stays symmetric, and rows
    of the surface have their diagonal only (other entries of theirs are stored as zeros).
    ``ValueError`` on every rank where an element is turned inside out, ``MemoryError`` where a
    rank has no room.
    """

    def integrate() -> Sums:
        with agreed(comm, f"assembly of {mesh.elements} elements"):
            sums = Sums(mesh, comm.rank)
            for box in _slabs(mesh.blocks.box(comm.rank)):
                sums.add(box, *_integrated(mesh, problem, box))
        return sums

    def share() -> tuple[Any, Any]:
        with Grid(comm, mesh.elements, [GHOSTS] * 3, dims=mesh.blocks.dims) as grid:
            grid.accumulate(*sums.fields)
        with agreed(comm):
            return sums.rows(), sums.side()

    sums, integrating = clocked(comm, integrate)
    (rows, side), sharing = clocked(comm, share)
    box = mesh.own(comm.rank)
    guess = _given(problem, mesh.surface(box), mesh.coordinates(box)).reshape(-1)
    return Equations(rows, side, guess, {"integration": integrating, "sharing": sharing})


def _slabs(box: Box) -> Iterator[Box]:
    """Local. The box in boxes of few elements, whole along the last axis."""
    x, y, z = box
    lines = max(1, AT_ONCE // max(z.stop - z.start, 1))
    thick = max(1, lines // max(y.stop - y.start, 1))
    for first in range(x.start, x.stop, thick):
        for second in range(y.start, y.stop, lines):
            yield (
                slice(first, min(first + thick, x.stop)),
                slice(second, min(second + lines, y.stop)),
                z,
            )


def _integrated(mesh: Mesh, problem: Problem, box: Box) -> tuple[Values, Values]:
    """Local. Matrices (8, 8, n) and loads (8, n) of a box of elements, its surface eliminated."""
    around = tuple(slice(part.start, part.stop + 1) for part in box)
    places = mesh.coordinates(around)
    corners = np.array([_corner(place, box, corner) for corner in CORNERS for place in places])
    elements = Hexahedra(corners.reshape(8, 3, prod(extents(box))))
    if not elements.volumes.min() > 0.0:
        raise ValueError(f"a distortion of {mesh.distortion:g} turns elements inside out")
    matrices = elements.stiffness()
    points = elements.points()
    loads = elements.load(problem.source(points[:, 0], points[:, 1], points[:, 2]))
    marks = mesh.surface(around)
    if marks.any():
        given = _given(problem, marks, places)
        _eliminate(
            matrices,
            loads,
            np.array([_corner(marks, box, corner) for corner in CORNERS]),
            np.array([_corner(given, box, corner) for corner in CORNERS]),
        )
    return matrices, loads


def _given(problem: Problem, marks: NDArray[np.bool_], places: Values) -> Values:
    """Local. The values given at nodes that are marked, 0 at the others."""
    given = np.zeros(marks.shape)
    given[marks] = problem.boundary(*(place[marks] for place in places))
    return given


def _corner(nodes: NDArray[Any], box: Box, corner: NDArray[Any]) -> NDArray[Any]:
    """Local. What nodes of a box of elements have, at one corner of each element."""
    return nodes[shifted(full(extents(box)), corner)].reshape(-1)


def _eliminate(
    matrices: Values, loads: Values, fixed: NDArray[np.bool_], given: Values
) -> None:
    """Local. Corners that are ``fixed`` get the equation diagonal * u = diagonal * given."""
    hit = np.flatnonzero(fixed.any(axis=0))
    fixed, given = fixed[:, hit], given[:, hit]
    part = matrices[:, :, hit]
    diagonal = part[_EACH, _EACH].copy()
    side = loads[:, hit] - np.einsum("abn,bn->an", part, given)
    free = ~fixed
    part *= free[:, None]
    part *= free[None, :]
    part[_EACH, _EACH] = diagonal
    matrices[:, :, hit] = part
    loads[:, hit] = np.where(fixed, diagonal * given, side)


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
        with user_errors():
            self.mesh = mesh = Mesh.of(elements, comm.size, distortion)
            equations = assembled(comm, mesh, problem)
            self.matrix, seconds = clocked(comm, partial(_matrix, comm, mesh, equations.rows))
        self.side, self.guess = equations.side, equations.guess
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
