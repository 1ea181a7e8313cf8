"""Boundary conditions: rows, and columns, of a matrix made those of a multiple of the identity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.sparse.kernels.rows import Csr


@dataclass(frozen=True, eq=False)
class Marked:
    """The entries of one rank by their places. ``rows``: which of its rows are marked, ``columns``:
    which of its columns [owned | ghost]."""

    csr: Csr
    rows: NDArray[np.bool_]
    columns: NDArray[np.bool_]

    def row_of_each(self) -> NDArray[np.intp]:
        """Local. The row of each entry."""
        return np.repeat(np.arange(len(self.csr)), np.diff(self.csr.indptr))

    def without(self, diagonal: Any, columns: bool) -> NDArray[Any]:
        """Local. The values with marked rows zero, marked columns too if wanted, and ``diagonal``
        where the two meet."""
        row = self.row_of_each()
        gone = self.rows[row]
        if columns:
            gone |= self.columns[self.csr.indices]
        values = np.where(gone, 0, self.csr.data).astype(self.csr.data.dtype)
        values[self.rows[row] & (self.csr.indices == row)] = diagonal
        return values

    def lifted(self, x: NDArray[Any]) -> NDArray[Any]:
        """Local. What marked columns times x, [owned | ghost], add to the rows that are not."""
        row = self.row_of_each()
        there = self.columns[self.csr.indices] & ~self.rows[row]
        found = np.zeros(len(self.csr), np.result_type(self.csr.data, x))
        np.add.at(found, row[there], self.csr.data[there] * x[self.csr.indices[there]])
        return found


def diagonal_places(csr: Csr, first: int, wanted: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Local. Where the diagonal entries of the wanted rows are stored, in the order of the rows.

    ``ValueError`` for a row without a place; ``first`` is the number of the first row.
    """
    row = np.repeat(np.arange(len(csr)), np.diff(csr.indptr))
    found = np.flatnonzero((csr.indices == row) & wanted[row])
    missing = np.setdiff1d(np.flatnonzero(wanted), row[found])
    if len(missing):
        raise ValueError(
            f"row {first + int(missing[0])} has no place on the diagonal; A.shifted(0) has them all"
        )
    return found
