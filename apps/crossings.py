"""Where a tree overtakes the linear broadcast: in the sweep, and in the model; no MPI calls."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onesided.apps.broadcasters import BINOMIAL, LINEAR, ONE_SIDED, PASSIVE, Entrant
from onesided.apps.forecast import Forecast
from onesided.apps.report import byte_count
from onesided.apps.summary import ratio

#: What overtakes what.
PAIRS = ((BINOMIAL, LINEAR), (PASSIVE, ONE_SIDED))
#: Number of ranks, bytes and name of a contestant; seconds.
Times = Mapping[tuple[int, int, str], Sequence[float]]


@dataclass(frozen=True)
class Crossing:
    """From where on one method in an order is not slower than another, in a model and measured.

    ``over`` is ``"bytes"``, and then ``at`` is the number of ranks, or ``"ranks"``, and then it is
    the length in bytes. None: nowhere; ``modelled`` is false where no model applies.
    """

    method: str
    order: str
    other: str
    over: str
    at: int
    predicted: float | None
    measured: float | None
    modelled: bool

    @property
    def heading(self) -> str:
        """Local. What is compared."""
        return f"{self.method} {self.order} overtakes {self.other}"

    @property
    def phrase(self) -> str:
        """Local. Where."""
        at, show = _WORDS[self.over]
        here = "nowhere in the sweep" if self.measured is None else f"from {show(self.measured)} on"
        model = "nowhere" if self.predicted is None else f"from {show(self.predicted)} on"
        return f"{at(self.at)}: {here} ({f'model: {model}' if self.modelled else 'no model'})"


def _bytes(number: float) -> str:
    return byte_count(round(number))


def _ranks(number: float) -> str:
    return f"{number:.3g} ranks"


_WORDS = {"bytes": (_ranks, _bytes), "ranks": (_bytes, _ranks)}


def crossings(
    forecast: Forecast,
    entered: Sequence[Entrant],
    sizes: Sequence[int],
    counts: Sequence[int],
    times: Times,
) -> list[Crossing]:
    """Local. Over the bytes for every number of ranks, then over the ranks for every length.

    Only what was timed; ``sizes`` and ``counts`` ascend.
    """
    found = []
    for (method, other), each in (
        (pair, each) for pair in PAIRS for each in entered if each.method == pair[0]
    ):
        ratios = {
            (count, size): ratio(times[count, size, each.name], times[count, size, other])
            for count in counts
            for size in sizes
            if (count, size, each.name) in times and (count, size, other) in times
        }
        order = each.order
        for count in counts:
            row = {size: ratios[count, size] for size in sizes if (count, size) in ratios}
            if row:
                model = forecast.crossover_bytes(method, order, other, count)
                seen = crossing(list(row), list(row.values()))
                known = forecast.covers(method, other, count)
                found.append(Crossing(method, order, other, "bytes", count, model, seen, known))
        for size in sizes:
            column = {count: ratios[count, size] for count in counts if (count, size) in ratios}
            if len(column) > 1:
                model = forecast.crossover_ranks(method, order, other, size)
                seen = crossing(list(column), list(column.values()))
                known = forecast.covers(method, other, max(column)) and forecast.spreads(method)
                found.append(Crossing(method, order, other, "ranks", size, model, seen, known))
    return found


def crossing(xs: Sequence[float], ratios: Sequence[float]) -> float | None:
    """Local. From which x on the ratios stay at one or below; None where they do not.

    A single time may be wrong, so the place is the one that disagrees with the fewest ratios.
    Between two neighbors whose ratios lie on both sides of one, it is interpolated in logarithms;
    where the first ratio is below one already it is the first x.
    """
    count = len(xs)
    faster = [ratio <= 1 for ratio in ratios]
    wrong = [sum(faster[:k]) + faster[k:].count(False) for k in range(count + 1)]
    best = min(range(count, -1, -1), key=lambda k: wrong[k])  # the later one of equals
    if best == count:
        return None
    if best == 0:
        return float(xs[0])
    before, after = math.log(ratios[best - 1]), math.log(ratios[best])
    if not before > 0 >= after:
        return float(xs[best])
    share = before / (before - after)
    low, high = math.log(xs[best - 1]), math.log(xs[best])
    return math.exp(low + share * (high - low))
