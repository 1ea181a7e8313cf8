"""Two ways to multiply the rows of one rank: all at once after the halo, or the rows that need no
ghosts while the halo is under way. Both take vectors and blocks of k of them.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from onesided.sparse.halo import Ghosts
from onesided.sparse.kernels.rows import Csr


class Kernel(Protocol):
    """y = A x with rows that were given before; they do not change as long as it lives."""

    def __call__(self, x: NDArray[Any], y: NDArray[Any], /) -> None:
        """Local. Both are contiguous, of the rows' dtype, (n,) or (n, k), and do not overlap.

        x is [owned | ghost].
        """


class SplitKernel(Kernel, Protocol):
    """One that can tell the rows that need no ghosts from the others."""

    def interior(self, x: NDArray[Any], y: NDArray[Any], /) -> None:
        """Local. The rows of y that need none; x is what is owned."""

    def boundary(self, x: NDArray[Any], ghosts: NDArray[Any], y: NDArray[Any], /) -> None:
        """Local. The others."""


class Product(Protocol):
    """y = A x for the rows of this rank."""

    def __call__(self, halo: Ghosts, x: NDArray[Any], y: NDArray[Any]) -> None:
        """Multiply; x and y are contiguous, as the halo's dtype and k say, and do not overlap."""


class FusedProduct:
    """One product over [owned | ghost], once the ghosts have come.

    x is copied to such a vector, which is kept for each k, while they are coming; then they are.
    """

    def __init__(self, kernel: Kernel, rows: Csr) -> None:
        self._kernel, self._rows = kernel, rows
        self._local: dict[tuple[int, ...], NDArray[Any]] = {}

    def __call__(self, halo: Ghosts, x: NDArray[Any], y: NDArray[Any]) -> None:
        halo.start(x)
        shape, n_own = (self._rows.n_cols, *x.shape[1:]), self._rows.n_own
        if shape not in self._local:
            self._local[shape] = np.empty(shape, self._rows.data.dtype)
        local = self._local[shape]
        local[:n_own] = x
        local[n_own:] = halo.finish()
        self._kernel(local, y)


class SplitProduct:
    """The interior rows while the halo is under way, then the boundary rows. x is not copied."""

    def __init__(self, kernel: SplitKernel, rows: Csr) -> None:
        self._interior, self._boundary = kernel.interior, kernel.boundary

    def __call__(self, halo: Ghosts, x: NDArray[Any], y: NDArray[Any]) -> None:
        halo.start(x)
        self._interior(x, y)
        self._boundary(x, halo.finish(), y)
