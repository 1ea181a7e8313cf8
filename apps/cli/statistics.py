"""What is said about numbers: median, spread, ratio and how sure it is, break-even, verdicts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from scipy.special import bdtr

TAIL = 0.025  # of each end of an interval, whose confidence is 95 % then


def quartiles(times: Sequence[float]) -> tuple[float, float, float]:
    """Local. First quartile, median, third quartile of at least one time."""
    first, middle, third = np.quantile(times, (0.25, 0.5, 0.75)).tolist()
    return first, middle, third


@dataclass(frozen=True)
class Interval:
    """A median, and between which numbers it lies with a confidence of 95 %.

    These are order statistics, which need no assumption about how times are spread: the chance
    that so many of ``n`` lie on one side of the median is that of so many heads of ``n`` coins.
    Five numbers or fewer cannot tell with such confidence: nothing is ``known`` then.
    """

    median: float
    low: float = 0.0
    high: float = math.inf

    @property
    def known(self) -> bool:
        """Local. Whether there were enough numbers."""
        return math.isfinite(self.high)

    @classmethod
    def of(cls, numbers: Sequence[float]) -> Interval:
        """Local. Of at least one number."""
        ordered, count = sorted(numbers), len(numbers)
        heads = bdtr(np.arange(count), count, 0.5)  # the chance of so many or fewer
        outside = int(np.searchsorted(heads, TAIL, side="right"))  # of each end, that included
        if outside == 0:
            return cls(median(ordered))
        return cls(median(ordered), ordered[outside - 1], ordered[-outside])

    @classmethod
    def quotient(cls, ours: Sequence[float], theirs: Sequence[float]) -> Interval:
        """Local. Of the median of the one over that of the other, of which none are pairs.

        Wider than need be: its ends are those of both.
        """
        mine, other = cls.of(ours), cls.of(theirs)
        middle = mine.median / other.median
        if not (mine.known and other.known):
            return cls(middle)
        return cls(middle, mine.low / other.high, mine.high / other.low)

    def __str__(self) -> str:
        if not self.known:
            return f"{self.median:.2f} (?)"
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})"


def paired(times: Sequence[float], others: Sequence[float]) -> list[float]:
    """Local. The ratios of times taken in the same round; of the rounds that both took part in."""
    return [one / other for one, other in zip(times, others, strict=False)]


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
    rounding = f"; relative errors up to {allowed:.1e} are rounding" if allowed else ""
    return f"{word} with {against}{rounding}."
