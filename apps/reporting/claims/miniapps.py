"""Rules for claims about mini-applications: what one-sided communication costs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onesided.apps.mini.way import REFERENCE
from onesided.apps.reporting.claims.claim import Finding, Outcome, Rule, untested
from onesided.apps.reporting.claims.samples import Sample, Samples, of_method
from onesided.apps.reporting.result import Result


@dataclass(frozen=True)
class Costs(Rule):
    """On every number of ranks at most the share ``most`` of the time of two-sided, on top of it.

    ``command``: the mini-application, ``ways``: those that the paper has. One rank alone has
    nobody to communicate with, and decides nothing.
    """

    command: str
    ways: Sequence[str]
    most: float

    def judge(self, results: Sequence[Result]) -> list[Finding]:
        """Local. A finding for every way that was measured."""
        samples = Samples.of(results, self.command)
        if samples.reason:
            return [untested(samples.reason)]
        found = [self._finding(samples.found, way) for way in self.ways]
        measured = [each for each in found if each is not None]
        names = " and ".join(self.ways)
        return measured or [samples.untested(f"{names}: not measured on two ranks or more")]

    def _finding(self, samples: Sequence[Sample], way: str) -> Finding | None:
        """The largest overhead on every number of ranks."""
        over: dict[str, float] = {}
        for sample in samples:
            ratios = [entry.ratio(REFERENCE) for entry in of_method(sample.entries, way)]
            known = [ratio for ratio in ratios if ratio is not None]
            if known and sample.ranks > 1:
                over[str(sample)] = max(known) - 1.0
        if not over:
            return None
        told = ", ".join(f"{100 * share:+.1f} % on {where}" for where, share in over.items())
        return Finding(Outcome.of(max(over.values()) <= self.most), told, way)
