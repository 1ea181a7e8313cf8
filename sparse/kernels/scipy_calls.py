"""SciPy's CSR and CSC kernels, which add to their result in place, for vectors and for blocks.

They are not public: where this SciPy has no such names its public products serve, which allocate.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from onesided.sparse.partition import Integers, index_dtype

try:
    from scipy.sparse._sparsetools import csc_matvec, csc_matvecs, csr_matvec, csr_matvecs
except ImportError:

    def csr_matvec(n_row: int, n_col: int, /, *arrays: NDArray[Any]) -> None:  # type: ignore[misc]
        """y += A x by SciPy's public product; ``arrays``: indptr, indices, data, x, y."""
        indptr, indices, data, x, y = arrays
        y += sparse.csr_array((data, indices, indptr), shape=(n_row, n_col)) @ x

    def csr_matvecs(  # type: ignore[misc]
        n_row: int, n_col: int, k: int, /, *arrays: NDArray[Any]
    ) -> None:
        """Y += A X; ``arrays``: indptr, indices, data, and X and Y, row after row."""
        indptr, indices, data, x, y = arrays
        matrix = sparse.csr_array((data, indices, indptr), shape=(n_row, n_col))
        y += (matrix @ x.reshape(n_col, k)).reshape(-1)

    def csc_matvec(n_row: int, n_col: int, /, *arrays: NDArray[Any]) -> None:  # type: ignore[misc]
        """y += A x; ``arrays``: indptr, indices and data of A's CSC, x, y."""
        indptr, indices, data, x, y = arrays
        y += sparse.csc_array((data, indices, indptr), shape=(n_row, n_col)) @ x

    def csc_matvecs(  # type: ignore[misc]
        n_row: int, n_col: int, k: int, /, *arrays: NDArray[Any]
    ) -> None:
        """Y += A X; ``arrays``: indptr, indices, data of A's CSC, and X and Y, row after row."""
        indptr, indices, data, x, y = arrays
        matrix = sparse.csc_array((data, indices, indptr), shape=(n_row, n_col))
        y += (matrix @ x.reshape(n_col, k)).reshape(-1)


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


def add_product(csr: Csr, x: NDArray[Any], y: NDArray[Any]) -> None:
    """Local. y += A x; x and y are contiguous, (n,) or (n, k). Nothing is allocated but views."""
    size, arrays = (len(csr), csr.n_cols), (csr.indptr, csr.indices, csr.data)
    if x.ndim == 1:
        csr_matvec(*size, *arrays, x, y)
    else:
        csr_matvecs(*size, x.shape[1], *arrays, x.reshape(-1), y.reshape(-1))


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
