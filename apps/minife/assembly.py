"""From elements to equations: every rank integrates its own elements, some hundreds at once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray
from scipy import sparse

from onesided.apps.minife.hexahedron import CORNERS, Hexahedra
from onesided.apps.minife.mesh import GHOSTS, Box, Mesh
from onesided.apps.minife.problem import Problem
from onesided.apps.minife.sums import Sums
from onesided.collectives import Grid, agreed

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
    began = time.perf_counter()
    with agreed(comm, f"assembly of {mesh.elements} elements"):
        sums = Sums(mesh, comm.rank)
        for box in _slabs(mesh.box(comm.rank)):
            sums.add(box, *_integrated(mesh, problem, box))
    middle = time.perf_counter()
    with Grid(comm, mesh.elements, [GHOSTS] * 3, dims=mesh.blocks.dims) as grid:
        grid.accumulate(*sums.fields)
    with agreed(comm):
        rows, side = sums.rows(), sums.side()
    box = mesh.own(comm.rank)
    guess = _given(problem, mesh.surface(box), mesh.coordinates(box)).reshape(-1)
    times = np.array([middle - began, time.perf_counter() - middle])
    comm.Allreduce(MPI.IN_PLACE, times, op=MPI.MAX)
    seconds = dict(zip(("integration", "sharing"), times.tolist(), strict=True))
    return Equations(rows, side, guess, seconds)


def _slabs(box: Box) -> Iterator[Box]:
    """Local. The box in boxes of few elements, whole along the last axis."""
    (a, b, c), (x, y, z) = box.start, box.stop
    lines = max(1, AT_ONCE // max(z - c, 1))
    thick = max(1, lines // max(y - b, 1))
    for first in range(a, x, thick):
        for second in range(b, y, lines):
            stop = min(first + thick, x), min(second + lines, y), z
            yield Box((first, second, c), stop)


def _integrated(mesh: Mesh, problem: Problem, box: Box) -> tuple[Values, Values]:
    """Local. Matrices (8, 8, n) and loads (8, n) of a box of elements, its surface eliminated."""
    a, b, c = (stop + 1 for stop in box.stop)
    around = Box(box.start, (a, b, c))
    places = mesh.coordinates(around)
    corners = np.array([_corner(place, box, corner) for corner in CORNERS for place in places])
    elements = Hexahedra(corners.reshape(8, 3, box.size))
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
    place = tuple(slice(c, c + n) for c, n in zip(corner, box.extent, strict=True))
    return nodes[place].reshape(-1)


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
