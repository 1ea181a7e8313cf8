"""Two ways to multiply the rows of one rank: all at once after the halo, or the rows that need no
ghosts while the halo is under way. Both take vectors and blocks of k of them.
"""

from __future__ import annotations

from typing import Any, Protocol

from numpy.typing import NDArray

from onesided.sparse.halo import Ghosts
from onesided.sparse.kernels.protocol import Kernel, SplitKernel


class Product(Protocol):
    """y = A x for the rows of this rank."""

    def __call__(self, halo: Ghosts, x: NDArray[Any], y: NDArray[Any]) -> None:
        """Multiply; x and y are contiguous, as the halo's dtype and k say, and do not overlap."""


class FusedProduct:
    """One product over [owned | ghost], once the ghosts have come.

    x is copied beside the ghosts while they are coming.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def __call__(self, halo: Ghosts, x: NDArray[Any], y: NDArray[Any]) -> None:
        halo.start(x)
        halo.fill(x)
        self._kernel(halo.finish(), y)


class SplitProduct:
    """The interior rows while the halo is under way, then the boundary rows. x is not copied."""

    def __init__(self, kernel: SplitKernel) -> None:
        self._interior, self._boundary = kernel.interior, kernel.boundary

    def __call__(self, halo: Ghosts, x: NDArray[Any], y: NDArray[Any]) -> None:
        halo.start(x)
        self._interior(x, y)
        self._boundary(x, halo.finish()[halo.n_own :], y)
