"""Rules for claims about broadcasts: a tree against the linear broadcast."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onesided.apps.cli.report import byte_count
from onesided.apps.cli.statistics import Interval
from onesided.apps.report.claim import (
    Finding,
    Outcome,
    Rule,
    Sample,
    Samples,
    above,
    below,
    less,
    of_method,
    untested,
)
from onesided.apps.report.result import Result

COMMAND = "bench broadcast"
LEAST = 4  # ranks: on fewer, a tree is nothing but the linear broadcast
NEAR = 0.1  # sizes that differ by so little are taken for the same

#: A tree, and what it is to overtake.
PAIRS = (("rma-binomial", "rma-linear"), ("passive", "one-sided"))
#: Time of the tree over that of the linear broadcast, by size in bytes.
Ratios = Mapping[float, Interval]


@dataclass(frozen=True)
class Race:
    """A tree, in an order of its children, and what it is to overtake."""

    tree: str
    order: str
    linear: str

    def __str__(self) -> str:
        return f"{self.tree} {self.order}"

    def ratios(self, sample: Sample) -> Ratios:
        """Local. By size, where both were measured."""
        theirs = {e.number("bytes"): e for e in of_method(sample.entries, self.linear)}
        found: dict[float, Interval] = {}
        for entry in of_method(sample.entries, self.tree):
            size = entry.number("bytes")
            if entry.label("order") == self.order and size is not None and size in theirs:
                ratio = entry.beside(theirs[size])
                found |= {} if ratio is None else {size: ratio}
        return dict(sorted(found.items()))


class _OfRaces(Rule):
    """A rule that is asked of every tree by itself."""

    def judge(self, results: Sequence[Result]) -> list[Finding]:
        """Local. A finding for every tree and order that was measured."""
        samples = Samples.of(results, COMMAND)
        if samples.reason:
            return [untested(samples.reason)]
        usable = [sample for sample in samples.found if sample.ranks >= LEAST]
        if not usable:
            why = f"on fewer than {LEAST} ranks a tree is the linear broadcast"
            return [samples.untested(why)]
        found = [self._finding(race, usable) for race in _races(usable)]
        return found or [untested("no tree and linear broadcast were measured together")]

    @abstractmethod
    def _finding(self, race: Race, samples: Sequence[Sample]) -> Finding:
        """What the rows of two methods say; at least one sample has both."""


@dataclass(frozen=True)
class Overtakes(_OfRaces):
    """From some size on the tree is faster, on most ranks: with the largest it must be."""

    def _finding(self, race: Race, samples: Sequence[Sample]) -> Finding:
        sample, ratios = _most(race, samples)
        words = f"{sample}: time over the linear one's {_told(ratios)}"
        return Finding(below(ratios[max(ratios)], 1.0), words, str(race))


@dataclass(frozen=True)
class SmallestLinear(_OfRaces):
    """The smallest messages are faster by the linear broadcast."""

    def _finding(self, race: Race, samples: Sequence[Sample]) -> Finding:
        sample, ratios = _most(race, samples)
        size = min(ratios)
        words = f"{sample}: {ratios[size]} of the linear one's time at {byte_count(int(size))}"
        return Finding(above(ratios[size], 1.0), words, str(race))


@dataclass(frozen=True)
class GainGrows(_OfRaces):
    """The larger the message, and the more ranks, the better the tree is beside the other."""

    def _finding(self, race: Race, samples: Sequence[Sample]) -> Finding:
        sample, ratios = _most(race, samples)
        by_ranks = {s.ranks: race.ratios(s).get(max(ratios)) for s in samples}
        known = {ranks: ratio for ranks, ratio in by_ranks.items() if ratio is not None}
        if len(ratios) < 2 or len(known) < 2:
            return untested(f"{sample}: one size or one number of ranks only", str(race))
        sizes = less(ratios[max(ratios)], ratios[min(ratios)])
        ranks = less(known[max(known)], known[min(known)])
        told = ", ".join(f"{ratio} on {count} ranks" for count, ratio in known.items())
        words = (
            f"{sample}: time over the linear one's {_told(ratios)}; "
            f"with {byte_count(int(max(ratios)))} {told}"
        )
        return Finding(Outcome.every((sizes, ranks)), words, str(race))


@dataclass(frozen=True)
class CrossesBy(_OfRaces):
    """With messages of ``size`` bytes the tree is faster on ``ranks`` ranks and more."""

    size: int
    ranks: int

    def _finding(self, race: Race, samples: Sequence[Sample]) -> Finding:
        found: dict[int, tuple[Sample, Interval]] = {}
        for sample in samples:
            for size, ratio in race.ratios(sample).items():
                if abs(size / self.size - 1) <= NEAR:
                    found[sample.ranks] = sample, ratio
        if not found:
            return untested(f"{byte_count(self.size)} was not measured", str(race))
        told = ", ".join(f"{ratio} ({sample})" for sample, ratio in found.values())
        words = f"with {byte_count(self.size)}, time over the linear one's {told}"
        enough = [ratio for ranks, (_, ratio) in found.items() if ranks >= self.ranks]
        if not enough:
            return untested(f"on {max(found)} ranks at most; {words}", str(race))
        return Finding(Outcome.every(below(each, 1.0) for each in enough), words, str(race))


@dataclass(frozen=True)
class SlowerNetworksGain(_OfRaces):
    """The tree gains more between nodes than within one."""

    def _finding(self, race: Race, samples: Sequence[Sample]) -> Finding:
        within = [s for s in samples if s.nodes == 1 and race.ratios(s)]
        between = [s for s in samples if s.nodes > 1 and race.ratios(s)]
        if not within or not between:
            return untested("needs runs on one node and on several", str(race))
        one, other = within[-1], between[-1]
        both = race.ratios(one).keys() & race.ratios(other).keys()
        if not both:
            return untested("no size was measured on one node and on several", str(race))
        pair = [(sample, race.ratios(sample)[max(both)]) for sample in (one, other)]
        told = ", ".join(f"{ratio} of the linear one's time, {s}" for s, ratio in pair)
        words = f"with {byte_count(int(max(both)))} {told}"
        return Finding(less(pair[1][1], pair[0][1]), words, str(race))


def _races(samples: Sequence[Sample]) -> list[Race]:
    """All that were measured, in the order of the rows."""
    found = dict.fromkeys(
        Race(tree, entry.label("order"), linear)
        for tree, linear in PAIRS
        for sample in samples
        for entry in of_method(sample.entries, tree)
    )
    return [race for race in found if any(race.ratios(sample) for sample in samples)]


def _most(race: Race, samples: Sequence[Sample]) -> tuple[Sample, Ratios]:
    """The sample of most ranks that has both."""
    sample = next(each for each in reversed(samples) if race.ratios(each))
    return sample, race.ratios(sample)


def _told(ratios: Ratios) -> str:
    return ", ".join(f"{ratio} at {byte_count(int(size))}" for size, ratio in ratios.items())
