"""A mesh of hexahedra in the unit cube, and which rank has which elements and nodes. No MPI.

Elements are the cells of a :class:`~onesided.collectives.Grid`, nodes are staggered along all axes.
A rank owns the nodes at the lower corners of its elements, and at the upper end of the cube those
of the upper corners too; the other nodes of its elements are ghosts, owned by ranks above. Nodes
are numbered rank by rank, in each box with the last axis fastest, so that every rank owns a
contiguous range of unknowns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from onesided.collectives import PatternError
from onesided.collectives.halo.faces import Blocks, choose_dims, common, extents, is_empty, within
from onesided.collectives.pattern import Box
from onesided.sparse import Partition
from onesided.sparse.partition import index_dtype

# Steady temperatures in the unit cube that are known: -laplace(u) = f, u given on its surface.

Values = NDArray[np.float64]
Field = Callable[[Values, Values, Values], Values]

_PHASE = 0.3
_MODES = range(1, 40, 2)  # of the hot wall's series; the others are below rounding where x <= 1/2
_HALF = 0.5


@dataclass(frozen=True)
class Problem:
    """Functions of coordinates x, y, z, arrays of one shape.

    ``judged`` tells where the solution is compared with the known one. ``bound``: the largest
    error there, relative to the largest value, on a mesh of spacing h is this times the square
    of h; a few times what is seen.
    """

    name: str
    summary: str
    solution: Field
    source: Field
    boundary: Field
    judged: Callable[[Values], NDArray[np.bool_]]
    bound: float


def _smooth(x: Values, y: Values, z: Values) -> Values:
    values: Values = np.sin(np.pi * x + _PHASE) * np.cos(np.pi * y) * np.exp(z)
    return values


def _smooth_source(x: Values, y: Values, z: Values) -> Values:
    return (2.0 * np.pi**2 - 1.0) * _smooth(x, y, z)


def _hot_wall(x: Values, y: Values, z: Values) -> Values:
    """The double sine series; each mode falls like exp(-a (1 - x)) from the wall."""
    total = np.zeros_like(x)
    sines_y = {mode: np.sin(mode * np.pi * y) for mode in _MODES}
    sines_z = {mode: np.sin(mode * np.pi * z) for mode in _MODES}
    for p in _MODES:
        for q in _MODES:
            a = np.pi * np.hypot(p, q)
            if a * _HALF > 40.0:  # exp(-40) is below rounding
                continue
            fall = np.exp(a * (x - 1.0)) * np.expm1(-2.0 * a * x) / np.expm1(-2.0 * a)
            total += 16.0 / (np.pi**2 * p * q) * sines_y[p] * sines_z[q] * fall
    return total


def _none(x: Values, y: Values, z: Values) -> Values:
    return np.zeros_like(x)


def _wall(x: Values, y: Values, z: Values) -> Values:
    """1 on the wall; at its edges, which it shares with cold walls, the mean of both.

    With 0 or 1 there the error inside is about three times as large.
    """
    edges = (y % 1.0 == 0.0).astype(float) + (z % 1.0 == 0.0)
    values: Values = np.where(x == 1.0, _HALF**edges, 0.0)
    return values


def _everywhere(x: Values) -> NDArray[np.bool_]:
    return np.ones(x.shape, np.bool_)


def _cold_half(x: Values) -> NDArray[np.bool_]:
    return x <= _HALF


PROBLEMS = {
    problem.name: problem
    for problem in (
        Problem(
            "smooth",
            "u = sin(pi x + 0.3) cos(pi y) exp(z)",
            _smooth,
            _smooth_source,
            _smooth,
            _everywhere,
            1.5,
        ),
        Problem(
            "hot-wall",
            "temperature 1 at x = 1, 0 at the other walls, no source; compared where x <= 1/2",
            _hot_wall,
            _none,
            _wall,
            _cold_half,
            5.0,
        ),
    )
}


# The trilinear hexahedron of eight nodes, integrated by 2 x 2 x 2 Gauss points: many at once.
#
# Arrays have the elements along their last axis, so that every operation is one of long rows: the
# matrices of n elements are (8, 8, n). Corners are numbered as the bits of 0 to 7, the last axis
# varying fastest. See T. J. R. Hughes, The Finite Element Method, 1987, chapter 3.

#: The place of each corner in the unit cube.
CORNERS = np.array(list(product((0, 1), repeat=3)))
_ABSCISSAE = 0.5 + np.array([-0.5, 0.5]) / np.sqrt(3.0)
#: The Gauss points in the unit cube, each of which weighs as much as the others.
_POINTS = np.array(list(product(_ABSCISSAE, repeat=3)))
_WEIGHT = 1.0 / len(_POINTS)


def _shapes() -> tuple[Values, Values]:
    """Values of the eight shape functions at the Gauss points, (points, corners), and their
    derivatives in the unit cube, (points, 3 axes, corners)."""
    points, corners = _POINTS[:, None, :], CORNERS[None, :, :]
    values = np.where(corners == 1, points, 1.0 - points)  # of the linear functions of each axis
    slopes = np.broadcast_to(2.0 * corners - 1.0, values.shape)
    gradients = [slopes[..., axis] * np.delete(values, axis, 2).prod(axis=2) for axis in range(3)]
    return values.prod(axis=2), np.stack(gradients, axis=1)


SHAPES, GRADIENTS = _shapes()


class Hexahedra:
    """Local. Some elements, by the coordinates of their corners: (8 corners, 3 axes, n).

    ``volumes``: what a Gauss point stands for, (8 points, n); not above zero where an element is
    turned inside out.
    """

    def __init__(self, corners: Values) -> None:
        self.count = corners.shape[2]
        self._corners = corners.reshape(8, 3 * self.count)
        jacobian = GRADIENTS.reshape(24, 8) @ self._corners
        self._cofactors = _cofactors(jacobian.reshape(8, 3, 3, self.count))
        along = jacobian.reshape(8, 3, 3, self.count)[:, 0]
        self._determinants = np.einsum("gdn,gdn->gn", along, self._cofactors[:, 0])
        self.volumes = _WEIGHT * self._determinants

    def points(self) -> Values:
        """Local. The coordinates of the Gauss points: (8 points, 3 axes, n)."""
        return (SHAPES @ self._corners).reshape(8, 3, self.count)

    def stiffness(self) -> Values:
        """Local. The integrals of products of gradients: (8, 8, n)."""
        scale = np.sqrt(_WEIGHT / self._determinants)
        scaled = self._cofactors * scale[:, None, None, :]
        flat = scaled.reshape(8, 3, 3 * self.count)
        slopes = np.matmul(GRADIENTS.transpose(0, 2, 1), flat)  # (points, corners, axes and n)
        rows = slopes.reshape(8, 8, 3, self.count).transpose(1, 0, 2, 3)
        rows = np.ascontiguousarray(rows).reshape(8, 24, self.count)
        matrices = np.empty((8, 8, self.count))
        for one in range(8):
            for other in range(one, 8):
                np.einsum("kn,kn->n", rows[one], rows[other], out=matrices[one, other])
                matrices[other, one] = matrices[one, other]
        return matrices

    def load(self, source: Values) -> Values:
        """Local. The integrals of a function with the shape functions: (8, n).

        ``source`` has its values at the Gauss points, (8 points, n).
        """
        loads: Values = SHAPES.T @ (source * self.volumes)
        return loads


def _cofactors(jacobian: NDArray[Any]) -> Values:
    """Local. Of 3 x 3 matrices whose entries are the second and third axis."""
    found = np.empty_like(jacobian)
    for i, d in product(range(3), repeat=2):
        (i1, i2), (d1, d2) = ((i + 1) % 3, (i + 2) % 3), ((d + 1) % 3, (d + 2) % 3)
        np.multiply(jacobian[:, i1, d1], jacobian[:, i2, d2], out=found[:, i, d])
        found[:, i, d] -= jacobian[:, i1, d2] * jacobian[:, i2, d1]
    return found


Triple = tuple[int, int, int]

#: Layers of ghosts below and above a block of nodes.
GHOSTS = (0, 1)

#: How far along each axis inner nodes are moved by a distortion of 1.
_DIRECTION = (1.0, -0.8, 0.6)


@dataclass(frozen=True)
class Mesh:
    """So many elements along each axis, how they are cut, and how far inner nodes are moved.

    Nodes of a distorted mesh lie on smooth curves; those of the surface stay where they are.
    """

    elements: Triple
    blocks: Blocks
    distortion: float = 0.0

    @classmethod
    def of(cls, elements: Triple, ranks: int, distortion: float = 0.0) -> Mesh:
        """Local. Cut for so many ranks; :class:`PatternError` where they are too many."""
        dims = choose_dims(elements, ranks, [GHOSTS] * 3)
        return cls(elements, Blocks(elements, dims), distortion)

    @property
    def ranks(self) -> int:
        """Local. How many have a part of it."""
        return prod(self.blocks.dims)

    @property
    def points(self) -> Triple:
        """Local. Nodes along each axis."""
        a, b, c = (count + 1 for count in self.elements)
        return a, b, c

    @property
    def nodes(self) -> int:
        """Local. How many there are."""
        return prod(self.points)

    @property
    def spacing(self) -> float:
        """Local. The longest edge of an element that is not distorted."""
        return 1.0 / min(self.elements)

    @property
    def whole(self) -> Box:
        """Local. All nodes."""
        return full(self.points)

    def own(self, rank: int) -> Box:
        """Local. The nodes that a rank owns."""
        return self.blocks.box(rank, (1, 1, 1))

    @cached_property
    def partition(self) -> Partition:
        """Local. Who owns which numbers."""
        sizes = [prod(extents(self.own(rank))) for rank in range(self.ranks)]
        return Partition.from_lengths(np.array(sizes, np.int64))

    def numbers(self, box: Box) -> NDArray[np.int64]:
        """Local. Of the nodes in a box, as an array of its shape."""
        found = np.empty(extents(box), np.int64)
        for rank in range(self.ranks):
            own = self.own(rank)
            part = common(own, box)
            if not is_empty(part):
                mine = np.arange(*self.partition.range(rank)).reshape(extents(own))
                found[within(part, box)] = mine[within(part, own)]
        return found

    def surface(self, box: Box) -> NDArray[np.bool_]:
        """Local. Which nodes of a box lie on the surface of the cube."""
        ends = [
            np.isin(np.arange(part.start, part.stop), (0, count))
            for part, count in zip(box, self.elements, strict=True)
        ]
        x, y, z = np.meshgrid(*ends, indexing="ij", sparse=True)
        marks: NDArray[np.bool_] = x | y | z
        return marks

    def coordinates(self, box: Box) -> Values:
        """Local. Of the nodes in a box: (3, *its shape)."""
        lines = [
            np.arange(part.start, part.stop) / count
            for part, count in zip(box, self.elements, strict=True)
        ]
        places = np.array(np.meshgrid(*lines, indexing="ij"))
        if self.distortion:
            bumps = [np.where(x % 1.0 == 0.0, 0.0, np.sin(np.pi * x)) for x in lines]
            bump = self.distortion * np.multiply.outer(np.multiply.outer(*bumps[:2]), bumps[2])
            for place, factor in zip(places, _DIRECTION, strict=True):
                place += factor * bump
        return places


def fits(elements: Triple, ranks: int) -> bool:
    """Local. Whether a mesh can be cut for so many ranks."""
    try:
        choose_dims(elements, ranks, [GHOSTS] * 3)
    except PatternError:
        return False
    return True


# Sums of element matrices: rows of nodes, complete when the owners have what is in the ghosts.
#
# The corners of a box of elements are parts of the box of their nodes, shifted by one, and a node
# has at most 27 neighbors, itself included. So the element matrices are added as whole arrays: 27
# components of a field of the grid, whose ghosts are the nodes that other ranks own.

NEIGHBORS = 27  # of a node, itself included: those that steps of -1, 0, 1 along the axes lead to


def full(shape: Sequence[int]) -> Box:
    """Local. All of an array."""
    return tuple(slice(0, n) for n in shape)


def shifted(box: Box, corner: NDArray[Any]) -> Box:
    """Local. A box moved by the place of a corner."""
    return tuple(
        slice(part.start + step, part.stop + step) for part, step in zip(box, corner, strict=True)
    )


class Sums:
    """Local. ``fields``: for all nodes of a rank's elements, 27 entries of a row, and a load."""

    def __init__(self, mesh: Mesh, rank: int) -> None:
        self._mesh, self._own = mesh, mesh.own(rank)
        shape = [n + sum(GHOSTS) for n in extents(self._own)]
        self._entries = np.zeros((NEIGHBORS, *shape))
        self._loads = np.zeros(shape)
        self.fields = self._entries, self._loads

    def add(self, box: Box, matrices: Values, loads: Values) -> None:
        """Local. What a box of elements adds."""
        first, shape = within(box, self._own), extents(box)
        for row, corner in enumerate(CORNERS):
            place = shifted(first, corner)
            self._loads[place] += loads[row].reshape(shape)
            for column, other in enumerate(CORNERS):
                step = int((other - corner + 1) @ (9, 3, 1))
                self._entries[step][place] += matrices[row, column].reshape(shape)

    def side(self) -> Values:
        """Local. The loads of the own nodes."""
        return self._loads[within(self._own, self._own)].reshape(-1)

    def rows(self) -> sparse.csr_array:
        """Local. The rows of the own nodes, their columns ascending.

        All neighbors are stored, zeros as well, so that all meshes have the same entries however
        they are cut.
        """
        shape, nodes = extents(self._own), self._mesh.nodes
        count, kind = prod(shape), index_dtype(NEIGHBORS * nodes)
        around = np.lib.stride_tricks.sliding_window_view(self._around().astype(kind), (3, 3, 3))
        columns = around.reshape(count, NEIGHBORS)
        own = (slice(None), *full(shape))
        values = self._entries[own].reshape(NEIGHBORS, count).T
        there = columns >= 0
        pointers = np.concatenate([np.zeros(1, kind), np.cumsum(there.sum(axis=1), dtype=kind)])
        found = sparse.csr_array(
            (values[there], columns[there], pointers), shape=(count, nodes)
        )
        found.sort_indices()
        return found

    def _around(self) -> NDArray[np.int64]:
        """The numbers of the own nodes and those beside them, -1 beyond the surface."""
        wide = tuple(slice(part.start - 1, part.stop + 1) for part in self._own)
        inside = common(wide, self._mesh.whole)
        found = np.full(extents(wide), -1, np.int64)
        found[within(inside, wide)] = self._mesh.numbers(inside)
        return found
