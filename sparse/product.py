"""Two ways to multiply the rows of one rank: all at once after the halo, or the rows' own columns
while the halo is under way. Both take vectors and blocks of k of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from onesided.sparse.halo import Halo
from onesided.sparse.kernels import IndexedSum, add_product


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
        """Multiply; x and y are contiguous, as the halo's dtype and k say, and do not overlap."""


class FusedProduct:
    """One product over [owned | ghost], once the ghosts have come. Shares the rows' memory.

    x is copied beside the ghosts while they are coming.
    """

    def __init__(self, rows: LocalRows) -> None:
        self._size = len(rows), rows.n_local
        self._csr = rows.indptr, rows.indices, rows.data

    def __call__(self, halo: Halo, x: NDArray[Any], y: NDArray[Any]) -> None:
        halo.start(x)
        halo.fill(x)
        y.fill(0)
        add_product(self._size, self._csr, halo.finish(), y)


class SplitProduct:
    """Own columns while the halo is under way, then the rows that have ghosts. Copies the rows."""

    def __init__(self, rows: LocalRows) -> None:
        ghost = rows.indices >= rows.n_own
        before = np.concatenate([[0], np.cumsum(ghost)])[rows.indptr]
        counts = np.diff(before)
        index = np.flatnonzero(counts)
        ghost_indptr = np.append(before[index], before[-1])
        own_indptr = rows.indptr - before
        own = ~ghost
        kind = rows.indices.dtype
        self._own_size = len(rows), rows.n_own
        self._own = own_indptr.astype(kind), rows.indices[own], rows.data[own]
        self._ghost_size = len(index), rows.n_local - rows.n_own
        self._ghost = (
            ghost_indptr.astype(kind),
            rows.indices[ghost] - kind.type(rows.n_own),
            rows.data[ghost],
        )
        self._add = IndexedSum(index, len(rows), rows.data.dtype)
        self._partials: dict[int, NDArray[Any]] = {}

    def __call__(self, halo: Halo, x: NDArray[Any], y: NDArray[Any]) -> None:
        halo.start(x)
        y.fill(0)
        add_product(self._own_size, self._own, x, y)
        partial = self._partial(halo.k, y)
        partial.fill(0)
        local = halo.finish()
        add_product(self._ghost_size, self._ghost, local[halo.n_own :], partial)
        self._add(partial, y)

    def _partial(self, k: int, y: NDArray[Any]) -> NDArray[Any]:
        """What the ghosts add to the rows that have some; allocated once for every k."""
        if k not in self._partials:
            self._partials[k] = np.empty((self._ghost_size[0], *y.shape[1:]), y.dtype)
        return self._partials[k]


PRODUCTS: dict[str, type[FusedProduct] | type[SplitProduct]] = {
    "fused": FusedProduct,
    "split": SplitProduct,
}
