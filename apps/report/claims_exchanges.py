"""Rules for claims about exchanges: a method against the plain call, or against another one."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onesided.apps.bench.result import Entry, Result
from onesided.apps.bench.selection import BASELINE
from onesided.apps.cli.report import byte_count
from onesided.apps.report.claim import (
    Finding,
    Outcome,
    Rule,
    Sample,
    Samples,
    memory,
    of_method,
    same,
    untested,
    within,
)
from onesided.apps.report.facts import case, iterations, plain_calls

UNIFORM = "bench alltoallv"
IRREGULAR = "bench patterns"
ABOUT = 0.9  # so much of a saving is taken for as much


@dataclass(frozen=True)
class _OfMethods(Rule):
    """A rule that is asked of every method by itself, on the largest number of ranks."""

    methods: Sequence[str]

    def judge(self, results: Sequence[Result]) -> list[Finding]:
        """Local. A finding for every method that was measured."""
        samples = Samples.of(results, UNIFORM)
        if samples.reason:
            return [untested(samples.reason)]
        found = []
        for method in self.methods:
            entries = of_method(samples.most.entries, method)
            if entries:
                found.append(self._finding(samples.most, method, entries))
        return found or [untested(f"{' and '.join(self.methods)}: not measured")]

    @abstractmethod
    def _finding(self, sample: Sample, method: str, entries: Sequence[Entry]) -> Finding:
        """What the rows of a method say."""


@dataclass(frozen=True)
class Against(_OfMethods):
    """Faster (or slower) than the plain call at every size from ``low`` to ``high`` bytes."""

    low: float = 0.0
    high: float = math.inf
    faster: bool = True

    def _finding(self, sample: Sample, method: str, entries: Sequence[Entry]) -> Finding:
        ratios = _ratios(entries, self.low, self.high)
        if not ratios:
            return untested(f"no such size was measured with {method}", method)
        holds = all((ratio < 1) == self.faster for ratio in ratios.values())
        told = _told({size: f"{ratio:.2f}" for size, ratio in ratios.items()})
        words = f"{sample}{memory(entries)}: time over that of MPI_Alltoallv {told}"
        return Finding(Outcome.of(holds), words, method)


@dataclass(frozen=True)
class Saves(_OfMethods):
    """About these shares of the plain call's time are saved, or more, by size in bytes."""

    shares: Mapping[int, float]

    def _finding(self, sample: Sample, method: str, entries: Sequence[Entry]) -> Finding:
        ratios = _ratios(entries, 0.0, math.inf)
        pairs = {
            size: (1.0 - ratio, share)
            for size, ratio in ratios.items()
            for wanted, share in self.shares.items()
            if same(size, wanted)
        }
        if not pairs:
            return untested(f"none of these sizes was measured with {method}", method)
        holds = all(saved >= ABOUT * share for saved, share in pairs.values())
        told = _told({size: _saved(*pair) for size, pair in pairs.items()})
        return Finding(Outcome.of(holds), f"{sample}{memory(entries)}: {told}", method)


@dataclass(frozen=True)
class PaysAtOnce(_OfMethods):
    """The set-up has paid after one iteration, at every size from ``low`` bytes on."""

    low: float

    def _finding(self, sample: Sample, method: str, entries: Sequence[Entry]) -> Finding:
        calls = plain_calls(sample.entries)
        counts: dict[float, int | str] = {}
        for entry in entries:
            size, plain = entry.number("bytes"), calls.get(case(entry))
            if size is not None and plain is not None and within(size, self.low, math.inf):
                count = iterations(entry, plain)
                if count is not None:
                    counts[size] = count
        if not counts:
            return untested(f"no such size was measured with {method}", method)
        told = _told({size: str(count) for size, count in counts.items()})
        holds = all(isinstance(count, int) and count <= 1 for count in counts.values())
        return Finding(Outcome.of(holds), f"{sample}{memory(entries)}: N {told}", method)


@dataclass(frozen=True)
class OverRanks(Rule):
    """The time over that of the plain call, at ``size`` bytes, on several numbers of ranks.

    ``ahead``: it stays below one; else it comes to be above one on most ranks, and grows.
    """

    methods: Sequence[str]
    size: int
    ahead: bool

    def judge(self, results: Sequence[Result]) -> list[Finding]:
        """Local. A finding for every method that was measured on several numbers of ranks."""
        samples = Samples.of(results, UNIFORM)
        if samples.reason:
            return [untested(samples.reason)]
        found = []
        for method in self.methods:
            ratios: dict[int, float] = {}
            for sample in samples.found:
                entries = of_method(sample.entries, method)
                for ratio in _ratios(entries, self.size, self.size).values():
                    ratios[sample.ranks] = ratio
            if ratios:
                found.append(self._finding(samples, method, ratios))
        return found or [untested(f"{byte_count(self.size)} was not measured")]

    def _finding(self, samples: Samples, method: str, ratios: Mapping[int, float]) -> Finding:
        told = ", ".join(f"{ratio:.2f} on {ranks} ranks" for ranks, ratio in ratios.items())
        if len(ratios) < 2:
            return samples.untested(f"measured on one number of ranks only: {told}", method)
        ends = [ratios[ranks] for ranks in (min(ratios), max(ratios))]
        behind = ends[1] > 1 and ends[1] > ends[0]
        holds = all(ratio < 1 for ratio in ratios.values()) if self.ahead else behind
        words = f"time over that of MPI_Alltoallv at {byte_count(self.size)}: {told}"
        return Finding(Outcome.of(holds), words, method)


@dataclass(frozen=True)
class Beside(Rule):
    """One method beside another in every case of a command: ahead of it, or alike.

    ``pairs``: whom, beside whom. ``share``: ahead is a time below so much of the other's; where
    it is None they are alike, by ``alike`` at most.
    """

    command: str
    pairs: Sequence[tuple[str, str]]
    share: float | None = 1.0
    alike: float = 0.1

    def judge(self, results: Sequence[Result]) -> list[Finding]:
        """Local. A finding for every pair that was measured."""
        samples = Samples.of(results, self.command)
        if samples.reason:
            return [untested(samples.reason)]
        found = [self._finding(samples.most, *pair) for pair in self.pairs]
        measured = [each for each in found if each is not None]
        told = "; ".join(" and ".join(pair) for pair in self.pairs)
        return measured or [untested(f"not both measured: {told}")]

    def _finding(self, sample: Sample, method: str, other: str) -> Finding | None:
        theirs = {case(entry): entry.median for entry in of_method(sample.entries, other)}
        ratios = {}
        for entry in of_method(sample.entries, method):
            base = theirs.get(case(entry))
            if entry.median is not None and base:
                ratios[_case_words(entry)] = entry.median / base
        if not ratios:
            return None
        holds = (
            all(abs(ratio - 1) <= self.alike for ratio in ratios.values())
            if self.share is None
            else all(ratio < self.share for ratio in ratios.values())
        )
        told = ", ".join(f"{ratio:.2f} at {words}" for words, ratio in ratios.items())
        words = f"{sample}: time of {method} over that of {other} {told}"
        return Finding(Outcome.of(holds), words, f"{method}, {other}")


def _saved(saved: float, share: float) -> str:
    word = "saved" if saved >= 0 else "lost"
    return f"{abs(100 * saved):.0f} % {word} (there {100 * share:.0f} % saved)"


def _case_words(entry: Entry) -> str:
    return " ".join(words for name, words in case(entry) if name != "ranks")


def _ratios(entries: Sequence[Entry], low: float, high: float) -> dict[float, float]:
    """The time over that of the plain call, by size."""
    found = {}
    for entry in entries:
        size, ratio = entry.number("bytes"), entry.ratio(BASELINE)
        if size is not None and ratio is not None and within(size, low, high):
            found[size] = ratio
    return dict(sorted(found.items()))


def _told(by_size: Mapping[float, str]) -> str:
    return ", ".join(f"{words} at {byte_count(round(size))}" for size, words in by_size.items())
