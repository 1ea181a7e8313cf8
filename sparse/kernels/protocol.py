"""What a local product is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from numpy.typing import NDArray

from onesided.sparse.kernels.scipy_calls import Csr


class Kernel(Protocol):
    """y = A x with rows that were given before; they do not change as long as it lives."""

    def __call__(self, x: NDArray[Any], y: NDArray[Any]) -> None:
        """Local. Both are contiguous, of the rows' dtype, (n,) or (n, k), and do not overlap."""


MakeKernel = Callable[[Csr], Kernel]
