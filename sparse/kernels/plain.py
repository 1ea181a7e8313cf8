"""SciPy's product with rows as they are."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from onesided.sparse.kernels.scipy_calls import Csr, add_product

#: Rows that are set to zero, and then added to, while they are in the cache.
ROWS_AT_ONCE = 1 << 15


class PlainKernel:
    """Local. y = A x. Shares the memory of the rows."""

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
