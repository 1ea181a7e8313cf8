"""What the papers claim, and what is measured of it here.

A claim is a record of ``data/claims.toml``, the only place that knows the papers' numbers: which
rows, over which others, at which sizes, between which bounds. Numbers that are not a paper's own
are what its words are taken to mean, and said in the claim: "the same" is within ten percent.
"""

from __future__ import annotations

import math
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files

from onesided.apps.cli.options import size as read_size
from onesided.apps.cli.report import BASELINE, NEVER, byte_count
from onesided.apps.cli.statistics import Interval
from onesided.apps.report.result import Entry, Result

WORDS = (
    "Computed from the results in this report. Where a paper's method is here in several variants, "
    "each has a verdict: names that end in -paper are the algorithms as they are printed, made "
    "right. The paper's own kind of receive memory (plain) counts where it was measured. Times are "
    "medians; in brackets is where they lie with 95 % confidence (six rounds or more are needed), "
    "and a verdict is unclear where the bound lies there as well. More ranks than cores say "
    "nothing about speed, so such measurements decide nothing, except between nodes."
)
HOLDS, FAILS, UNCLEAR, OPEN = (
    "holds here", "does not hold here", "unclear here", "cannot be tested here",
)  # fmt: skip
WRONG = Interval(math.nan, math.nan, math.nan)  # of data that one of two rows got wrong
#: The rest of a row's labels, where it lies along x, and what it is divided by another row.
Place = tuple[str, float, Interval]
CLAIM_COLUMNS = ("paper", "where", "claim", "variant", "verdict", "evidence")


@dataclass(frozen=True)
class Paper:
    """A paper with a short name, and the machine of its measurements."""

    name: str
    title: str
    machine: str


@dataclass(frozen=True)
class Rule:
    """Which rows decide a claim, and how.

    ``methods``: each has a verdict of its own. ``over``: what a row is divided by: a method, one by
    method, the row with another label ("threads=1"), or that of the ``largest`` size. ``labels``:
    texts that rows have; ``threads``: how many, 1 if that is not said. ``value``: ``time``, or a
    number of a row; ``low`` to ``high`` are bytes. The quotients must be at ``least`` and at
    ``most`` so much: at ``every`` place, at the ``first`` or the ``last`` along ``x``, at ``any``;
    ``mostly``: holds at all, fails at none; ``falls``: it is smaller at the last than at the
    first. ``shares``: by bytes what part of the time is saved at least, all these sizes are needed.
    ``points``: different x that rows with the same other labels must have, ``low_x``: which at
    least; ``ranks``: of a job at least.

    Rows with wrong data decide nothing; nor is there a verdict where the first, last or largest
    place that a claim is about has them.
    """

    command: str
    methods: Sequence[str]
    over: str | Mapping[str, str] = BASELINE
    labels: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    value: str = "time"
    x: str = "bytes"
    low: float = 0.0
    high: float = math.inf
    low_x: float = 0.0
    least: float = 0.0
    most: float = math.inf
    take: str = "every"
    shares: Mapping[int, float] = field(default_factory=dict)
    threads: int = 1
    points: int = 1
    ranks: int = 1

    def judge(self, results: Sequence[Result]) -> Iterator[tuple[str, str, str]]:
        """Variant, verdict and evidence, for each method at least one."""
        mine = [result for result in results if result.command == self.command]
        if not mine:
            yield "", OPEN, f"onesided {self.command} was not run"
            return
        entries = [e for result in mine for e in at_speed(result, self.ranks)]
        for method in self.methods:
            places = sorted(self._quotients(method, entries), key=lambda each: each[:2])
            right = {each[:2] for each in places if each[2] is not WRONG}
            places = [each for each in places if each[2] is not WRONG or each[:2] not in right]
            most = max(Counter(rest for rest, _ in right).values(), default=0)
            wanted = max(self.points, len(self.shares))
            if most < wanted:
                missing = f"measured at {most} of {wanted} {self.x}" if most else "not measured"
                yield method, OPEN, f"{missing}, or wrong, or on more ranks than there are cores"
                continue
            yield method, self._verdict(places), self._told(places)

    def _quotients(self, method: str, entries: Sequence[Entry]) -> Iterator[Place]:
        threads = {"threads": ["", str(self.threads)]}
        rows = [e for e in entries if e.method == method and e.has({**threads, **self.labels})]
        plain = [e for e in rows if e.label("memory") == "plain"]
        for entry in plain or rows:
            size = size_of(entry)
            x = size if self.x == "bytes" else entry.number(self.x)
            near = [e for e in entries if e.file == entry.file]
            if not self.low * 0.99 <= size <= self.high * 1.01 or (x or 0.0) < self.low_x:
                continue
            if self.shares and _share(self.shares, size) is None:
                continue
            other = self._other(entry, near)
            found = None if other is None else self._quotient(entry, other)
            if other is not None and found is not None:
                along = ("bytes", "message", "partition") if self.x == "bytes" else (self.x,)
                rest = [f"{name} {text}" for name, text in entry.labels.items()
                        if name not in ("method", "memory", *along)]  # fmt: skip
                yield " ".join(rest), x or 0.0, found if entry.right and other.right else WRONG

    def _other(self, entry: Entry, near: Sequence[Entry]) -> Entry | None:
        """Local. What a row is divided by; of a count, which is not divided, the row itself."""
        if self.value == "break_even":
            return entry
        if self.over == "largest":
            alike = [e for e in near if _alike(e, entry, ("partition",))]
            largest = max(alike, key=size_of, default=entry)
            return None if largest is entry else largest
        if isinstance(self.over, str) and "=" in self.over:
            name, _, text = self.over.partition("=")
            others = [e for e in near if e.label(name) == text and _alike(e, entry, (name,))]
            return next(iter(others), None)
        wanted = self.over if isinstance(self.over, str) else self.over[entry.method]
        own, op = ["method", "memory", "op"], entry.label("op")
        own += ["order"] if self.command == "bench broadcast" else []  # of a tree alone
        others = [e for e in near if e.method == wanted and _alike(e, entry, own)]
        others = [e for e in others if not op or e.label("op") in ("", op)]
        exact = [e for e in others if e.label("memory") == entry.label("memory")]
        return min(exact or others, key=lambda e: not e.right, default=None)

    def _quotient(self, entry: Entry, other: Entry) -> Interval | None:
        if self.value == "break_even":
            count = entry.values.get("break_even")
            return None if count is None else Interval(math.inf if count == NEVER else count)
        if self.value == "time":
            return entry.over(other)
        if self.value == "rate":
            return other.over(entry)
        one, two = entry.number(self.value), other.number(self.value)
        return None if not one or not two else Interval(one / two)

    def _verdict(self, places: Sequence[Place]) -> str:
        chosen = list(self._chosen(places))
        if any(WRONG in each for each in chosen):
            return OPEN
        judged = [self._judged(*each) for each in chosen]
        holds = any if self.take == "any" else all
        fails = all if self.take in ("any", "mostly") else any
        if judged and holds(inside for inside, _ in judged):
            return HOLDS
        return FAILS if judged and fails(outside for _, outside in judged) else UNCLEAR

    def _chosen(self, places: Sequence[Place]) -> Iterator[tuple[float, Interval, Interval]]:
        """By x the places that decide, each with every one that is first along x. One with wrong
        data is among them only where the claim is about its end of the line."""
        ends = self.take in ("first", "last", "falls")
        places = [each for each in places if ends or each[2] is not WRONG]
        for rest in sorted({each[0] for each in places}):
            line = [each[1:] for each in places if each[0] == rest]
            first, last = line[0][0], line[-1][0]
            at = {"first": first, "last": last, "falls": last if last > first else None}
            for x, found in line:
                if x == at.get(self.take, x):
                    yield from ((x, found, base) for begin, base in line if begin == first)

    def _judged(self, x: float, each: Interval, first: Interval) -> tuple[bool, bool]:
        """Whether a place is inside of the bounds, and whether it is outside."""
        if self.take == "falls":
            sure = first.known and each.known
            return sure and each.high < first.low, sure and each.low >= first.high
        most = 1.0 - (_share(self.shares, x) or 0.0) if self.shares else self.most
        point = self.value == "break_even" or self.take == "mostly"
        low, high = (each.median,) * 2 if point else (each.low, each.high)
        return low >= self.least and high <= most, high < self.least or low > most

    def _told(self, places: Sequence[Place]) -> str:
        show = byte_count if self.x == "bytes" else "{:.0f}".format
        unit = "" if self.x == "bytes" else f" {self.x}"
        what = {"time": "time", "rate": "bandwidth"}.get(self.value, self.value)
        parts = [f"{self._number(found)} at {show(x)}{unit}" for _, x, found in places]
        more = f" and {len(parts) - 8} more" if len(parts) > 8 else ""
        over = f" over that of {self.over}" if isinstance(self.over, str) else " over the other's"
        return f"{what}{'' if self.value == 'break_even' else over}: {', '.join(parts[:8])}{more}"

    def _number(self, found: Interval) -> str:
        """Local. A count is known, it has no bounds."""
        if found is WRONG:
            return "wrong data"
        if self.value != "break_even":
            return str(found)
        return f"{found.median:.0f}" if math.isfinite(found.median) else NEVER


def _share(shares: Mapping[int, float], size: float) -> float | None:
    """Local. Of the size that is meant; None where the claim says nothing of it."""
    return next((share for each, share in shares.items() if abs(size / each - 1) < 0.01), None)


def _alike(one: Entry, other: Entry, but: Sequence[str]) -> bool:
    names = {*one.labels, *other.labels} - set(but)
    return all(one.label(name) == other.label(name) for name in names)


def size_of(entry: Entry) -> float:
    """Local. Bytes of a message, of a partition, or that are moved."""
    for name in ("message_bytes", "partition_bytes", "bytes"):
        if entry.number(name) is not None:
            return entry.number(name) or 0.0
    return 0.0


def at_speed(result: Result, least: int) -> Iterator[Entry]:
    """Local. Rows that were timed on enough ranks, with a core for every thread."""
    cores, nodes = result.machine.get("all_cores", 1), result.machine.get("nodes", 1)
    for entry in result.timed:
        ranks = entry.number("ranks") or result.machine.get("ranks", 1)
        busy = ranks * (entry.number("threads") or 1)
        if ranks >= least and (busy <= cores or nodes > 1):
            yield entry


@dataclass(frozen=True)
class Claim:
    """What a paper says, where in it, and the rule that decides."""

    paper: Paper
    where: str
    words: str
    rule: Rule


@dataclass(frozen=True)
class Finding:
    """A verdict about a claim, and the numbers that it rests on; ``variant``: whose these are."""

    claim: Claim
    variant: str
    verdict: str
    evidence: str

    def row(self) -> tuple[str, ...]:
        """Under :data:`CLAIM_COLUMNS`."""
        claim = self.claim
        return (claim.paper.name, claim.where, claim.words, self.variant, self.verdict,
                self.evidence)  # fmt: skip


def judged(results: Sequence[Result]) -> list[Finding]:
    """Local. Every claim, decided by results of one machine and MPI."""
    return [Finding(claim, *found) for claim in CLAIMS for found in claim.rule.judge(results)]


def _read() -> Iterator[Claim]:
    """Local. The claims of ``data/claims.toml``."""
    text = (files("onesided.apps") / "data" / "claims.toml").read_text(encoding="utf-8")
    for given in tomllib.loads(text)["paper"]:
        claims = given.pop("claim")
        paper = Paper(**given)
        for claim in claims:
            where, words = claim.pop("where"), claim.pop("words")
            for name in claim.keys() & {"low", "high"}:
                claim[name] = float(read_size(str(claim[name])))
            claim["shares"] = {read_size(at): part for at, part in claim.get("shares", {}).items()}
            yield Claim(paper, where, words, Rule(**claim))


CLAIMS = list(_read())
