"""Where the points of physical space lie, and what the coefficients of a spectrum belong to. Pure.

Of a period or, of cosines and sines, an interval of length 1. Source: M. Frigo, S. G. Johnson, FFTW
manual, section 4.8, for the eight kinds of cosines and sines.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.pencilfft.stages import REAL_KINDS, AxisTransform

#: By kind where the first point lies, in distances of points, and how many of these there are
#: more than points.
_POINTS = {
    "dct1": (0.0, -1), "dct2": (0.5, 0), "dct3": (0.0, 0), "dct4": (0.5, 0),
    "dst1": (1.0, 1), "dst2": (0.5, 0), "dst3": (1.0, 0), "dst4": (0.5, 0),
}  # fmt: skip

#: The half waves in the interval of the first coefficient.
_FIRST = {
    "dct1": 0.0, "dct2": 0.0, "dct3": 0.5, "dct4": 0.5,
    "dst1": 1.0, "dst2": 1.0, "dst3": 0.5, "dst4": 0.5,
}  # fmt: skip


def points(step: AxisTransform | None, count: int) -> NDArray[Any]:
    """Local. The coordinates of ``count`` points, between 0 and 1; of no transform those of a
    period."""
    first, more = _POINTS.get("" if step is None else step.kind, (0.0, 0))
    return (np.arange(count) + first) / (count + more)


def wavenumbers(step: AxisTransform | None, count: int, length: float | None) -> NDArray[Any]:
    """Local. The waves in a period, negative ones too, or half waves in an interval, of each of
    ``count`` coefficients; 0 where nothing is transformed. Times 2 pi / length, or pi / length."""
    if step is None:
        return np.zeros(count)
    if step.kind in REAL_KINDS:
        halves: NDArray[Any] = np.arange(count) + _FIRST[step.kind]
        return halves if length is None else halves * (np.pi / length)
    found: NDArray[Any] = np.arange(count)
    if step.kind == "c2c":
        found = np.fft.ifftshift(found - count // 2)
    return found if length is None else found * (2 * np.pi / length)


def carried(step: AxisTransform | None, count: int, fraction: float) -> NDArray[Any]:
    """Local. Whether each of ``count`` coefficients is below this fraction of the highest one."""
    if step is None:
        return np.ones(count, bool)
    highest = step.length if step.kind in REAL_KINDS else step.length / 2
    kept: NDArray[Any] = np.abs(wavenumbers(step, count, None)) < fraction * highest
    return kept
