"""Sums of element matrices: rows of nodes, complete when the owners have what is in the ghosts.

The corners of a box of elements are parts of the box of their nodes, shifted by one, and a node
has at most 27 neighbors, itself included. So the element matrices are added as whole arrays: 27
components of a field of the grid, whose ghosts are the nodes that other ranks own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from onesided.apps.minife.hexahedron import CORNERS
from onesided.apps.minife.mesh import GHOSTS, Box, Mesh
from onesided.sparse.partition import index_dtype

Values = NDArray[np.float64]

_NEIGHBORS = np.indices((3, 3, 3)).reshape(3, 27).T - 1  # steps from a node, the last axis fastest


class Sums:
    """Local. ``fields``: for all nodes of a rank's elements, 27 entries of a row, and a load."""

    def __init__(self, mesh: Mesh, rank: int) -> None:
        self._mesh, self._own = mesh, mesh.own(rank)
        shape = [n + sum(GHOSTS) for n in self._own.extent]
        self._entries = np.zeros((len(_NEIGHBORS), *shape))
        self._loads = np.zeros(shape)
        self.fields = self._entries, self._loads

    def add(self, box: Box, matrices: Values, loads: Values) -> None:
        """Local. What a box of elements adds."""
        for row, corner in enumerate(CORNERS):
            starts = [s - o + c for s, o, c in zip(box.start, self._own.start, corner, strict=True)]
            place = tuple(slice(s, s + n) for s, n in zip(starts, box.extent, strict=True))
            self._loads[place] += loads[row].reshape(box.extent)
            for column, other in enumerate(CORNERS):
                step = int((other - corner + 1) @ (9, 3, 1))
                self._entries[step][place] += matrices[row, column].reshape(box.extent)

    def side(self) -> Values:
        """Local. The loads of the own nodes."""
        return self._loads[self._own.within(self._own)].reshape(-1)

    def rows(self) -> sparse.csr_array:
        """Local. The rows of the own nodes, their columns ascending.

        All neighbors are stored, zeros as well, so that all meshes have the same entries however
        they are cut.
        """
        own, nodes = self._own, self._mesh.nodes
        kind: type[np.integer[Any]] = index_dtype(len(_NEIGHBORS) * nodes)
        numbers = self._around().astype(kind)
        _, lines, points = own.extent
        parts = []
        for plane in range(own.extent[0]):
            columns = np.array([
                numbers[plane + 1 + x, 1 + y : 1 + y + lines, 1 + z : 1 + z + points].reshape(-1)
                for x, y, z in _NEIGHBORS.tolist()
            ]).T  # fmt: skip
            values = self._entries[:, plane, :lines, :points].reshape(len(_NEIGHBORS), -1).T
            there = columns >= 0
            parts.append((there.sum(axis=1), columns[there], values[there]))
        counts, columns, values = (np.concatenate(part) for part in zip(*parts, strict=True))
        pointers = np.concatenate([np.zeros(1, kind), np.cumsum(counts, dtype=kind)])
        found = sparse.csr_array((values, columns, pointers), shape=(own.size, nodes))
        found.sort_indices()
        return found

    def _around(self) -> NDArray[np.int64]:
        """The numbers of the own nodes and those beside them, -1 beyond the surface."""
        start, stop = ([at + step for at in ends]
                       for ends, step in ((self._own.start, -1), (self._own.stop, 1)))
        wide = Box.of(tuple(map(slice, start, stop)))
        inside = wide.common(Box((0, 0, 0), self._mesh.points))
        found = np.full(wide.extent, -1, np.int64)
        found[inside.within(wide)] = self._mesh.numbers(inside)
        return found
