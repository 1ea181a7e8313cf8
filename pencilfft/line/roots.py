"""Roots of unity, right to the last bit or two whatever the exponent. Pure."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Elements of a table that are worked on at a time.
_PIECE = 1 << 16

#: exp(-2j pi q / 4) for q = 0 to 3.
_QUARTERS = np.array([1, -1j, -1, 1j])


def roots(exponents: NDArray[np.int64], order: int) -> NDArray[np.complex128]:
    """Local. ``exp(-2j pi e / order)`` for every integer e in ``exponents``.

    The angle is reduced to an eighth of the circle by integer arithmetic, so its rounding error
    does not grow with e.
    """
    reduced = exponents % order
    quarters = (4 * reduced + order // 2) // order
    angles = (4 * reduced - quarters * order) * (np.pi / 2 / order)
    small = np.cos(angles) - 1j * np.sin(angles)
    result: NDArray[np.complex128] = small * _QUARTERS[quarters % 4]
    return result


def twiddles(rows: range, columns: range, order: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Local. The matrix ``exp(-2j pi r c / order)``; r c must not exceed 2**61."""
    table = np.empty((len(rows), len(columns)), dtype)
    second = np.arange(columns.start, columns.stop, dtype=np.int64)
    step = max(1, _PIECE // max(1, len(columns)))
    for first in range(0, len(rows), step):
        part = np.array(rows[first : first + step], np.int64)
        table[first : first + step] = roots(part[:, None] * second, order)
    return table


def chirp(indices: NDArray[np.int64], length: int) -> NDArray[np.complex128]:
    """Local. ``exp(-1j pi m**2 / length)`` for every integer m in ``indices``.

    Absolute values of m must stay below 3e9, where their squares fit 64 bits.
    """
    return roots(indices * indices, 2 * length)
