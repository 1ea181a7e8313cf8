"""What the papers claim, where in them, and what is measured of it here.

The only place that knows the papers' numbers. A claim is a record: which rows, over which others,
at which sizes, between which bounds. Numbers that are not a paper's own are what its words are
taken to mean, and said in the claim: "the same" is within ten percent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from onesided.apps.cli.report import BASELINE, byte_count
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
    first. ``shares``: by bytes what part of the time is saved at least. ``points``: different x
    that there must be, ``low_x``: which at least; ``ranks``: of a job at least.
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
        entries = [e for result in mine for e in usable(result, self.ranks)]
        for method in self.methods:
            places = dict(self._quotients(method, entries))
            counted = {x for x, _ in places}
            if len(counted) < self.points:
                missing = "not measured" if not places else f"one {self.x} only"
                yield method, OPEN, f"{missing}, or on more ranks than there are cores"
                continue
            yield method, self._verdict(places), self._told(places)

    def _quotients(
        self, method: str, entries: Sequence[Entry]
    ) -> Iterator[tuple[tuple[float, str], Interval]]:
        """By x and the rest of the labels."""
        rows = [e for e in entries if e.method == method and self._wanted(e, self.threads)]
        plain = [e for e in rows if e.label("memory") == "plain"]
        for entry in plain or rows:
            size, x = size_of(entry), self._x(entry)
            near = [e for e in entries if e.file == entry.file]
            if not self.low * 0.99 <= size <= self.high * 1.01 or x < self.low_x:
                continue
            found = self._quotient(entry, near)
            if found is not None:
                rest = " ".join(
                    text for name, text in entry.labels.items()
                    if name not in ("method", "memory", self.x)
                )  # fmt: skip
                yield (x, rest), found

    def _wanted(self, entry: Entry, threads: int) -> bool:
        given = {name: [texts] if isinstance(texts, str) else texts
                 for name, texts in self.labels.items()}  # fmt: skip
        fits = all(entry.label(name) in texts for name, texts in given.items())
        return fits and entry.label("threads") in ("", str(threads))

    def _x(self, entry: Entry) -> float:
        if self.x == "bytes":
            return size_of(entry)
        return entry.number(self.x) or 0.0

    def _quotient(self, entry: Entry, near: Sequence[Entry]) -> Interval | None:
        if self.value == "break_even":
            count = entry.values.get("break_even")
            return None if count is None else Interval(math.inf if count == "never" else count)
        if self.over == "largest":
            alike = [e for e in near if _alike(e, entry, ("partition",))]
            other = max(alike, key=size_of, default=None)
            if other is entry:
                return None
        elif "=" in str(self.over) and isinstance(self.over, str):
            name, _, text = self.over.partition("=")
            other = next((e for e in near if e.label(name) == text and _alike(e, entry, (name,))),
                         None)  # fmt: skip
        else:
            wanted = self.over if isinstance(self.over, str) else self.over[entry.method]
            own = ("method", "memory", "order" if self.command == TREE else "method", "op")
            others = [e for e in near if e.method == wanted and _alike(e, entry, own)]
            exact = [e for e in others if e.label("memory") == entry.label("memory")]
            other = next(iter(exact or others), None)
        if other is None:
            return None
        if self.value == "time":
            return entry.over(other)
        if self.value == "rate":
            return other.over(entry)
        one, two = entry.number(self.value), other.number(self.value)
        return None if not one or not two else Interval(one / two)

    def _verdict(self, places: Mapping[tuple[float, str], Interval]) -> str:
        ordered = [places[key] for key in sorted(places)]
        if self.take == "falls":
            first, last = ordered[0], ordered[-1]
            sure = first.known and last.known
            return _of(sure and last.high < first.low, sure and last.low >= first.high)
        ordered = {"first": ordered[:1], "last": ordered[-1:]}.get(self.take, ordered)
        judged = []
        for (x, _), each in zip(sorted(places), ordered, strict=False):
            most = 1.0 - _share(self.shares, x) if self.shares else self.most
            point = self.value == "break_even" or self.take == "mostly"
            low, high = (each.median,) * 2 if point else (each.low, each.high)
            inside = low >= self.least and high <= most
            outside = high < self.least or low > most
            judged.append((inside, outside))
        if self.take == "any":
            return _of(any(i for i, _ in judged), all(o for _, o in judged))
        if self.take == "mostly":
            return _of(all(i for i, _ in judged), all(o for _, o in judged))
        return _of(all(i for i, _ in judged), any(o for _, o in judged))

    def _told(self, places: Mapping[tuple[float, str], Interval]) -> str:
        show = byte_count if self.x == "bytes" else "{:.0f}".format
        unit = "" if self.x == "bytes" else f" {self.x}"
        what = {"time": "time", "rate": "bandwidth"}.get(self.value, self.value)
        parts = [f"{places[key]} at {show(key[0])}{unit}" for key in sorted(places)]
        more = f" and {len(parts) - 8} more" if len(parts) > 8 else ""
        over = f" over that of {self.over}" if isinstance(self.over, str) else " over the other's"
        return f"{what}{'' if self.value == 'break_even' else over}: {', '.join(parts[:8])}{more}"


def _of(holds: bool, fails: bool) -> str:
    return HOLDS if holds else FAILS if fails else UNCLEAR


def _share(shares: Mapping[int, float], size: float) -> float:
    """Local. Of the size that is meant; 1 (nothing is allowed) is of none."""
    return next((share for each, share in shares.items() if abs(size / each - 1) < 0.01), -math.inf)


def _alike(one: Entry, other: Entry, but: Sequence[str]) -> bool:
    names = {*one.labels, *other.labels} - set(but)
    return all(one.label(name) == other.label(name) for name in names)


def size_of(entry: Entry) -> float:
    """Local. Bytes of a message, of a partition, or that are moved."""
    for name in ("message_bytes", "partition_bytes", "bytes"):
        if entry.number(name) is not None:
            return entry.number(name) or 0.0
    return 0.0


def usable(result: Result, least: int) -> Iterator[Entry]:
    """Local. Rows with right data, of enough ranks, that have a core for every thread."""
    cores, nodes = result.machine.get("all_cores", 1), result.machine.get("nodes", 1)
    for entry in result.timed:
        ranks = entry.number("ranks") or result.machine.get("ranks", 1)
        busy = ranks * (entry.number("threads") or 1)
        if entry.right and ranks >= least and (busy <= cores or nodes > 1):
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


KIBI, MEBI = 1 << 10, 1 << 20
MANY = 16  # threads of papers 002 and 004
UNIFORM, IRREGULAR, TREE = "bench alltoallv", "bench patterns", "bench broadcast"
CELLS, PARTS = "bench rma-mt", "bench partitioned"
FENCE = ("rma-fence", "rma-fence-paper")
LOCK = ("rma-lock", "rma-lock-paper")
TREES = ("rma-binomial", "passive")
LINEAR = {"rma-binomial": "rma-linear", "passive": "one-sided"}
BY = {"latency": "time", "bandwidth": "gigabytes_per_s", "rate-halo": "messages_per_s"}
OURS = ("p2p", "p2p-gather", "rma")  # our partitioned sends, which gather partitions
ONE = {"order": "left-to-right", "marked": "one by one"}
GROUPED = {"aggregate": "64 KiB", "marked": "one by one"}

#: By the paper where in it, its words, and the rule.
BY_PAPER: dict[Paper, Sequence[tuple[str, str, Rule]]] = {
    Paper(
        "paper 000",
        "Analyzing Persistent Alltoallv RMA Implementations for High-Performance MPI Communication",
        "up to 448 processes, 28 per node, InfiniBand, MVAPICH2",
    ): (
        ("Sections 1 and 5, Figure 2",
         "From 32 KiB per process on, the persistent fence exchange is faster than MPI_Alltoallv.",
         Rule(UNIFORM, FENCE, low=32 * KIBI, most=1.0)),
        ("Sections 5 and 6, Figure 2",
         "From 32 KiB per process on, the persistent lock exchange is faster than MPI_Alltoallv.",
         Rule(UNIFORM, LOCK, low=32 * KIBI, most=1.0)),
        ("Sections 5 and 6, Figure 2",
         "Up to 16 KiB per process, MPI_Alltoallv is not slower than the persistent exchanges.",
         Rule(UNIFORM, (*FENCE, *LOCK), high=16 * KIBI, least=1.0)),
        ("Section 5, Figure 2",
         "Fence saves 30.2 % of a call at 32 KiB, 27.1 % at 128 KiB, 27.6 % at 1 MiB and 44.3 % at "
         "2 MiB, or more.",
         Rule(UNIFORM, FENCE, shares={32 * KIBI: 0.302, 128 * KIBI: 0.271, MEBI: 0.276, 2 * MEBI:
              0.443})),
        ("Section 5, Figure 2",
         "Lock saves 25.1 % of a call at 32 KiB, 14.7 % at 128 KiB, 17.5 % at 1 MiB and 38.3 % at "
         "2 MiB, or more.",
         Rule(UNIFORM, LOCK, shares={32 * KIBI: 0.251, 128 * KIBI: 0.147, MEBI: 0.175, 2 * MEBI:
              0.383})),
        ("Section 5, equation 3",
         "From 32 KiB per process on, the set-up has paid after one iteration.",
         Rule(UNIFORM, (*FENCE, *LOCK), low=32 * KIBI, value="break_even", most=1.0)),
        ("Section 5, Figure 1",
         "With 2 MiB per process, fence stays ahead of MPI_Alltoallv as processes are added (28 to "
         "448 there, 38 % ahead at the end).",
         Rule(UNIFORM, FENCE, low=2 * MEBI, high=2 * MEBI, x="ranks", points=2, most=1.0)),
        ("Section 5, Figure 1",
         "With 2 MiB per process, lock falls behind MPI_Alltoallv as processes are added (Figure 2 "
         "has it ahead on the 224 processes of that figure, with as many bytes).",
         Rule(UNIFORM, LOCK, low=2 * MEBI, high=2 * MEBI, x="ranks", points=2, take="last",
              least=1.0)),
        ("Sections 1 and 6",
         "Fence is faster than lock throughout.",
         Rule(UNIFORM, FENCE, dict(zip(FENCE, LOCK, strict=True)), most=1.0)),
        ("Section 5.1, Figure 3",
         "On the pattern of a sparse matrix, fence and hierarchical fence take the same time "
         "(within 10 %).",
         Rule(IRREGULAR, ("rma-fence-hier",), {"rma-fence-hier": "rma-fence"}, least=0.9,
              most=1.1)),
        ("Section 5.1, Figure 3",
         "On the pattern of a sparse matrix, fence is faster than lock.",
         Rule(IRREGULAR, FENCE, dict(zip(FENCE, LOCK, strict=True)), most=1.0)),
    ),
    Paper(
        "paper 002",
        "RMA-MT: A Benchmark Suite for Assessing MPI Multi-threaded RMA Performance",
        "2 nodes of 16 cores and more, InfiniBand QDR, MVAPICH 2.1 and Open MPI of October 2015",
    ): (
        ("Section V, Figure 1",
         "With one thread, the latency of one-sided messages is above that of two-sided ones, also "
         "with the best synchronization, PSCW.",
         Rule(CELLS, ("pscw",), "two-sided", labels={"pattern": "latency", "op": "put"},
              value=BY["latency"], least=1.0, take="mostly")),
        ("Section VI.A, Figure 3",
         "The latency of PSCW is less than half of that of lock_all, with one thread and with "
         "sixteen (44 % and 27 % of it there).",
         Rule(CELLS, ("pscw",), {"pscw": "lock_all"}, labels={"pattern": "latency", "op": "put"},
              value=BY["latency"], most=0.5, take="mostly")),
        ("Section VI.A, Figure 3",
         "From one thread to sixteen, latencies grow at least fourfold (almost 5 times with fence "
         "and PSCW there, almost 8 times with lock and lock_all).",
         Rule(CELLS, ("fence", "pscw", "lock", "lock_all"), "threads=1", labels={"pattern":
              "latency", "op": "put"}, value=BY["latency"], least=4.0, threads=MANY,
              take="mostly")),
        ("Section VI.A, Figure 2",
         "From one thread to sixteen, lock_all loses bandwidth (19 % there).",
         Rule(CELLS, ("lock_all",), "threads=1", labels={"pattern": "bandwidth", "op": "put"},
              value=BY["bandwidth"], most=1.0, threads=MANY, take="mostly")),
        ("Section VI.A, Figure 4",
         "With messages below 2 KiB, lock_all has less than half of the halo exchange rate of the "
         "two-sided baseline (49.5 % there).",
         Rule(CELLS, ("lock_all",), "two-sided", labels={"pattern": "rate-halo", "op": "get"},
              value=BY["rate-halo"], most=0.5, high=2 * KIBI - 1, take="mostly")),
        ("Section VI.A, Figure 4",
         "Fence and PSCW have the same halo exchange rate with one thread (2.3 % apart there; "
         "within 10 %).",
         Rule(CELLS, ("fence",), {"fence": "pscw"}, labels={"pattern": "rate-halo", "op": "get"},
              value=BY["rate-halo"], least=0.9, most=1.1, take="mostly")),
        ("Section VI.A, Figure 4",
         "With messages below 2 KiB, fence loses halo exchange rate from one thread to sixteen "
         "(68.2 % are left there): at least a quarter of it.",
         Rule(CELLS, ("fence",), "threads=1", labels={"pattern": "rate-halo", "op": "get"},
              value=BY["rate-halo"], most=0.75, high=2 * KIBI - 1, threads=MANY, take="mostly")),
        ("Section VI.B, Figure 5",
         "With one thread, bandwidths at 1 MiB hardly depend on the synchronization (within 10 %).",
         Rule(CELLS, ("lock", "pscw"), {"lock": "fence", "pscw": "fence"}, labels={"pattern":
              "bandwidth", "op": "put"}, value=BY["bandwidth"], least=0.9, most=1.1, low=MEBI,
              high=MEBI, take="mostly")),
        ("Section VI.B, Figure 5",
         "With sixteen threads, fence has less bandwidth than lock (21 % less there).",
         Rule(CELLS, ("fence",), {"fence": "lock"}, labels={"pattern": "bandwidth", "op": "put"},
              value=BY["bandwidth"], most=1.0, threads=MANY, take="mostly")),
        ("Section VI.B, Figure 5",
         "From one thread to sixteen, fence loses bandwidth (28 % there).",
         Rule(CELLS, ("fence",), "threads=1", labels={"pattern": "bandwidth", "op": "put"},
              value=BY["bandwidth"], most=1.0, threads=MANY, take="mostly")),
        ("Section VI.B, Figure 7",
         "At 8 bytes, fence has less than half of the halo exchange rate of the two-sided baseline "
         "(43.4 % there).",
         Rule(CELLS, ("fence",), "two-sided", labels={"pattern": "rate-halo", "op": "put"},
              value=BY["rate-halo"], most=0.5, low=8, high=8, take="mostly")),
        ("Section VI.B, Figure 7",
         "At 1 MiB, fence has at least 90 % of it (96.4 % there).",
         Rule(CELLS, ("fence",), "two-sided", labels={"pattern": "rate-halo", "op": "put"},
              value=BY["rate-halo"], least=0.9, low=MEBI, high=MEBI, take="mostly")),
        ("Section VII.A, Figure 8",
         "In HPCCG, Puts by a thread for every neighbor between lock_all and unlock_all cost at "
         "most 2.9 % of the time with messages.",
         Rule("hpccg", ("lock-all-threads",), "two-sided", most=1.029, x="ranks", low_x=2)),
        ("Section VII.B, Figure 8",
         "In MiniMD, Puts by a thread for every neighbor between two fences cost at most 2.4 % of "
         "the time with messages (Open MPI; with MVAPICH2 7.8 %).",
         Rule("minimd", ("fence-threads",), "two-sided", most=1.024, x="ranks", low_x=2)),
        ("Section VII.C, Figure 8",
         "In MiniFE, Puts by a thread for every neighbor between two fences cost at most 3.0 % of "
         "the time with messages (Open MPI; with MVAPICH2 44.1 %).",
         Rule("minife", ("fence-threads",), "two-sided", most=1.030, x="ranks", low_x=2)),
    ),
    Paper(
        "paper 003",
        "Towards Efficient Collectives for MPI Remote Memory Access",
        "48 processes on 6 nodes, InfiniBand QDR, MVAPICH2 2.3.1; 96 on 12 nodes, Gigabit "
        "Ethernet, MPICH 3.2.1",
    ): (
        ("Section 4, Figures 13 to 16",
         "From some length on, the binomial tree is faster than the linear broadcast.",
         Rule(TREE, TREES, LINEAR, take="last", most=1.0, ranks=4)),
        ("Section 4, Figures 13 to 16",
         "For small messages the linear broadcast is the faster one.",
         Rule(TREE, TREES, LINEAR, take="first", least=1.0, ranks=4)),
        ("Sections 4 and 5",
         "The tree gains with the length of the message and with the number of processes.",
         Rule(TREE, TREES, LINEAR, take="falls", points=2, ranks=4)),
        ("Section 4",
         "The tree gains more on a slower network.",
         Rule(TREE, TREES, LINEAR, take="falls", x="nodes", points=2, ranks=4)),
        ("Section 4, Figure 14",
         "10 MiB: the tree is ahead from 32 processes on.",
         Rule(TREE, TREES, LINEAR, low=0.9 * 10 * MEBI, high=1.1 * 10 * MEBI, x="ranks",
              low_x=32, most=1.0)),
        ("Section 4, Figure 14",
         "16 MiB: the tree is ahead from 24 processes on.",
         Rule(TREE, TREES, LINEAR, low=0.9 * 16 * MEBI, high=1.1 * 16 * MEBI, x="ranks",
              low_x=24, most=1.0)),
        ("Section 4, Figure 16",
         "16 KiB: the tree is ahead from 80 processes on.",
         Rule(TREE, TREES, LINEAR, low=0.9 * 16 * KIBI, high=1.1 * 16 * KIBI, x="ranks",
              low_x=80, most=1.0)),
        ("Section 4, Figure 16",
         "34 KiB: the tree is ahead from 32 processes on.",
         Rule(TREE, TREES, LINEAR, low=0.9 * 34 * KIBI, high=1.1 * 34 * KIBI, x="ranks",
              low_x=32, most=1.0)),
    ),
    Paper(
        "paper 004",
        "Benchmarking the State of MPI Partitioned Communication in Open MPI",
        "2 processes on 2 nodes, InfiniBand HDR, Open MPI 5.0.3",
    ): (
        ("Section 5.1, Figure 3",
         "Persistent and partitioned sends keep the bandwidth of the whole buffer down to "
         "partitions of 64 KiB (90 % of it).",
         Rule(PARTS, ("persistent", "psend"), "largest", labels=ONE, value="rate", low=64 * KIBI,
              least=0.9)),
        ("Section 5.1, Figure 3",
         "Blocking sends lose bandwidth soon when the buffer is split (below 90 % at 256 KiB).",
         Rule(PARTS, ("send",), "largest", labels=ONE, value="rate", high=256 * KIBI,
              take="last", most=0.9)),
        ("Section 5.1, Figure 3",
         "With small partitions, partitioned sends come down to blocking sends (within a factor of "
         "1.5 at the smallest).",
         Rule(PARTS, ("psend",), {"psend": "send"}, labels=ONE, value="rate", take="first",
              least=1 / 1.5, most=1.5)),
        ("Section 5.1, Figure 3",
         "With one thread, persistent and partitioned sends are the same (within 10 %).",
         Rule(PARTS, ("psend",), {"psend": "persistent"}, labels=ONE, value="rate", least=0.9,
              most=1 / 0.9)),
        ("Section 5.1, Figure 4",
         "From 1 to 16 threads, persistent sends of large partitions lose a quarter of their "
         "bandwidth.",
         Rule(PARTS, ("persistent",), "threads=1", labels=ONE, value="rate", threads=MANY,
              take="last", most=0.75)),
        ("Section 5.1, Figure 4",
         "From 1 to 16 threads, partitioned sends of large partitions lose less than that.",
         Rule(PARTS, ("psend",), "threads=1", labels=ONE, value="rate", threads=MANY,
              take="last", least=0.75)),
        ("Section 5.2, Figure 5",
         "The order in which partitions are marked does not matter (within 10 %).",
         Rule(PARTS, ("psend",), "order=left-to-right", labels={"order": ["randomized",
              "neighborhood"], "marked": "one by one"}, value="rate", least=0.9, most=1 / 0.9)),
        ("Section 5.3, Figure 6a",
         "With aggregation, sequential and neighborhood order keep the bandwidth of large "
         "partitions whatever the size (90 % of it).",
         Rule(PARTS, OURS, "largest", labels={**GROUPED, "order": ["left-to-right",
              "neighborhood"]}, value="rate", least=0.9)),
        ("Section 5.3, Figure 6b",
         "With aggregation, a random order loses bandwidth (below 90 % of the sequential order's "
         "with some size).",
         Rule(PARTS, OURS, "order=left-to-right", labels={**GROUPED, "order": ["randomized"]},
              value="rate", take="any", most=0.9)),
    ),
}  # fmt: skip

CLAIMS = [Claim(paper, *told) for paper, claims in BY_PAPER.items() for told in claims]
