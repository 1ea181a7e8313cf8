"""The rows of one rank, and what multiplies them, vectors and blocks: the compiled products
(``sparse/core/``), and SciPy's kernels, which add to their result in place.

The compiled ones multiply the rows that need no ghosts, and the others, one after the other, with x
and the ghosts wherever they lie. SciPy's are not public there, but older than its public arrays.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse._sparsetools import csc_matvec, csc_matvecs, csr_matvec, csr_matvecs

from onesided.collectives.program import COMPILED
from onesided.sparse.partition import Integers, index_dtype

if TYPE_CHECKING:
    from onesided.sparse._product import Product as CompiledProduct

try:
    from onesided.sparse import _product
except ImportError:  # no compiler was present
    _product = None  # type: ignore[assignment]

#: The dtypes by the numbers that they have in C; slices are for the real ones.
LETTERS, REAL = "fdFD", "fd"

#: Vector units that slices may use: 0 none, 1 up to AVX2, 2 up to AVX-512; as the processor has.
UNITS = 2
#: Whether these load elements one by one, instead of gathering them; -1: where that is faster.
LOADS = -1

#: Rows that are set to zero, and then added to, while they are in the cache.
ROWS_AT_ONCE = 1 << 15

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

    def as_scipy(self) -> sparse.csr_array:
        """Local. The rows with their local columns, in the same memory; values cannot be written,
        as only some of what multiplies by them would see it."""
        data = self.data.view()
        data.flags.writeable = False
        parts = data, self.indices, self.indptr
        return sparse.csr_array(parts, shape=(len(self), self.n_cols))

    def row_of_each(self) -> NDArray[np.intp]:
        """Local. The row of each entry."""
        return np.repeat(np.arange(len(self)), np.diff(self.indptr))


def compiled() -> bool:
    """Local. Whether the compiled products are there, and wanted."""
    return _product is not None and COMPILED


def address_of(work: str) -> int:
    """Local. Of a C function that is a step of a script, by its name."""
    return _product.ADDRESSES[work]


def rows_as_they_are(csr: Csr, sliced: bool = False) -> CompiledProduct:
    """Local. Shares the memory of the rows, unless they are sliced."""
    kind, ghosts = LETTERS.index(csr.data.dtype.char), csr.n_cols - csr.n_own
    arrays = csr.indptr, csr.indices, csr.data
    return _product.Product(kind, csr.n_own, ghosts, sliced, UNITS, LOADS, *arrays)


def in_slices(csr: Csr) -> CompiledProduct:
    """Local. Rows of like lengths, 8 at a time, entry beside entry (SELL-C-sigma). Copies them.

    Those that are complex, or too many for numbers of 31 bits, stay as they are.
    """
    few = max(csr.n_cols, len(csr)) <= np.iinfo(np.int32).max
    return rows_as_they_are(csr, csr.data.dtype.char in REAL and few)


def add_product(csr: Csr, x: NDArray[Any], y: NDArray[Any]) -> None:
    """Local. y += A x; x and y are contiguous, (n,) or (n, k). Nothing is allocated but views."""
    size, arrays = (len(csr), csr.n_cols), (csr.indptr, csr.indices, csr.data)
    if x.ndim == 1:
        csr_matvec(*size, *arrays, x, y)
    else:
        csr_matvecs(*size, x.shape[1], *arrays, x.reshape(-1), y.reshape(-1))


class PlainKernel:
    """Local. y = A x by SciPy, for x [owned | ghost]. Shares the memory of the rows."""

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
