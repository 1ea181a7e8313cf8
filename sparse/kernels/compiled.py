"""The compiled products (``sparse/core/``): rows as they are, or in slices.

Both multiply the rows that need no ghosts, and the others, one after the other, with x and the
ghosts wherever they lie.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onesided.collectives.program import COMPILED
from onesided.sparse.kernels.rows import Csr

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


def compiled() -> bool:
    """Local. Whether the compiled products are there, and wanted."""
    return _product is not None and COMPILED


def address_of(work: str) -> int:
    """Local. Of a C function that is a step of a script, by its name."""
    return _product.ADDRESSES[work]


def rows_as_they_are(csr: Csr) -> CompiledProduct:
    """Local. Shares the memory of the rows."""
    return _made(csr, False)


def in_slices(csr: Csr) -> CompiledProduct:
    """Local. Rows of like lengths, 8 at a time, entry beside entry (SELL-C-sigma). Copies them.

    Those that are not :func:`sliceable` stay as they are.
    """
    return _made(csr, sliceable(csr))


def sliceable(csr: Csr) -> bool:
    """Local. Whether slices can hold the rows: real ones, with numbers of 31 bits."""
    return csr.data.dtype.char in REAL and max(csr.n_cols, len(csr)) <= np.iinfo(np.int32).max


def _made(csr: Csr, sliced: bool) -> CompiledProduct:
    kind, ghosts = LETTERS.index(csr.data.dtype.char), csr.n_cols - csr.n_own
    arrays = csr.indptr, csr.indices, csr.data
    return _product.Product(kind, csr.n_own, ghosts, sliced, UNITS, *arrays)
