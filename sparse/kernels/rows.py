"""The rows of one rank, and SciPy's kernels, which add to their result in place.

They are for vectors and for blocks; not public in SciPy, but older than its public arrays.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse._sparsetools import csc_matvec, csc_matvecs, csr_matvec, csr_matvecs

from onesided.sparse.partition import Integers, index_dtype

#: Rows that are set to zero, and then added to, while they are in the cache.
ROWS_AT_ONCE = 1 << 15

_Arrays = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Csr:
    """A matrix of one rank in compressed rows. ``indices`` and ``indptr`` have one dtype.

    ``indptr`` may be a part of that of a larger matrix, whose ``indices`` and ``data`` these are.
    Columns are [owned | ghost], the first ``n_own`` of them owned.
    """

    n_cols: int
    n_own: int
    indptr: NDArray[Any]
    indices: NDArray[Any]
    data: NDArray[Any]

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.indptr) - 1

    def part(self, start: int, stop: int) -> Csr:
        """Local. Some of the rows, in the same memory."""
        return replace(self, indptr=self.indptr[start : stop + 1])

    def row_of_each(self) -> NDArray[np.intp]:
        """Local. The row of each entry."""
        return np.repeat(np.arange(len(self)), np.diff(self.indptr))


def add_product(csr: Csr, x: NDArray[Any], y: NDArray[Any]) -> None:
    """Local. y += A x; x and y are contiguous, (n,) or (n, k). Nothing is allocated but views."""
    size, arrays = (len(csr), csr.n_cols), (csr.indptr, csr.indices, csr.data)
    if x.ndim == 1:
        csr_matvec(*size, *arrays, x, y)
    else:
        csr_matvecs(*size, x.shape[1], *arrays, x.reshape(-1), y.reshape(-1))


class PlainKernel:
    """Local. y = A x by SciPy, for x [owned | ghost]. Shares the memory of the rows."""

    def __init__(self, csr: Csr) -> None:
        self._parts = [
            (slice(start, start + ROWS_AT_ONCE), csr.part(start, start + ROWS_AT_ONCE))
            for start in range(0, len(csr), ROWS_AT_ONCE)
        ]

    def __call__(self, x: NDArray[Any], y: NDArray[Any]) -> None:
        """Local. Both are contiguous and of the rows' dtype, (n,) or (n, k)."""
        for rows, part in self._parts:
            block = y[rows]
            block.fill(0)
            add_product(part, x, block)


class IndexedSum:
    """``y[index] += values`` without a temporary; a repeated index adds up, in the order given.

    Complex numbers are added as pairs of real ones, so that infinities stay where they are.
    """

    def __init__(self, index: Integers, n_rows: int, dtype: np.dtype[Any]) -> None:
        """Local. Values of ``dtype``, one or a row of k per entry of ``index``, go to n_rows."""
        kind = index_dtype(max(len(index), n_rows))
        self._size = n_rows, len(index)
        self._real = np.empty(0, dtype).real.dtype
        self._pairs = dtype.kind == "c"
        ones = np.ones(len(index), self._real)
        self._csc: _Arrays = np.arange(len(index) + 1, dtype=kind), np.asarray(index, kind), ones

    def __call__(self, values: NDArray[Any], y: NDArray[Any]) -> None:
        """Local. Add; both are contiguous, ``y`` has n_rows rows."""
        k = values.shape[1] if values.ndim == 2 else 1
        if self._pairs:
            k *= 2
            values, y = values.reshape(-1).view(self._real), y.reshape(-1).view(self._real)
        if k == 1:
            csc_matvec(*self._size, *self._csc, values.reshape(-1), y.reshape(-1))
        else:
            csc_matvecs(*self._size, k, *self._csc, values.reshape(-1), y.reshape(-1))
