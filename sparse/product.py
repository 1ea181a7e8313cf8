"""Two ways to multiply the rows of one rank: all at once after the halo, or the rows' own columns
while the halo is under way. Both take vectors and blocks of k of them, and any local product.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from onesided.sparse.halo import Ghosts
from onesided.sparse.kernels.protocol import MakeKernel
from onesided.sparse.kernels.scipy_calls import Csr, IndexedSum


class Product(Protocol):
    """y = A x for the rows of this rank."""

    def __call__(self, halo: Ghosts, x: NDArray[Any], y: NDArray[Any]) -> None:
        """Multiply; x and y are contiguous, as the halo's dtype and k say, and do not overlap."""


class FusedProduct:
    """One product over [owned | ghost], once the ghosts have come.

    x is copied beside the ghosts while they are coming.
    """

    def __init__(self, rows: Csr, n_own: int, make: MakeKernel) -> None:
        self._kernel = make(rows)

    def __call__(self, halo: Ghosts, x: NDArray[Any], y: NDArray[Any]) -> None:
        halo.start(x)
        halo.fill(x)
        self._kernel(halo.finish(), y)


class SplitProduct:
    """Own columns while the halo is under way, then the rows that have ghosts. Copies the rows."""

    def __init__(self, rows: Csr, n_own: int, make: MakeKernel) -> None:
        ghost = rows.indices >= n_own
        before = np.concatenate([[0], np.cumsum(ghost)])[rows.indptr]
        index = np.flatnonzero(np.diff(before))
        kind = rows.indices.dtype
        starts = np.append(before[index], before[-1]).astype(kind)
        numbers = rows.indices[ghost] - kind.type(n_own)
        ghosts = Csr(rows.n_cols - n_own, starts, numbers, rows.data[ghost])
        own = ~ghost
        starts = (rows.indptr - before).astype(kind)
        self._own = make(Csr(n_own, starts, rows.indices[own], rows.data[own]))
        self._ghost = make(ghosts)
        self._n_rows = len(index)
        self._add = IndexedSum(index, len(rows), rows.data.dtype)
        self._partials: dict[int, NDArray[Any]] = {}

    def __call__(self, halo: Ghosts, x: NDArray[Any], y: NDArray[Any]) -> None:
        halo.start(x)
        self._own(x, y)
        local = halo.finish()
        if self._n_rows:
            partial = self._partial(halo.k, y)
            self._ghost(local[halo.n_own :], partial)
            self._add(partial, y)

    def _partial(self, k: int, y: NDArray[Any]) -> NDArray[Any]:
        """What the ghosts add to the rows that have some; allocated once for every k."""
        if k not in self._partials:
            self._partials[k] = np.empty((self._n_rows, *y.shape[1:]), y.dtype)
        return self._partials[k]


PRODUCTS: dict[str, type[FusedProduct] | type[SplitProduct]] = {
    "fused": FusedProduct,
    "split": SplitProduct,
}
