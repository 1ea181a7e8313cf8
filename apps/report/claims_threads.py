"""Rules for claims about one-sided messages of several threads: some cells beside others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from onesided.apps.bench.result import Entry, Result
from onesided.apps.cli.report import byte_count
from onesided.apps.miniapps.way import REFERENCE
from onesided.apps.papers.rmamt_cell import MAIN, MULTIPLE, SEND, SINGLE, TWO_SIDED
from onesided.apps.papers.rmamt_figures import MEASURES
from onesided.apps.report.claim import (
    Finding,
    Outcome,
    Rule,
    Sample,
    Samples,
    of_method,
    untested,
    within,
)

# Rules for claims about mini-applications: what one-sided communication costs them.


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


COMMAND = "bench rma-mt"
MANY = 16  # threads of paper 002


@dataclass(frozen=True)
class Choice:
    """Cells of a pattern: so many threads, or 0 for the main thread of a job that has no others."""

    pattern: str
    sync: str
    op: str
    threads: int = 1

    def values(self, entries: Sequence[Entry]) -> dict[float, float]:
        """Local. What the pattern is about, by bytes of a message."""
        found = {}
        for entry in entries:
            size, value = entry.number("message_bytes"), entry.number(MEASURES[self.pattern].value)
            right = entry.values.get("verified") is not False
            if size is not None and value is not None and right and self._takes(entry):
                found[size] = value
        return dict(sorted(found.items()))

    def _takes(self, entry: Entry) -> bool:
        wanted = {
            "pattern": self.pattern,
            "sync": self.sync,
            "op": self.op,
            "threads": str(self.threads or MAIN),
            "level": MULTIPLE if self.threads else SINGLE,
        }
        return all(entry.label(name) == text for name, text in wanted.items())

    def __str__(self) -> str:
        count = f", {self.threads} thread{'s'[: self.threads != 1]}" if self.threads else ""
        return f"{self.sync} {self.op}{count}"


def baseline(pattern: str) -> Choice:
    """Local. The sends and receives of a job without threads."""
    return Choice(pattern, TWO_SIDED, SEND, 0)


@dataclass(frozen=True)
class Quotient(Rule):
    """The mean over the sizes from ``low`` to ``high`` of what ``pairs`` have, first over second.

    It is ``least`` at least and ``most`` at most.
    """

    pairs: Sequence[tuple[Choice, Choice]]
    least: float = 0.0
    most: float = math.inf
    low: float = 0.0
    high: float = math.inf

    def judge(self, results: Sequence[Result]) -> list[Finding]:
        """Local. A finding for every pair."""
        samples = Samples.of(results, COMMAND)
        if samples.reason:
            return [untested(samples.reason)]
        return [self._finding(samples.most, *pair) for pair in self.pairs]

    def _finding(self, sample: Sample, one: Choice, other: Choice) -> Finding:
        variant = f"{one} over {other}"
        threads = max(one.threads, other.threads)
        if threads > 1 and sample.ranks * threads > sample.cores:
            crowd = f"{threads} threads of each of {sample.ranks} ranks"
            return untested(f"{crowd} are more than {sample.cores} cores", variant)
        quotients = self._quotients(one.values(sample.entries), other.values(sample.entries))
        if not quotients:
            return untested("not both measured at such a size", variant)
        mean = fmean(quotients.values())
        name = MEASURES[one.pattern].quantity.name
        told = ", ".join(f"{x:.2f} at {byte_count(int(s))}" for s, x in quotients.items())
        words = f"{name}: {mean:.2f} on average, {told}"
        return Finding(Outcome.of(self.least <= mean <= self.most), words, variant)

    def _quotients(
        self, mine: Mapping[float, float], theirs: Mapping[float, float]
    ) -> dict[float, float]:
        return {
            size: mine[size] / theirs[size]
            for size in mine
            if size in theirs and within(size, self.low, self.high)
        }


def threads_of(pattern: str, op: str, *syncs: str) -> list[tuple[Choice, Choice]]:
    """Local. Many threads over one, by synchronization."""
    return [(Choice(pattern, sync, op, MANY), Choice(pattern, sync, op)) for sync in syncs]
