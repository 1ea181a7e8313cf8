"""Sums of element matrices: rows of nodes, complete where their owners have all shares.

The corners of a box of elements are parts of the box of their nodes, shifted by one, and a node
has at most 27 neighbors, itself included. So the element matrices are added as whole arrays, and
rows of nodes that other ranks own are sent to them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray
from scipy import sparse

from onesided.apps.minife.bisection import Box
from onesided.apps.minife.hexahedron import CORNERS
from onesided.apps.minife.mesh import Mesh
from onesided.collectives import agreed
from onesided.sparse.partition import index_dtype
from onesided.sparse.triplets import Triplets, sent_to

Values = NDArray[np.float64]

_NEIGHBORS = np.indices((3, 3, 3)).reshape(3, 27).T - 1  # steps from a node, the last axis fastest
_ROWS_AT_ONCE = 1 << 15


class Sums:
    """Local. Rows of all nodes of a rank's elements, as entries for the 27 neighbors of each."""

    def __init__(self, mesh: Mesh, rank: int) -> None:
        self._mesh, self._rank = mesh, rank
        self._box = mesh.corners(rank)
        self._entries = np.zeros((*self._box.extent, len(_NEIGHBORS)))
        self._loads = np.zeros(self._box.extent)

    def add(self, box: Box, matrices: Values, loads: Values) -> None:
        """Local. What a box of elements adds."""
        for row, corner in enumerate(CORNERS):
            starts = [s - o + c for s, o, c in zip(box.start, self._box.start, corner, strict=True)]
            place = tuple(slice(s, s + n) for s, n in zip(starts, box.extent, strict=True))
            self._loads[place] += loads[row].reshape(box.extent)
            entries = self._entries[place]
            for column, other in enumerate(CORNERS):
                step = int((other - corner + 1) @ (9, 3, 1))
                entries[..., step] += matrices[row, column].reshape(box.extent)

    def collected(self, comm: MPI.Intracomm) -> tuple[sparse.csr_array, Values]:
        """Collective. Complete rows and loads of the own nodes."""
        mesh, rank = self._mesh, self._rank
        first, last = mesh.partition.range(rank)
        with agreed(comm):
            numbers = mesh.numbers(self._box).reshape(-1)
            own = (numbers >= first) & (numbers < last)
            rows = self._rows(numbers, np.flatnonzero(own))
            others = self._triplets(numbers, np.flatnonzero(~own))
            foreign = numbers[~own]
            shares = self._loads.reshape(-1)[~own]
            side = self._loads.reshape(-1)[own]
        owners = mesh.partition.owners
        came = Triplets(
            *sent_to(comm, owners(others.rows), [others.rows, others.cols, others.values])
        )
        places, values = sent_to(comm, owners(foreign), [foreign, shares])
        with agreed(comm):
            rows = added(rows, came, first)
            np.add.at(side, places - first, values)
        return rows, side

    def _entries_of(
        self, numbers: NDArray[np.int64], which: NDArray[np.intp], kind: type[np.integer[Any]]
    ) -> tuple[NDArray[np.int64], NDArray[Any], Values]:
        """Local. How many entries some rows have, their columns of that type, and their values."""
        pieces = [
            self._piece(numbers, which[first : first + _ROWS_AT_ONCE], kind)
            for first in range(0, max(len(which), 1), _ROWS_AT_ONCE)
        ]
        counts, columns, values = (np.concatenate(part) for part in zip(*pieces, strict=True))
        return counts, columns, values

    def _piece(
        self, numbers: NDArray[np.int64], which: NDArray[np.intp], kind: type[np.integer[Any]]
    ) -> tuple[NDArray[np.int64], NDArray[Any], Values]:
        shape = self._box.extent
        place = np.unravel_index(which, shape)
        inside = np.ones((len(which), len(_NEIGHBORS)), np.bool_)
        for position, step, length in zip(place, _NEIGHBORS.T, shape, strict=True):
            moved = position[:, None] + step
            inside &= (moved >= 0) & (moved < length)
        _, lines, points = shape
        columns = (which[:, None] + _NEIGHBORS @ (lines * points, points, 1))[inside]
        values = self._entries.reshape(-1, len(_NEIGHBORS))[which][inside]
        return inside.sum(axis=1), numbers[columns].astype(kind), values

    def _rows(self, numbers: NDArray[np.int64], which: NDArray[np.intp]) -> sparse.csr_array:
        """Local. Rows of own nodes, in the order of their numbers, their columns ascending."""
        kind = index_dtype(len(_NEIGHBORS) * self._mesh.nodes)
        counts, columns, values = self._entries_of(numbers, which, kind)
        pointers = np.concatenate([np.zeros(1, kind), np.cumsum(counts, dtype=kind)])
        shape = (len(which), self._mesh.nodes)
        rows = sparse.csr_array((values, columns, pointers), shape=shape)
        rows.sort_indices()
        return rows

    def _triplets(self, numbers: NDArray[np.int64], which: NDArray[np.intp]) -> Triplets:
        """Local. Entries of nodes that others own."""
        counts, columns, values = self._entries_of(numbers, which, np.int64)
        return Triplets(np.repeat(numbers[which], counts), columns, values)


def added(rows: sparse.csr_array, more: Triplets, first: int) -> sparse.csr_array:
    """Local. Rows with further entries; ``first`` is the number of the first row.

    Zeros stay stored, so that all meshes have the same entries however they are cut; SciPy's sum
    of two matrices would leave them out.
    """
    if not len(more.values):
        return rows
    places = more.rows - first
    touched = np.unique(places)
    part = _summed(rows[touched], np.searchsorted(touched, places), more)
    stays = np.ones(rows.shape[0], np.bool_)
    stays[touched] = False
    before = np.diff(rows.indptr)
    counts = before.copy()
    counts[touched] = np.diff(part.indptr)
    kind = rows.indices.dtype
    pointers = np.concatenate([np.zeros(1, kind), np.cumsum(counts, dtype=kind)])
    old, kept = np.repeat(stays, before), np.repeat(stays, counts)
    columns, values = np.empty(len(kept), kind), np.empty(len(kept))
    columns[kept], values[kept] = rows.indices[old], rows.data[old]
    columns[~kept], values[~kept] = part.indices, part.data
    return sparse.csr_array((values, columns, pointers), shape=rows.shape)


def _summed(rows: sparse.csr_array, places: NDArray[np.intp], more: Triplets) -> sparse.csr_array:
    """Local. Few rows with further entries; ``places`` are the rows of those."""
    old = rows.tocoo()
    lines, columns = np.concatenate([old.row, places]), np.concatenate([old.col, more.cols])
    values = np.concatenate([old.data, more.values])
    return sparse.coo_array((values, (lines, columns)), shape=rows.shape).tocsr()
