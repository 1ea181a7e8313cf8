"""Matrices of regular grids, each rank its own rows only."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from onesided.sparse.partition import index_dtype

_ROWS_AT_ONCE = 1 << 16
_CUBE = np.indices((3, 3, 3)).reshape(3, 27) - 1  # steps to a point and its neighbors
_CROSS = _CUBE[:, np.abs(_CUBE).sum(axis=0) <= 1]


def stencil27(n: int | Sequence[int], rows: tuple[int, int] | None = None) -> sparse.csr_array:
    """Local. Rows ``rows`` (half-open, default all) of the 27-point matrix of an n x n x n grid.

    26 on the diagonal and -1 for each of up to 26 neighbors of a grid point; the last grid axis
    varies fastest. ``n`` may also be the three extents of the grid. Columns are global: the shape
    is ``(rows[1] - rows[0], n**3)``. ``ValueError`` for rows or extents that there are not.

    Examples
    --------
    >>> stencil27(3, rows=(0, 9)).shape
    (9, 27)
    """
    return _stencil(n, rows, _CUBE)


def stencil7(n: int | Sequence[int], rows: tuple[int, int] | None = None) -> sparse.csr_array:
    """Local. Rows of the 7-point matrix of an n x n x n grid: 6 on the diagonal, -1 for each
    neighbor along an axis; otherwise as :func:`stencil27`.

    Examples
    --------
    >>> stencil7(3).shape, int(stencil7(3).diagonal()[0])
    ((27, 27), 6)
    """
    return _stencil(n, rows, _CROSS)


def _stencil(
    n: int | Sequence[int], rows: tuple[int, int] | None, steps: NDArray[np.int64]
) -> sparse.csr_array:
    shape = (index(n),) * 3 if isinstance(n, int | np.integer) else tuple(map(index, n))
    words = f"{n}**3" if isinstance(n, int | np.integer) else " x ".join(map(str, shape))
    size = prod(shape)
    start, stop = (0, size) if rows is None else rows
    if len(shape) != 3 or min(shape) < 1 or not 0 <= start <= stop <= size:
        raise ValueError(f"rows {start} to {stop} of a grid with {words} points")
    dtype = index_dtype(steps.shape[1] * size)
    pieces = [(np.zeros(0, dtype), np.zeros(0, dtype))]
    for first in range(start, stop, _ROWS_AT_ONCE):
        pieces.append(_rows(shape, first, min(first + _ROWS_AT_ONCE, stop), steps, dtype))
    counts, indices = (np.concatenate(each) for each in zip(*pieces, strict=True))
    diagonal = np.repeat(np.arange(start, stop, dtype=dtype), counts)
    data = np.where(indices == diagonal, steps.shape[1] - 1.0, -1.0)
    indptr = np.concatenate([np.zeros(1, dtype), np.cumsum(counts, dtype=dtype)])
    return sparse.csr_array((data, indices, indptr), shape=(stop - start, size))


def _rows(
    shape: Sequence[int], start: int, stop: int, steps: NDArray[np.int64], dtype: type[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """How many nonzeros each row has, and their columns in ascending order."""
    row = np.arange(start, stop, dtype=np.int64)
    point = np.unravel_index(row, tuple(shape))
    inside = np.ones((len(row), steps.shape[1]), bool)
    for position, step, extent in zip(point, steps, shape, strict=True):
        moved = position[:, None] + step
        inside &= (moved >= 0) & (moved < extent)
    columns = row[:, None] + np.array([shape[1] * shape[2], shape[2], 1]) @ steps
    return inside.sum(axis=1, dtype=dtype), columns[inside].astype(dtype)
