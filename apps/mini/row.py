"""A row of a mini-application: times, shares of a bound, and what came out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any

from onesided.apps.report import Row


@dataclass
class MiniRow(Row):
    """A way to communicate on so many ranks.

    ``shares`` are parts of one, shown in per cent; ``facts`` are numbers that the table shows with
    three digits, and ``more`` is for JSON only. ``used``: the method that ``auto`` chose.
    """

    shares: Mapping[str, float] = field(default_factory=dict)
    facts: Mapping[str, float] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)
    used: str = ""

    @property
    def mean(self) -> float:
        """Local. Of the times."""
        return fmean(self.times)

    @property
    def deviation(self) -> float:
        """Local. The standard deviation of the times; 0 for a single one."""
        return stdev(self.times) if len(self.times) > 1 else 0.0

    def cells(self) -> dict[str, str]:
        """Local. For the table; few runs have no quartiles, and what is right is not repeated."""
        shown = super().cells()
        if self.reason:
            return shown
        shown.pop("quartiles", None)
        if self.verdict is not None and self.verdict.passed:
            del shown["error"]
        if self.used:
            shown["method"] = f"{self.labels['method']} ({self.used})"
        shown |= {name: f"{100 * share:.0f} %" for name, share in self.shares.items()}
        return shown | {name: f"{number:.3g}" for name, number in self.facts.items()}

    def record(self) -> dict[str, Any]:
        """Local. For JSON."""
        if self.reason:
            return super().record()
        found = super().record() | {"mean_s": self.mean, "deviation_s": self.deviation}
        found |= {**self.shares, **self.facts, **self.more}
        return found | ({"used": self.used} if self.used else {})
