"""Straight lines through times over sizes: robust least squares, a line for every range of sizes.

What is made small is the sum of the squares of *relative* errors, since times span five decades. A
time far from its line counts less (Huber 1964: errors beyond :data:`TUNING` times their scale count
linearly), because other programs disturb a few of them. Ranges are found by trying all: a second
and a third line must earn their place (:data:`WORTH`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise

import numpy as np
from numpy.typing import NDArray

from onesided.collectives.errors import PatternError
from onesided.collectives.modelling.way import Line, Way
from onesided.collectives.models import Network

#: Errors within so many standard deviations count as in plain least squares.
TUNING = 1.345
ROUNDS = 10
#: Most lines of a way, and the fewest sizes that one needs.
MOST_LINES, FEWEST_SIZES = 3, 3
#: A line more must leave at most this share of the errors, where they are above GOOD already.
WORTH, GOOD = 0.6, 0.02

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Fit:
    """Lines with an intercept in seconds and a slope in seconds per byte; relative errors."""

    starts: tuple[float, ...]
    intercepts: tuple[float, ...]
    slopes: tuple[float, ...]
    errors: tuple[float, ...]

    @property
    def typical_error(self) -> float:
        """The median of the sizes of the relative errors."""
        return float(np.median(np.abs(self.errors)))

    def halved(self, gap: float) -> Fit:
        """Local. For one message, where the times are of two of this size, a gap apart."""
        first = tuple(max(intercept - gap, 0.0) for intercept in self.intercepts)
        return replace(self, intercepts=first, slopes=tuple(slope / 2 for slope in self.slopes))

    def way(self, overhead: float, gap: float, ends: int) -> Way:
        """Local. As LogGP: of an intercept L + e o, the overhead o is known, the rest is L."""
        lines = []
        for start, intercept, slope in zip(self.starts, self.intercepts, self.slopes, strict=True):
            own = min(overhead, intercept / ends)
            network = Network(max(intercept - ends * own, 0.0), own, gap, slope)
            lines.append(Line(start, network))
        return Way(tuple(lines), ends)


def fit(sizes: Sequence[float], times: Sequence[float]) -> Fit:
    """Local. Lines through ``times``, in seconds, over ``sizes``, in bytes, which ascend."""
    x, y = np.asarray(sizes, float), np.asarray(times, float)
    if x.shape != y.shape or x.size < FEWEST_SIZES or np.any(np.diff(x) <= 0) or np.any(y <= 0):
        raise PatternError(
            f"{x.size} sizes and {y.size} times: at least {FEWEST_SIZES} of each are needed, "
            "ascending and above zero"
        )
    best = _with_cuts(x, y, ())
    for count in range(1, MOST_LINES):
        tried = [
            _with_cuts(x, y, cuts)
            for cuts in combinations(range(FEWEST_SIZES, x.size - FEWEST_SIZES + 1), count)
            if all(b - a >= FEWEST_SIZES for a, b in pairwise(cuts))
        ]
        better = min(tried, key=_badness, default=best)
        if _badness(best) > GOOD and _badness(better) < WORTH * _badness(best):
            best = better
    return best


def _badness(found: Fit) -> float:
    return float(np.mean(np.abs(found.errors)))


def _with_cuts(x: Floats, y: Floats, cuts: tuple[int, ...]) -> Fit:
    edges = [0, *cuts, x.size]
    starts, intercepts, slopes, errors = [], [], [], []
    for first, last in pairwise(edges):
        intercept, slope = _line(x[first:last], y[first:last])
        # a range begins half way from the last size of the one before, in logarithms
        starts.append(0.0 if first == 0 else float(np.sqrt(x[first - 1] * x[first])))
        intercepts.append(intercept)
        slopes.append(slope)
        errors += ((intercept + slope * x[first:last]) / y[first:last] - 1.0).tolist()
    return Fit(tuple(starts), tuple(intercepts), tuple(slopes), tuple(errors))


def _line(x: Floats, y: Floats) -> tuple[float, float]:
    """Intercept and slope, neither of them negative, with the least relative errors."""
    weights = np.ones_like(x)
    found = (float(np.median(y)), 0.0)
    for _ in range(ROUNDS):
        found = _weighted(x, y, weights)
        errors = (found[0] + found[1] * x) / y - 1.0
        scale = 1.4826 * float(np.median(np.abs(errors)))
        if scale < 1e-12:
            break
        weights = np.minimum(1.0, TUNING * scale / np.maximum(np.abs(errors), 1e-300))
    return found


def _weighted(x: Floats, y: Floats, weights: Floats) -> tuple[float, float]:
    """The best of the free solution and those on the edges of what is allowed."""
    a, b = 1.0 / y, x / y  # in terms of which every time is one
    matrix = np.array([[weights @ (a * a), weights @ (a * b)], [0.0, weights @ (b * b)]])
    matrix[1, 0] = matrix[0, 1]
    right = np.array([weights @ a, weights @ b])
    edges = [(right[0] / matrix[0, 0], 0.0)]
    if matrix[1, 1] > 0:
        edges.append((0.0, right[1] / matrix[1, 1]))
        if abs(np.linalg.det(matrix)) > 1e-12 * matrix[0, 0] * matrix[1, 1]:
            free = np.linalg.solve(matrix, right)
            if np.all(free >= 0):
                return float(free[0]), float(free[1])

    def error(solution: tuple[float, float]) -> float:
        return float(weights @ (solution[0] * a + solution[1] * b - 1.0) ** 2)

    best = min(edges, key=error)
    return float(best[0]), float(best[1])
