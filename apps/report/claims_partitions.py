"""Rules for claims about partitioned sends: bandwidths over sizes, threads and orders."""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

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
    between,
    untested,
)
from onesided.apps.report.result import Entry, Result
from onesided.apps.report.sections_papers import PART, rate

COMMAND = "bench partitioned"
ONE_BY_ONE = "one by one"
LEFT_TO_RIGHT = "left-to-right"
UNGROUPED = ("", "-")  # the label of a contestant that gathers no partitions

#: Rows by bytes of a partition.
Rows = Mapping[float, Entry]


@dataclass(frozen=True)
class Choice:
    """Which rows: a mechanism marked one by one, in an order, by so many threads.

    ``grouped``: whether partitions are gathered.
    """

    method: str
    order: str = LEFT_TO_RIGHT
    threads: int = 1
    grouped: bool = False

    def rows(self, entries: Iterable[Entry]) -> Rows:
        """Local. Those with right data; of several of a size the last."""
        found: dict[float, Entry] = {}
        for entry in entries:
            size = entry.number(PART)
            if size is not None and rate(entry) and entry.times and self._takes(entry):
                found[size] = entry
        return dict(sorted(found.items()))

    def _takes(self, entry: Entry) -> bool:
        return (
            entry.method == self.method
            and entry.label("order") == self.order
            and entry.number("threads") == self.threads
            and entry.label("marked") == ONE_BY_ONE
            and (entry.label("aggregate") not in UNGROUPED) == self.grouped
        )


class _OfRates(Rule):
    """A rule about the rows of ``bench partitioned`` on two ranks."""

    def judge(self, results: Sequence[Result]) -> list[Finding]:
        """Local."""
        samples = Samples.of(results, COMMAND)
        if samples.reason:
            return [untested(samples.reason)]
        return self._findings(samples.most)

    @abstractmethod
    def _findings(self, sample: Sample) -> list[Finding]:
        """What the rows say."""


@dataclass(frozen=True)
class Keeps(_OfRates):
    """The bandwidth of the largest partition, down to ``size`` bytes, but for the share ``share``.

    ``keeps`` false: it does not, at the largest measured partition of at most ``size`` bytes.
    """

    methods: Sequence[str]
    size: float
    share: float
    keeps: bool = True
    grouped: bool = False
    orders: Sequence[str] = (LEFT_TO_RIGHT,)

    def _findings(self, sample: Sample) -> list[Finding]:
        entries = sample.entries
        found = []
        for method in self.methods:
            for order in self.orders:
                rows = Choice(method, order, grouped=self.grouped).rows(entries)
                if len(rows) > 1:
                    found.append(self._finding(f"{method}, {order}", rows))
        return found or [untested(f"{', '.join(self.methods)}: not measured over the sizes")]

    def _finding(self, variant: str, rows: Rows) -> Finding:
        whole = max(rows)
        fits = operator.ge if self.keeps else operator.le
        others = [size for size in rows if size < whole and fits(size, self.size)]
        if not others:
            words = "at least" if self.keeps else "at most"
            why = f"no partition of {words} {byte_count(int(self.size))} beside the largest"
            return untested(why, variant)
        # how much of the bandwidth is left is how little of the time is enough for the whole
        parts = {size: _over(rows[size], rows[whole]) for size in others}
        if self.keeps:
            outcome = Outcome.every(at_least(part, self.share) for part in parts.values())
        else:
            outcome = below(parts[max(others)], self.share)
        words = f"bandwidth over that of {byte_count(int(whole))}: {_told(parts)}"
        return Finding(outcome, words, variant)


@dataclass(frozen=True)
class Loses(_OfRates):
    """With some size, an order has less than a share of the bandwidth of another; groups gather."""

    methods: Sequence[str]
    order: str
    other: str
    share: float

    def _findings(self, sample: Sample) -> list[Finding]:
        found = []
        for method in self.methods:
            mine, theirs = (
                Choice(method, order, grouped=True).rows(sample.entries)
                for order in (self.order, self.other)
            )
            parts = {size: _over(mine[size], theirs[size]) for size in mine if size in theirs}
            if parts:
                outcome = Outcome.some(below(part, self.share) for part in parts.values())
                words = f"bandwidth {self.order} over {self.other} {_told(parts)}"
                found.append(Finding(outcome, words, method))
        return found or [untested(f"{', '.join(self.methods)}: not measured in both orders")]


@dataclass(frozen=True)
class Together(_OfRates):
    """Two mechanisms have the same bandwidth, to ``share``, at all sizes or the smallest one."""

    pair: tuple[str, str]
    share: float
    smallest: bool = False

    def _findings(self, sample: Sample) -> list[Finding]:
        entries = sample.entries
        one, other = (Choice(method).rows(entries) for method in self.pair)
        both = sorted(one.keys() & other.keys())
        variant = ", ".join(self.pair)
        if not both:
            return [untested("not both measured", variant)]
        sizes = both[:1] if self.smallest else both
        parts = {size: _over(one[size], other[size], together=True) for size in sizes}
        outcome = Outcome.every(
            between(part, self.share, 1 / self.share) for part in parts.values()
        )
        words = f"bandwidth of {self.pair[0]} over that of {self.pair[1]} {_told(parts)}"
        return [Finding(outcome, words, variant)]


@dataclass(frozen=True)
class Threads(_OfRates):
    """With so many threads a mechanism loses at least (or at most) a share of its bandwidth.

    With the largest partitions that so many threads can share.
    """

    method: str
    threads: int
    loss: float
    loses: bool = True

    def _findings(self, sample: Sample) -> list[Finding]:
        entries = sample.entries
        if sample.ranks * self.threads > sample.cores:
            crowd = f"{self.threads} threads of each of {sample.ranks} ranks"
            return [untested(f"{crowd} are more than {sample.cores} cores", self.method)]
        one = Choice(self.method).rows(entries)
        many = Choice(self.method, threads=self.threads).rows(entries)
        both = one.keys() & many.keys()
        if not both:
            return [untested(f"not measured with {self.threads} threads", self.method)]
        size = max(both)
        left = _over(many[size], one[size])
        words = (
            f"bandwidth of {self.threads} threads over that of 1, with partitions of "
            f"{byte_count(int(size))}: {left}"
        )
        outcome = at_most(left, 1.0 - self.loss)
        return [Finding(outcome if self.loses else outcome.opposite, words, self.method)]


@dataclass(frozen=True)
class OrderMatters(_OfRates):
    """The order of the marks changes the bandwidth by a share at most."""

    method: str
    orders: Sequence[str]
    share: float

    def _findings(self, sample: Sample) -> list[Finding]:
        entries = sample.entries
        rows = {order: Choice(self.method, order).rows(entries) for order in self.orders}
        known = {order: each for order, each in rows.items() if each}
        if len(known) < 2:
            return [untested("measured in fewer than two orders", self.method)]
        sizes = sorted(set.intersection(*(set(each) for each in known.values())))
        if not sizes:
            return [untested("no size was measured in several orders", self.method)]
        first, *others = known
        parts, told = [], []
        for order in others:
            found = {size: _over(known[order][size], known[first][size]) for size in sizes}
            alike = (1.0 - self.share, 1.0 / (1.0 - self.share))
            parts += [between(part, *alike) for part in found.values()]
            told.append(f"bandwidth {order} over {first} {_told(found)}")
        return [Finding(Outcome.every(parts), "; ".join(told), self.method)]


def _over(mine: Entry, theirs: Entry, *, together: bool = False) -> Interval:
    """The bandwidth over that of another row of as many bytes; ``together``: in the same rounds."""
    found = theirs.beside(mine) if together else theirs.against(mine)
    if found is None:
        raise ValueError("a row without times")
    return found


def _told(parts: Mapping[float, Interval]) -> str:
    return ", ".join(f"{part} at {byte_count(int(size))}" for size, part in parts.items())
