"""Two ways to multiply the rows of one rank: all at once after the halo, or the rows' own columns
while the halo is under way. Both use SciPy's CSR kernel, which adds to its result, in place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from onesided.sparse.halo import Halo

try:
    from scipy.sparse._sparsetools import csr_matvec
except ImportError:  # the kernel is not public: without it a product allocates its result

    def csr_matvec(  # type: ignore[misc]
        n_row: int, n_col: int, /, *arrays: NDArray[Any]
    ) -> None:
        """y += A x by SciPy's public product; ``arrays``: indptr, indices, data, x, y."""
        indptr, indices, data, x, y = arrays
        y += sparse.csr_array((data, indices, indptr), shape=(n_row, n_col)) @ x


@dataclass(frozen=True, eq=False)
class LocalRows:
    """CSR of the rows of one rank over the local columns [owned | ghost]."""

    indptr: NDArray[Any]
    indices: NDArray[Any]
    data: NDArray[Any]
    n_own: int
    n_local: int

    def __len__(self) -> int:
        return len(self.indptr) - 1


class Product(Protocol):
    """y = A x for the rows of this rank."""

    def __call__(self, halo: Halo, x: NDArray[Any], y: NDArray[Any]) -> None:
        """Multiply; x and y are contiguous, of the halo's dtype, and do not overlap."""


class FusedProduct:
    """One product over [owned | ghost], once the ghosts have come. Shares the rows' memory."""

    def __init__(self, rows: LocalRows) -> None:
        self._size = len(rows), rows.n_local
        self._csr = rows.indptr, rows.indices, rows.data

    def __call__(self, halo: Halo, x: NDArray[Any], y: NDArray[Any]) -> None:
        halo.start(x)
        y.fill(0)
        local = halo.finish()
        local[: halo.n_own] = x
        csr_matvec(*self._size, *self._csr, local, y)


class SplitProduct:
    """Own columns while the halo is under way, then the rows that have ghosts. Copies the rows."""

    def __init__(self, rows: LocalRows) -> None:
        ghost = rows.indices >= rows.n_own
        before = np.concatenate([[0], np.cumsum(ghost)])[rows.indptr]
        counts = np.diff(before)
        self._rows = np.flatnonzero(counts)
        ghost_indptr = np.append(before[self._rows], before[-1])
        own_indptr = rows.indptr - before
        own = ~ghost
        index = rows.indices.dtype
        self._own_size = len(rows), rows.n_own
        self._own = own_indptr.astype(index), rows.indices[own], rows.data[own]
        self._ghost_size = len(self._rows), rows.n_local - rows.n_own
        self._ghost = (
            ghost_indptr.astype(index),
            rows.indices[ghost] - index.type(rows.n_own),
            rows.data[ghost],
        )
        self._partial = np.zeros(len(self._rows), rows.data.dtype)

    def __call__(self, halo: Halo, x: NDArray[Any], y: NDArray[Any]) -> None:
        halo.start(x)
        y.fill(0)
        csr_matvec(*self._own_size, *self._own, x, y)
        partial = self._partial
        partial.fill(0)
        local = halo.finish()
        csr_matvec(*self._ghost_size, *self._ghost, local[halo.n_own :], partial)
        y[self._rows] += partial


PRODUCTS: dict[str, type[FusedProduct] | type[SplitProduct]] = {
    "fused": FusedProduct,
    "split": SplitProduct,
}
