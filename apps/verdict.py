"""How a verification ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


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
