"""A claim of a paper, what was found out about it here, and which measurements a verdict rests on.

More ranks than cores say nothing about speed, so such measurements decide nothing, except between
nodes, where the network may be what counts; the evidence says so then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

from onesided.apps.cli.report import byte_count
from onesided.apps.cli.statistics import Interval
from onesided.apps.report.result import Entry, Result, known


class Outcome(Enum):
    """A verdict in plain language; the values are what the reader sees."""

    HOLDS = "holds here"
    FAILS = "does not hold here"
    UNCLEAR = "unclear here"
    OPEN = "cannot be tested here"

    @classmethod
    def of(cls, holds: bool, fails: bool) -> Outcome:
        """Local. Unclear where neither is sure."""
        return cls.HOLDS if holds else cls.FAILS if fails else cls.UNCLEAR

    @classmethod
    def every(cls, parts: Iterable[Outcome]) -> Outcome:
        """Local. Of a claim that says several things at once."""
        found = list(parts)
        return cls.of(all(each is cls.HOLDS for each in found), cls.FAILS in found)

    @property
    def opposite(self) -> Outcome:
        """Local. Of the claim that says the contrary."""
        found = {Outcome.HOLDS: Outcome.FAILS, Outcome.FAILS: Outcome.HOLDS}
        return found.get(self, self)


# What a claim says about a ratio. The whole interval decides: unclear where the bound lies in it.

Test: TypeAlias = Callable[[Interval], Outcome]


def at_most(bound: float) -> Test:
    """Local."""
    return lambda found: Outcome.of(found.high <= bound, found.low > bound)


def at_least(bound: float) -> Test:
    """Local."""
    return lambda found: Outcome.of(found.low >= bound, found.high < bound)


def below(bound: float) -> Test:
    """Local. The bound itself is not below."""
    return lambda found: at_least(bound)(found).opposite


def above(bound: float) -> Test:
    """Local. The bound itself is not above."""
    return lambda found: at_most(bound)(found).opposite


def between(low: float, high: float) -> Test:
    """Local. Both ends are within."""
    return lambda found: Outcome.every((at_least(low)(found), at_most(high)(found)))


def less(one: Interval, other: Interval) -> Outcome:
    """Local. Unclear where they overlap."""
    return Outcome.of(one.high < other.low, one.low >= other.high)


@dataclass(frozen=True)
class Finding:
    """A verdict, and the numbers that it rests on; ``variant`` is whose numbers these are."""

    outcome: Outcome
    evidence: str
    variant: str = ""


def untested(reason: str, variant: str = "") -> Finding:
    """Local. A finding for want of measurements."""
    return Finding(Outcome.OPEN, reason, variant)


def told(parts: Mapping[float, object]) -> str:
    """Local. Ratios, or what else there is, by size in bytes."""
    return ", ".join(f"{part} at {byte_count(round(size))}" for size, part in parts.items())


def decided(
    variant: str, parts: Mapping[Any, Interval], test: Test, words: str, by: str = ""
) -> Finding:
    """Local. Every one of these ratios, of which there is one, must pass; they are told behind
    ``words``, by size, or as ``by`` says."""
    outcome = Outcome.every(test(part) for part in parts.values())
    return Finding(outcome, f"{words} {by or told(parts)}", variant)


@dataclass(frozen=True)
class Rule:
    """How a claim is decided by what a command measured, and by nothing else.

    ``look`` makes the findings; where it makes none, ``missing`` tells what was not measured.
    """

    command: str
    look: Callable[[Samples], Iterable[Finding]]
    missing: str

    def judge(self, results: Sequence[Result]) -> list[Finding]:
        """Local. At least one finding, from results of one machine and MPI."""
        samples = Samples.of(results, self.command)
        if samples.reason:
            return [untested(samples.reason)]
        return list(self.look(samples)) or [samples.untested(self.missing)]


@dataclass(frozen=True)
class Paper:
    """A paper with a short name, and the machine of its measurements."""

    name: str
    title: str
    machine: str


@dataclass(frozen=True)
class Claim:
    """What a paper says, where in it, and the rule that decides."""

    paper: Paper
    where: str
    words: str
    rule: Rule


CLOSE = 0.01  # sizes that differ by so little, because they are whole elements, are the same
#: Receive memory, the paper's own (an array of the caller) first.
MEMORIES = ("plain", "empty", "slots")


@dataclass(frozen=True)
class Sample:
    """Rows of a command on so many ranks and nodes; ``cores``: of all ranks together."""

    ranks: int
    nodes: int
    cores: int
    entries: Sequence[Entry]

    @property
    def crowded(self) -> bool:
        """Local. More ranks than cores."""
        return self.ranks > self.cores

    def __str__(self) -> str:
        where = f"{self.ranks} rank{'s'[: self.ranks != 1]} on {self.nodes} "
        where += f"node{'s'[: self.nodes != 1]}"
        return f"{where}, more than there are cores" if self.crowded else where


@dataclass(frozen=True)
class Samples:
    """Those that may decide, fewest ranks first, or the reason why there are none.

    ``crowded`` says which may not, for a sentence about why something cannot be tested.
    """

    found: Sequence[Sample]
    reason: str = ""
    crowded: str = ""

    @classmethod
    def of(cls, results: Sequence[Result], command: str) -> Samples:
        """Local. By numbers of ranks and nodes; results of the same are taken together.

        Of what was measured several times the last counts, not the best.
        """
        mine = [result for result in results if result.command == command]
        if not mine:
            return cls([], f"onesided {command} was not run")
        rows: dict[tuple[int, int, int], dict[tuple[tuple[str, str], ...], Entry]] = {}
        for result in sorted(mine, key=lambda result: (result.date, result.name)):
            for ranks, entry in _by_ranks(result):
                nodes = _nodes(result, ranks)
                cores = _whole(result, "all_cores", ranks)
                same = rows.setdefault((ranks, nodes, cores), {})
                same[tuple(sorted(entry.labels.items()))] = entry
        every = [Sample(*key, list(found.values())) for key, found in sorted(rows.items())]
        usable = [each for each in every if not each.crowded or each.nodes > 1]
        others = dict.fromkeys(str(each.ranks) for each in every if each not in usable)
        told = f"{', '.join(others)} ranks are more than there are cores" if others else ""
        if not usable:
            return cls([], told or f"onesided {command} measured nothing")
        return cls(usable, crowded=told)

    def untested(self, why: str, variant: str = "") -> Finding:
        """Local. A finding for want of measurements, of which some may not decide."""
        return untested("; ".join(each for each in (why, self.crowded) if each), variant)

    @property
    def most(self) -> Sample:
        """Local. That of most ranks."""
        return self.found[-1]


def of_method(entries: Sequence[Entry], method: str) -> list[Entry]:
    """Local. The timed rows of a method that moved no wrong data."""
    return [
        entry
        for entry in entries
        if entry.method == method
        and entry.median is not None
        and entry.values.get("verified") is not False
    ]


def by_memory(entries: Sequence[Entry], variant: str) -> dict[str, list[Entry]]:
    """Local. Rows by the memory that is received into, each kind of which has its own verdict,
    under the words that name it."""
    kinds = {entry.label("memory") for entry in entries}
    order = [*(kind for kind in MEMORIES if kind in kinds), *sorted(kinds - set(MEMORIES))]
    return {
        f"{variant}, {kind} memory" if kind else variant: [
            entry for entry in entries if entry.label("memory") == kind
        ]
        for kind in order
    }


def within(size: float, low: float, high: float) -> bool:
    """Local. Whether a size is between two others, all but for whole elements."""
    return low * (1 - CLOSE) <= size <= high * (1 + CLOSE)


def same(size: float, other: float) -> bool:
    """Local. Whether two sizes are the same, all but for whole elements."""
    return within(size, other, other)


def _by_ranks(result: Result) -> Iterator[tuple[int, Entry]]:
    whole = _whole(result, "ranks", 1)
    for entry in result.timed:
        ranks = entry.number("ranks")
        yield whole if ranks is None else int(ranks), entry


def _nodes(result: Result, ranks: int) -> int:
    """On how many nodes the first so many ranks of a job are; its ranks fill one after another."""
    per_node = result.machine.get("ranks_per_node")
    if not isinstance(per_node, list):
        return _whole(result, "nodes", 1)
    left, nodes = float(ranks), 0
    for count in per_node:
        if left <= 0:
            break
        left -= known(count) or 0.0
        nodes += 1
    return max(nodes, 1)


def _whole(result: Result, name: str, otherwise: int) -> int:
    value = result.machine.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise
