"""What a local product is."""

from __future__ import annotations

from typing import Any, Protocol

from numpy.typing import NDArray


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

