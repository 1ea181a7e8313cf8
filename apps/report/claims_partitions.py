"""Rules for claims about partitioned sends: bandwidths over sizes, threads and orders."""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from onesided.apps.bench.result import Entry, Result
from onesided.apps.cli.report import byte_count
from onesided.apps.report.claim import Finding, Outcome, Rule, Sample, Samples, untested
from onesided.apps.report.sections_papers import PART, rate

COMMAND = "bench partitioned"
ONE_BY_ONE = "one by one"
LEFT_TO_RIGHT = "left-to-right"
UNGROUPED = ("", "-")  # the label of a contestant that gathers no partitions

#: GB/s by bytes of a partition.
Rates = Mapping[float, float]


@dataclass(frozen=True)
class Choice:
    """Which rows: a mechanism marked one by one, in an order, by so many threads.

    ``grouped``: whether partitions are gathered.
    """

    method: str
    order: str = LEFT_TO_RIGHT
    threads: int = 1
    grouped: bool = False

    def rates(self, entries: Iterable[Entry]) -> Rates:
        """Local. The best of the rows of each size."""
        found: dict[float, float] = {}
        for entry in entries:
            size, speed = entry.number(PART), rate(entry)
            if size is not None and speed is not None and self._takes(entry):
                found[size] = max(speed, found.get(size, 0.0))
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
                rates = Choice(method, order, grouped=self.grouped).rates(entries)
                if len(rates) > 1:
                    found.append(self._finding(f"{method}, {order}", rates))
        return found or [untested(f"{', '.join(self.methods)}: not measured over the sizes")]

    def _finding(self, variant: str, rates: Rates) -> Finding:
        whole = max(rates)
        bound = self.share * rates[whole]
        fits = operator.ge if self.keeps else operator.le
        others = [size for size in rates if size < whole and fits(size, self.size)]
        if not others:
            words = "at least" if self.keeps else "at most"
            why = f"no partition of {words} {byte_count(int(self.size))} beside the largest"
            return untested(why, variant)
        lowest = min(rates[size] for size in others) if self.keeps else rates[max(others)]
        return Finding(Outcome.of((lowest >= bound) == self.keeps), f"GB/s {_told(rates)}", variant)


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
                Choice(method, order, grouped=True).rates(sample.entries)
                for order in (self.order, self.other)
            )
            parts = {size: mine[size] / theirs[size] for size in mine if size in theirs}
            if parts:
                holds = any(part < self.share for part in parts.values())
                words = f"bandwidth {self.order} over {self.other} {_told(parts)}"
                found.append(Finding(Outcome.of(holds), words, method))
        return found or [untested(f"{', '.join(self.methods)}: not measured in both orders")]


@dataclass(frozen=True)
class Together(_OfRates):
    """Two mechanisms have the same bandwidth, to ``share``, at all sizes or the smallest one."""

    pair: tuple[str, str]
    share: float
    smallest: bool = False

    def _findings(self, sample: Sample) -> list[Finding]:
        entries = sample.entries
        rates = [Choice(method).rates(entries) for method in self.pair]
        both = sorted(rates[0].keys() & rates[1].keys())
        variant = ", ".join(self.pair)
        if not both:
            return [untested("not both measured", variant)]
        sizes = both[:1] if self.smallest else both
        quotients = {size: rates[0][size] / rates[1][size] for size in sizes}
        holds = all(self.share <= each <= 1 / self.share for each in quotients.values())
        words = f"bandwidth of {self.pair[0]} over that of {self.pair[1]} {_told(quotients)}"
        return [Finding(Outcome.of(holds), words, variant)]


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
        one = Choice(self.method).rates(entries)
        many = Choice(self.method, threads=self.threads).rates(entries)
        both = one.keys() & many.keys()
        if not both:
            return [untested(f"not measured with {self.threads} threads", self.method)]
        size = max(both)
        lost = 1 - many[size] / one[size]
        words = (
            f"{100 * lost:.0f} % lost from 1 to {self.threads} threads, with partitions of "
            f"{byte_count(int(size))}"
        )
        holds = lost >= self.loss if self.loses else lost < self.loss
        return [Finding(Outcome.of(holds), words, self.method)]


@dataclass(frozen=True)
class OrderMatters(_OfRates):
    """The order of the marks changes the bandwidth by a share at most."""

    method: str
    orders: Sequence[str]
    share: float

    def _findings(self, sample: Sample) -> list[Finding]:
        entries = sample.entries
        rates = {order: Choice(self.method, order).rates(entries) for order in self.orders}
        known = {order: each for order, each in rates.items() if each}
        if len(known) < 2:
            return [untested("measured in fewer than two orders", self.method)]
        sizes = sorted(set.intersection(*(set(each) for each in known.values())))
        spread = {
            size: 1 - min(each[size] for each in known.values())
            / max(each[size] for each in known.values())
            for size in sizes
        }
        if not spread:
            return [untested("no size was measured in several orders", self.method)]
        told = ", ".join(f"{100 * x:.0f} % at {byte_count(int(s))}" for s, x in spread.items())
        holds = all(each <= self.share for each in spread.values())
        words = f"{', '.join(known)}: the slowest is behind the fastest by {told}"
        return [Finding(Outcome.of(holds), words, self.method)]


def _told(numbers: Rates) -> str:
    return ", ".join(f"{number:.3g} at {byte_count(int(size))}" for size, number in numbers.items())
