"""Rows sorted by their length, so that a processor foresees where each of them ends.

The rows of a graph have few entries, and each another number: with the usual order it is the
mispredicted ends of rows that take the time. The order of the entries of a row stays, so the
results have the bits that they have without sorting, with the same kernel.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.sparse.kernels.protocol import Kernel, MakeKernel
from onesided.sparse.kernels.scipy_calls import Csr

#: Rows that change places with each other: what is written to is near, and in the cache.
WINDOW = 1 << 14


#: Rows are worth sorting where they have fewer entries, and as many of them differ from the last.
SHORT, CHANGES = 64, 0.15


def irregular(csr: Csr) -> bool:
    """Local. Whether ends of rows are hard to foresee: many short ones of changing length."""
    lengths = np.diff(csr.indptr)
    if not len(lengths) or len(csr.data) > SHORT * len(lengths):
        return False
    return bool(np.count_nonzero(np.diff(lengths)) > CHANGES * len(lengths))


class SortedRows:
    """Local. y = A x by another kernel. Copies the rows."""

    def __init__(self, csr: Csr, make: MakeKernel) -> None:
        lengths = np.diff(csr.indptr)
        windows = np.arange(len(csr)) // WINDOW
        order = np.lexsort((lengths, windows))
        self._place = np.empty(len(csr), np.intp)
        self._place[order] = np.arange(len(csr))
        self._inner: Kernel = make(permuted(csr, order, lengths))
        self._results: dict[tuple[int, ...], NDArray[Any]] = {}
        self._dtype = csr.data.dtype

    def __call__(self, x: NDArray[Any], y: NDArray[Any]) -> None:
        """Local. Both are contiguous and of the rows' dtype, (n,) or (n, k)."""
        if y.shape not in self._results:
            self._results[y.shape] = np.empty(y.shape, self._dtype)
        result = self._results[y.shape]
        self._inner(x, result)
        np.take(result, self._place, axis=0, out=y, mode="clip")


def permuted(csr: Csr, order: NDArray[np.intp], lengths: NDArray[Any]) -> Csr:
    """Local. The rows in another order, in memory of their own."""
    moved = lengths[order]
    indptr = np.zeros_like(csr.indptr, shape=len(csr) + 1)
    np.cumsum(moved, out=indptr[1:])
    places = np.arange(int(indptr[-1]), dtype=csr.indptr.dtype)
    places += np.repeat(csr.indptr[:-1][order] - indptr[:-1], moved)
    return Csr(csr.n_cols, indptr, csr.indices[places], csr.data[places])
