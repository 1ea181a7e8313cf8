"""LogGP, by ranges of sizes, and its parameters fitted to times; no MPI.

LogGP (Alexandrov, Ionescu, Schauser, Scheiman 1995) is one straight line over the bytes. An MPI
has several: it sends long messages by another protocol than short ones, and a copy that has left
the cache is slower. So a transfer is described piecewise: a segment for every range of sizes, each
with LogGP parameters of its own.

In a fit the sum of the squares of *relative* errors is made small, since times span five decades.
A time far from its line counts less (Huber 1964: errors beyond :data:`TUNING` times their scale
count linearly), because other programs disturb a few of them. Segments are found by trying all
places where one may begin: a second and a third must earn their place (:data:`WORTH`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.collectives.errors import PatternError

Floats = NDArray[np.float64]
#: Numbers, or arrays of them that broadcast: a formula does not care.
Numbers = float | Floats

#: Errors within so many standard deviations count as in plain least squares.
TUNING = 1.345
ROUNDS = 10
#: Most segments of a fit, and the fewest sizes that one needs.
MOST_SEGMENTS, FEWEST_SIZES = 3, 3
#: A segment more must leave at most this share of the errors, where they are above GOOD already.
WORTH, GOOD = 0.6, 0.02


@dataclass(frozen=True)
class LogGP:
    """The parameters of LogGP in seconds; LogP is LogGP for messages of one byte.

    ``latency`` is L, ``overhead`` o (of sending or receiving a message), ``gap`` g (the least time
    between two messages of a rank), ``byte_gap`` G (that between two bytes of a message), and
    ``waiting`` o_r: how long it takes a rank that waits actively to see a request (paper 003).
    """

    latency: float
    overhead: float
    gap: float
    byte_gap: float = 0.0
    waiting: float = 0.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 <= value < math.inf:
                raise PatternError(f"{name} is {value!r}, not a time in seconds")

    def length(self, nbytes: int) -> float:
        """Local. Seconds between the first byte of a message and its last: (m - 1)G."""
        return max(nbytes - 1, 0) * self.byte_gap


@dataclass(frozen=True)
class Segment:
    """The parameters that hold for messages of ``start`` bytes and more."""

    start: float
    loggp: LogGP


@dataclass(frozen=True)
class PiecewiseLogGP:
    """The segments of one kind of transfer, in the order of their starts, of which the first is 0.

    ``ends`` is at how many ends of a message a processor spends the overhead o: 2 for messages,
    1 for what is Put or stored.
    """

    segments: tuple[Segment, ...]
    ends: int = 1

    def __post_init__(self) -> None:
        starts = [segment.start for segment in self.segments]
        if not starts or starts[0] != 0 or starts != sorted(set(starts)):
            raise PatternError(f"segments start at {starts} bytes, not at 0 and then further up")
        if self.ends not in (1, 2):
            raise PatternError(f"a message with {self.ends!r} ends")

    @property
    def short(self) -> LogGP:
        """The parameters of the shortest messages."""
        return self.segments[0].loggp

    def at(self, nbytes: float) -> LogGP:
        """Local. The parameters of a message of so many bytes."""
        return self.segments[int(self._segment_of(nbytes))].loggp

    def time(self, messages: Any, nbytes: Any, link: Any = 0.0, size: Any = None) -> Numbers:
        """Local. Seconds until so many messages, ``nbytes`` in all, have come; all ranks at once.

        ``L + e o + (k - 1) max(g, e o) + B G``: the first message, the others a gap apart, and
        the bytes; nothing where there are no messages. ``link`` is how long the link of the node
        is busy with what all its ranks send: gaps and bytes take no less. The segment is that of
        the mean message; with ``size``, G is that of messages of so many bytes, where that is
        more.
        """
        count, total = np.asarray(messages, float), np.asarray(nbytes, float)
        mean = total / np.maximum(count, 1.0)
        at = self._segment_of(mean)
        pace = self._of("byte_gap", at)
        if size is not None:
            pace = np.maximum(pace, self._of("byte_gap", self._segment_of(size)))
        busy = self.ends * self._of("overhead", at)
        rest = np.maximum(self._of("gap", at), busy) * (count - 1.0)
        moved = np.maximum(rest + total * pace, link)
        return np.where(count > 0, self._of("latency", at) + busy + moved, 0.0)

    def busy(self, messages: Any) -> Numbers:
        """Local. Seconds that a rank spends on so many short messages beyond the first."""
        each = max(self.short.gap, self.ends * self.short.overhead)
        return np.maximum(np.asarray(messages, float) - 1.0, 0.0) * each

    def _segment_of(self, size: Any) -> NDArray[np.intp]:
        starts = [segment.start for segment in self.segments]
        found: NDArray[np.intp] = np.searchsorted(starts, size, side="right") - 1
        return found

    def _of(self, name: str, at: NDArray[np.intp]) -> NDArray[np.float64]:
        values = np.array([getattr(segment.loggp, name) for segment in self.segments])
        found: NDArray[np.float64] = values[at]
        return found


@dataclass(frozen=True)
class Fit:
    """Segments: an intercept in seconds, a slope in seconds per byte; relative errors."""

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

    def piecewise(self, overhead: float, gap: float, ends: int) -> PiecewiseLogGP:
        """Local. As LogGP: of an intercept L + e o, the overhead o is known, the rest is L."""
        segments = []
        for start, intercept, slope in zip(self.starts, self.intercepts, self.slopes, strict=True):
            own = min(overhead, intercept / ends)
            loggp = LogGP(max(intercept - ends * own, 0.0), own, gap, slope)
            segments.append(Segment(start, loggp))
        return PiecewiseLogGP(tuple(segments), ends)


def fit(sizes: Sequence[float], times: Sequence[float]) -> Fit:
    """Local. Segments through ``times``, in seconds, over ``sizes``, in bytes, which ascend.

    :class:`PatternError` for fewer than three of each, and for times that are not above zero.
    """
    x, y = np.asarray(sizes, float), np.asarray(times, float)
    if x.shape != y.shape or x.size < FEWEST_SIZES or np.any(np.diff(x) <= 0) or np.any(y <= 0):
        raise PatternError(
            f"{x.size} sizes and {y.size} times: at least {FEWEST_SIZES} of each are needed, "
            "ascending and above zero"
        )
    best = _with_cuts(x, y, ())
    for count in range(1, MOST_SEGMENTS):
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
