"""Where a number lies on an axis, and which round numbers are written beside it; no drawing."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

MOST = 7  # numbers beside an axis
STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)  # between two of them, times a power of ten
FINE = (1.0, 2.0, 5.0)  # in a decade of a logarithmic axis that has few decades


@dataclass(frozen=True)
class Scale:
    """An axis from ``low`` to ``high``; a logarithmic one has a ``base``, a linear one 0."""

    low: float
    high: float
    base: int = 0

    @classmethod
    def over(cls, numbers: Iterable[float], base: int = 0, *, zero: bool = False) -> Scale:
        """Local. One on which all numbers can be seen that it can show; ``zero``: that one too."""
        shown = [number for number in numbers if math.isfinite(number) and (number > 0 or not base)]
        if zero and not base:
            shown.append(0.0)
        if not shown:
            return cls(1.0, 10.0, base)
        low, high = min(shown), max(shown)
        if base:
            if low == high:
                return cls(low / base, high * base, base)
            margin = (high / low) ** 0.04
            return cls(low / margin, high * margin, base)
        if low == high:
            return cls(low - 0.5 * (abs(low) or 1.0), high + 0.5 * (abs(high) or 1.0))
        margin = 0.04 * (high - low)
        bottom = low if zero and low == 0 else low - margin
        return cls(bottom, high + margin)

    def shows(self, number: float) -> bool:
        """Local. Whether a number has a place on this axis."""
        return math.isfinite(number) and (number > 0 or not self.base)

    def place(self, number: float) -> float:
        """Local. 0 at the low end, 1 at the high end."""
        if not self.base:
            return (number - self.low) / (self.high - self.low)
        return math.log(number / self.low) / math.log(self.high / self.low)

    def ticks(self) -> list[float]:
        """Local. Round numbers within the axis, at most about :data:`MOST`."""
        if not self.base:
            return self._linear()
        found = self._powers()
        if len(found) < 3 and self.base == 10:
            found = self._within(
                step * 10.0**power
                for power in range(*self._exponents(10))
                for step in FINE
            )
        return found if len(found) > 1 else self._linear()

    def _powers(self) -> list[float]:
        powers = self._within(float(self.base) ** k for k in range(*self._exponents(self.base)))
        stride = -(-len(powers) // MOST)
        return powers[:: stride or 1]

    def _exponents(self, base: int) -> tuple[int, int]:
        return math.floor(math.log(self.low, base)), math.ceil(math.log(self.high, base)) + 1

    def _within(self, numbers: Iterable[float]) -> list[float]:
        return [each for each in numbers if self.low <= each <= self.high]

    def _linear(self) -> list[float]:
        raw = (self.high - self.low) / (MOST - 1)
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(each * power for each in STEPS if each * power >= 0.999 * raw)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [k * step for k in range(first, last + 1)]
