"""What is said about numbers: median, spread, ratio and how sure it is, break-even, verdicts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

RESAMPLES = 400
CONFIDENCE = 0.95
MOST_RATIOS = 250  # of which an interval is made; of more every n-th


def quartiles(times: Sequence[float]) -> tuple[float, float, float]:
    """Local. First quartile, median, third quartile of at least one time."""
    if len(times) == 1:
        return times[0], times[0], times[0]
    first, middle, third = quantiles(times, n=4, method="inclusive")
    return first, middle, third


def ratio(times: Sequence[float], baseline: Sequence[float]) -> float:
    """Local. Median over k of time k divided by the baseline's time k, taken in the same round."""
    if len(times) != len(baseline):
        raise ValueError(f"{len(times)} times cannot be paired with {len(baseline)}")
    return median(one / other for one, other in zip(times, baseline, strict=True))


@dataclass(frozen=True)
class Interval:
    """A median, and where it lies with a confidence of 95 %."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, numbers: Sequence[float]) -> Interval:
        """Local. By bootstrap (percentiles), with always the same draws; of one number itself."""
        return _bootstrapped(median(numbers), [numbers])

    @classmethod
    def quotient(cls, ours: Sequence[float], theirs: Sequence[float]) -> Interval:
        """Local. Of the median of the one over that of the other, of which none are pairs."""
        return _bootstrapped(median(ours) / median(theirs), [ours, theirs])

    def __str__(self) -> str:
        if self.low == self.high:
            return f"{self.median:.2f}"
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})"


def _bootstrapped(middle: float, samples: Sequence[Sequence[float]]) -> Interval:
    """Local. Of the median of one sample, or the quotient of the medians of two."""
    if all(min(sample) == max(sample) for sample in samples):
        return Interval(middle, middle, middle)
    import numpy as np
    from scipy.stats import bootstrap  # takes half a second to import

    def statistic(one: Any, *others: Any, axis: int = -1) -> Any:
        found = np.median(one, axis=axis)
        for other in others:
            found = found / np.median(other, axis=axis)
        return found

    some = [np.asarray(each[:: -(-len(each) // MOST_RATIOS)]) for each in samples]
    some = [np.repeat(each, 2) if len(each) == 1 else each for each in some]
    found = bootstrap(
        some, statistic, n_resamples=RESAMPLES, confidence_level=CONFIDENCE, vectorized=True,
        method="percentile", random_state=np.random.default_rng(1),
    ).confidence_interval  # fmt: skip
    return Interval(middle, min(float(found.low), middle), max(float(found.high), middle))


def paired(times: Sequence[float], others: Sequence[float]) -> list[float]:
    """Local. The ratios of times taken in the same round; of the rounds that both took part in."""
    return [one / other for one, other in zip(times, others, strict=False)]


@dataclass(frozen=True)
class Target:
    """A bound for a ratio of times.

    ``least``: at least so many times as fast as the opponent; else the time is at most so many
    times the opponent's. ``seconds``: no opponent, the time is at most so many times these.
    """

    opponent: str
    bound: float
    least: bool = True
    seconds: float = 0.0

    def ratios(self, ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
        """Local. What the bound is about, by round."""
        if self.seconds:
            return [time / self.seconds for time in ours]
        return paired(theirs, ours) if self.least else paired(ours, theirs)

    def reached(self, ours: Sequence[float], theirs: Sequence[float]) -> float:
        """Local. Its median."""
        return median(self.ratios(ours, theirs))

    def met(self, reached: float) -> bool:
        """Local. Whether that is good enough."""
        return reached >= self.bound if self.least else reached <= self.bound

    def sure(self, interval: Interval) -> bool:
        """Local. Whether all that the median may be is on the same side of the bound."""
        return self.met(interval.low) == self.met(interval.high)

    @property
    def words(self) -> str:
        """Local. What the ratio is to be."""
        return "at least" if self.least else "at most"


def break_even(setup: float, baseline: float, persistent: float) -> int | None:
    """Local. The number of iterations after which a set-up has paid; None: never.

    N = ceil(T_init / (T_MPI - T_persistent)): ``setup`` is what initializing and freeing cost,
    ``baseline`` and ``persistent`` one iteration without and with it, all in seconds.
    """
    gain = baseline - persistent
    if not gain > 0:
        return None
    return math.ceil(setup / gain)


@dataclass(frozen=True)
class Verdict:
    """A relative error, and the largest one that rounding explains."""

    error: float
    tolerance: float

    @property
    def passed(self) -> bool:
        """Local. An error that is not a number is no pass."""
        return self.error <= self.tolerance

    def __str__(self) -> str:
        return f"{self.error:.1e} {'ok' if self.passed else 'WRONG'}"


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """Local. A wrong one where there is one; among these the largest error for its tolerance."""
    return max(verdicts, key=lambda each: (not each.passed, each.error / (each.tolerance or 1.0)))


def conclusion(verdicts: Iterable[Verdict], against: str) -> str:
    """Local. A sentence about all verdicts of a command."""
    every = list(verdicts)
    word = "Verified" if all(each.passed for each in every) else "WRONG, compared"
    allowed = max((each.tolerance for each in every), default=0.0)
    return f"{word} with {against}; relative errors up to {allowed:.1e} are rounding."
