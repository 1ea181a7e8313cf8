"""Steady temperatures in the unit cube that are known: -laplace(u) = f, u given on its surface."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Field = Callable[[Values, Values, Values], Values]

_PHASE = 0.3
_MODES = range(1, 40, 2)  # of the hot wall's series; the others are below rounding where x <= 1/2
_HALF = 0.5


@dataclass(frozen=True)
class Problem:
    """Functions of coordinates x, y, z, arrays of one shape.

    ``judged`` tells where the solution is compared with the known one. ``bound``: the largest
    error there, relative to the largest value, on a mesh of spacing h is this times the square
    of h; a few times what is seen.
    """

    name: str
    summary: str
    solution: Field
    source: Field
    boundary: Field
    judged: Callable[[Values], NDArray[np.bool_]]
    bound: float


def _smooth(x: Values, y: Values, z: Values) -> Values:
    values: Values = np.sin(np.pi * x + _PHASE) * np.cos(np.pi * y) * np.exp(z)
    return values


def _smooth_source(x: Values, y: Values, z: Values) -> Values:
    return (2.0 * np.pi**2 - 1.0) * _smooth(x, y, z)


def _hot_wall(x: Values, y: Values, z: Values) -> Values:
    """The double sine series; each mode falls like exp(-a (1 - x)) from the wall."""
    total = np.zeros_like(x)
    sines_y = {mode: np.sin(mode * np.pi * y) for mode in _MODES}
    sines_z = {mode: np.sin(mode * np.pi * z) for mode in _MODES}
    for p in _MODES:
        for q in _MODES:
            a = np.pi * np.hypot(p, q)
            if a * _HALF > 40.0:  # exp(-40) is below rounding
                continue
            fall = np.exp(a * (x - 1.0)) * np.expm1(-2.0 * a * x) / np.expm1(-2.0 * a)
            total += 16.0 / (np.pi**2 * p * q) * sines_y[p] * sines_z[q] * fall
    return total


def _none(x: Values, y: Values, z: Values) -> Values:
    return np.zeros_like(x)


def _wall(x: Values, y: Values, z: Values) -> Values:
    """1 on the wall; at its edges, which it shares with cold walls, the mean of both.

    With 0 or 1 there the error inside is about three times as large.
    """
    edges = (y % 1.0 == 0.0).astype(float) + (z % 1.0 == 0.0)
    values: Values = np.where(x == 1.0, _HALF**edges, 0.0)
    return values


def _everywhere(x: Values) -> NDArray[np.bool_]:
    return np.ones(x.shape, np.bool_)


def _cold_half(x: Values) -> NDArray[np.bool_]:
    return x <= _HALF


PROBLEMS = {
    problem.name: problem
    for problem in (
        Problem(
            "smooth",
            "u = sin(pi x + 0.3) cos(pi y) exp(z)",
            _smooth,
            _smooth_source,
            _smooth,
            _everywhere,
            1.5,
        ),
        Problem(
            "hot-wall",
            "temperature 1 at x = 1, 0 at the other walls, no source; compared where x <= 1/2",
            _hot_wall,
            _none,
            _wall,
            _cold_half,
            5.0,
        ),
    )
}
