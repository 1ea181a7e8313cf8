"""What is said about a list of times: median, spread, ratio, break-even count."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median, quantiles


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


def break_even(setup: float, baseline: float, persistent: float) -> int | None:
    """Local. The number of iterations after which a set-up has paid; None: never.

    N = ceil(T_init / (T_MPI - T_persistent)): ``setup`` is what initializing and freeing cost,
    ``baseline`` and ``persistent`` one iteration without and with it, all in seconds.
    """
    gain = baseline - persistent
    if not gain > 0:
        return None
    return math.ceil(setup / gain)
