"""Rules for claims about exchanges: a method against the plain call, or against another one."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onesided.apps.cli.report import BASELINE, byte_count
from onesided.apps.cli.statistics import Interval
from onesided.apps.report.claim import (
    Finding,
    Outcome,
    Rule,
    Sample,
    Samples,
    above,
    at_least,
    at_most,
    below,
    between,
    by_memory,
    less,
    of_method,
    same,
    told,
    untested,
    within,
)
from onesided.apps.report.facts import case, iterations, plain_calls
from onesided.apps.report.result import Entry, Result

UNIFORM = "bench alltoallv"
IRREGULAR = "bench patterns"


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
            for kind, mine in by_memory(entries).items():
                found.append(self._finding(samples.most, told(method, kind), mine))
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
        fits = below if self.faster else at_least
        outcome = Outcome.every(fits(ratio, 1.0) for ratio in ratios.values())
        by_size = _told({size: str(ratio) for size, ratio in ratios.items()})
        words = f"{sample}: time over that of MPI_Alltoallv {by_size}"
        return Finding(outcome, words, method)


@dataclass(frozen=True)
class Saves(_OfMethods):
    """These shares of the plain call's time are saved, or more, by size in bytes."""

    shares: Mapping[int, float]

    def _finding(self, sample: Sample, method: str, entries: Sequence[Entry]) -> Finding:
        ratios = _ratios(entries, 0.0, math.inf)
        pairs = {
            size: (ratio, share)
            for size, ratio in ratios.items()
            for wanted, share in self.shares.items()
            if same(size, wanted)
        }
        if not pairs:
            return untested(f"none of these sizes was measured with {method}", method)
        outcome = Outcome.every(at_most(ratio, 1.0 - share) for ratio, share in pairs.values())
        by_size = _told({size: _saved(*pair) for size, pair in pairs.items()})
        return Finding(outcome, f"{sample}: {by_size}", method)


@dataclass(frozen=True)
class PaysAtOnce(_OfMethods):
    """The set-up has paid after one iteration, at every size from ``low`` bytes on."""

    low: float

    def _finding(self, sample: Sample, method: str, entries: Sequence[Entry]) -> Finding:
        calls = plain_calls(sample.entries)
        counts: dict[float, int | str] = {}
        parts = []
        for entry in entries:
            size, plain = entry.number("bytes"), calls.get(case(entry))
            ratio, setup = entry.interval(BASELINE), entry.number("setup_s")
            if size is None or plain is None or not within(size, self.low, math.inf):
                continue
            count = iterations(entry, plain)
            if count is not None and setup is not None and plain.median and ratio is not None:
                counts[size] = count
                parts.append(at_most(ratio, 1.0 - setup / plain.median))
        if not counts:
            return untested(f"no such size was measured with {method}", method)
        by_size = _told({size: str(count) for size, count in counts.items()})
        return Finding(Outcome.every(parts), f"{sample}: N {by_size}", method)


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
            ratios: dict[str, dict[int, Interval]] = {}
            for sample in samples.found:
                for kind, entries in by_memory(of_method(sample.entries, method)).items():
                    for ratio in _ratios(entries, self.size, self.size).values():
                        ratios.setdefault(kind, {})[sample.ranks] = ratio
            for kind, mine in ratios.items():
                found.append(self._finding(samples, told(method, kind), mine))
        return found or [untested(f"{byte_count(self.size)} was not measured")]

    def _finding(self, samples: Samples, method: str, ratios: Mapping[int, Interval]) -> Finding:
        by_ranks = ", ".join(f"{ratio} on {ranks} ranks" for ranks, ratio in ratios.items())
        if len(ratios) < 2:
            return samples.untested(f"measured on one number of ranks only: {by_ranks}", method)
        first, last = (ratios[ranks] for ranks in (min(ratios), max(ratios)))
        outcome = (
            Outcome.every(below(ratio, 1.0) for ratio in ratios.values())
            if self.ahead
            else Outcome.every((above(last, 1.0), less(first, last)))
        )
        words = f"time over that of MPI_Alltoallv at {byte_count(self.size)}: {by_ranks}"
        return Finding(outcome, words, method)


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
        found = []
        for pair in self.pairs:
            mine, theirs = (by_memory(of_method(samples.most.entries, name)) for name in pair)
            for kind in [kind for kind in mine if kind in theirs]:
                found.append(self._finding(samples.most, pair, kind, mine[kind], theirs[kind]))
        measured = [each for each in found if each is not None]
        names = "; ".join(" and ".join(pair) for pair in self.pairs)
        return measured or [untested(f"not both measured: {names}")]

    def _finding(
        self,
        sample: Sample,
        pair: tuple[str, str],
        kind: str,
        mine: Sequence[Entry],
        theirs: Sequence[Entry],
    ) -> Finding | None:
        others = {case(entry): entry for entry in theirs}
        ratios: dict[str, Interval] = {}
        for entry in mine:
            ratio = entry.beside(others[case(entry)]) if case(entry) in others else None
            if ratio is not None:
                ratios[_case_words(entry)] = ratio
        if not ratios:
            return None
        share, alike = self.share, (1.0 - self.alike, 1.0 + self.alike)
        outcome = Outcome.every(
            between(ratio, *alike) if share is None else below(ratio, share)
            for ratio in ratios.values()
        )
        by_case = ", ".join(f"{ratio} at {words}" for words, ratio in ratios.items())
        words = f"{sample}: time of {pair[0]} over that of {pair[1]} {by_case}"
        return Finding(outcome, words, told(", ".join(pair), kind))


def _saved(ratio: Interval, share: float) -> str:
    saved = 1.0 - ratio.median
    word = "saved" if saved >= 0 else "lost"
    return f"{abs(100 * saved):.0f} % {word} (there {100 * share:.0f} % saved), ratio {ratio}"


def _case_words(entry: Entry) -> str:
    return " ".join(words for name, words in case(entry) if name != "ranks")


def _ratios(entries: Sequence[Entry], low: float, high: float) -> dict[float, Interval]:
    """The time over that of the plain call, by size."""
    found = {}
    for entry in entries:
        size, ratio = entry.number("bytes"), entry.interval(BASELINE)
        if size is not None and ratio is not None and within(size, low, high):
            found[size] = ratio
    return dict(sorted(found.items()))


def _told(by_size: Mapping[float, str]) -> str:
    return ", ".join(f"{words} at {byte_count(round(size))}" for size, words in by_size.items())
