"""Rules for claims about one-sided messages of several threads: some cells beside others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from onesided.apps.cli.report import byte_count
from onesided.apps.cli.statistics import Interval
from onesided.apps.report.claim import (
    Finding,
    Outcome,
    Rule,
    Sample,
    Samples,
    at_least,
    at_most,
    below,
    of_method,
    untested,
    within,
)
from onesided.apps.report.result import REFERENCE, Entry, Result
from onesided.apps.report.threads import MAIN, MEASURES, MULTIPLE, SEND, SINGLE, TWO_SIDED, Measure

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
        """The overheads on every number of ranks."""
        parts, words = [], []
        for sample in samples:
            for entry in of_method(sample.entries, way) if sample.ranks > 1 else ():
                over = entry.interval(REFERENCE)
                if over is not None:
                    parts.append(at_most(over, 1.0 + self.most))
                    low, middle, high = (
                        f"{100 * (end - 1.0):+.1f} %" for end in (over.low, over.median, over.high)
                    )
                    spread = "" if low == high else f" ({low} to {high})"
                    words.append(f"{middle}{spread} on {sample}")
        return Finding(Outcome.every(parts), ", ".join(words), way) if parts else None


COMMAND = "bench rma-mt"
MANY = 16  # threads of paper 002


@dataclass(frozen=True)
class Choice:
    """Cells of a pattern: so many threads, or 0 for the main thread of a job that has no others."""

    pattern: str
    sync: str
    op: str
    threads: int = 1

    def rows(self, entries: Sequence[Entry]) -> dict[float, Entry]:
        """Local. Those that have what the pattern is about, by bytes of a message."""
        found = {}
        for entry in entries:
            size, value = entry.number("message_bytes"), entry.number(MEASURES[self.pattern].value)
            right = entry.values.get("verified") is not False
            if size is not None and value and entry.times and right and self._takes(entry):
                found[size] = entry
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
    """What ``pairs`` have, first over second: geometric means over sizes from ``low`` to ``high``.

    It is ``least`` at least and below ``most``.
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
        mine, theirs = one.rows(sample.entries), other.rows(sample.entries)
        quotients = {
            size: _quotient(MEASURES[one.pattern], mine[size], theirs[size])
            for size in mine
            if size in theirs and within(size, self.low, self.high)
        }
        if not quotients:
            return untested("not both measured at such a size", variant)
        found = [(each.median, each.low, each.high) for each in quotients.values()]
        mean = Interval(*(geometric_mean(ends) for ends in zip(*found, strict=True)))
        name = MEASURES[one.pattern].quantity.name
        told = ", ".join(f"{x} at {byte_count(int(s))}" for s, x in quotients.items())
        words = f"{name}: {mean} on average, {told}"
        outcome = Outcome.every((at_least(mean, self.least), below(mean, self.most)))
        return Finding(outcome, words, variant)


def _quotient(measure: Measure, mine: Entry, theirs: Entry) -> Interval:
    """What the rows are about, as sure as the means of their runs."""
    ratio = (mine.number(measure.value) or 0.0) / (theirs.number(measure.value) or 1.0)
    one, other = (theirs, mine) if measure.more else (mine, theirs)
    times = Interval.quotient(one.times, other.times)
    return Interval(ratio, *(ratio * end / times.median for end in (times.low, times.high)))


def threads_of(pattern: str, op: str, *syncs: str) -> list[tuple[Choice, Choice]]:
    """Local. Many threads over one, by synchronization."""
    return [(Choice(pattern, sync, op, MANY), Choice(pattern, sync, op)) for sync in syncs]
