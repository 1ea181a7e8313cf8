"""What the papers claim, where in them, and the rule that decides whether it holds here.

The only place that knows the papers' numbers. Numbers that are not a paper's own are what its words
are taken to mean, and said in the claim: "the same" is within ten percent. The verdicts are a table
of the report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from onesided.apps.report.claim import (
    Claim,
    Finding,
    Outcome,
    Paper,
    Rule,
    above,
    at_least,
    at_most,
    below,
    between,
)
from onesided.apps.report.figure import NOTHING
from onesided.apps.report.markup import Paragraph, element
from onesided.apps.report.page import Section
from onesided.apps.report.result import Result
from onesided.apps.report.rules import (
    FIRST,
    GAIN_GROWS,
    IRREGULAR,
    MANY,
    OVERTAKES,
    SLOWER_NETWORKS_GAIN,
    SMALLEST_LINEAR,
    UNIFORM,
    against,
    beside,
    costs,
    crosses_by,
    keeps,
    loses,
    order_matters,
    over_one_thread,
    over_ranks,
    over_sync,
    over_two_sided,
    pays_at_once,
    quotient,
    saves,
    threaded,
    together,
)

KIBI, MEBI = 1 << 10, 1 << 20
FENCE = ("rma-fence", "rma-fence-paper")
LOCK = ("rma-lock", "rma-lock-paper")
BESIDE = tuple(zip(FENCE, LOCK, strict=True))
ORDERS = (FIRST, "randomized", "neighborhood")
OURS = ("p2p", "p2p-gather", "rma")  # our partitioned sends, which gather partitions
FASTER, ALIKE = below(1.0), between(0.9, 1.1)

#: By the paper where in it, its words, and the rule.
BY_PAPER: dict[Paper, Sequence[tuple[str, str, Rule]]] = {
    Paper(
        "paper 000",
        "Analyzing Persistent Alltoallv RMA Implementations for High-Performance MPI Communication",
        "up to 448 processes, 28 per node, InfiniBand, MVAPICH2",
    ): (
        ("Sections 1 and 5, Figure 2",
         "From 32 KiB per process on, the persistent fence exchange is faster than MPI_Alltoallv.",
         against(FENCE, FASTER, low=32 * KIBI)),
        ("Sections 5 and 6, Figure 2",
         "From 32 KiB per process on, the persistent lock exchange is faster than MPI_Alltoallv.",
         against(LOCK, FASTER, low=32 * KIBI)),
        ("Sections 5 and 6, Figure 2",
         "Up to 16 KiB per process, MPI_Alltoallv is not slower than the persistent exchanges.",
         against((*FENCE, *LOCK), at_least(1.0), high=16 * KIBI)),
        ("Section 5, Figure 2",
         "Fence saves 30.2 % of a call at 32 KiB, 27.1 % at 128 KiB, 27.6 % at 1 MiB and 44.3 % at "
         "2 MiB, or more.",
         saves(FENCE, {32 * KIBI: 0.302, 128 * KIBI: 0.271, MEBI: 0.276, 2 * MEBI: 0.443})),
        ("Section 5, Figure 2",
         "Lock saves 25.1 % of a call at 32 KiB, 14.7 % at 128 KiB, 17.5 % at 1 MiB and 38.3 % at "
         "2 MiB, or more.",
         saves(LOCK, {32 * KIBI: 0.251, 128 * KIBI: 0.147, MEBI: 0.175, 2 * MEBI: 0.383})),
        ("Section 5, equation 3",
         "From 32 KiB per process on, the set-up has paid after one iteration.",
         pays_at_once((*FENCE, *LOCK), low=32 * KIBI)),
        ("Section 5, Figure 1",
         "With 2 MiB per process, fence stays ahead of MPI_Alltoallv as processes are added (28 to "
         "448 there, 38 % ahead at the end).",
         over_ranks(FENCE, 2 * MEBI, ahead=True)),
        ("Section 5, Figure 1",
         "With 2 MiB per process, lock falls behind MPI_Alltoallv as processes are added (Figure 2 "
         "has it ahead on the 224 processes of that figure, with as many bytes).",
         over_ranks(LOCK, 2 * MEBI, ahead=False)),
        ("Sections 1 and 6",
         "Fence is faster than lock throughout.",
         beside(UNIFORM, BESIDE, FASTER)),
        ("Section 5.1, Figure 3",
         "On the pattern of a sparse matrix, fence and hierarchical fence take the same time "
         "(within 10 %).",
         beside(IRREGULAR, [("rma-fence-hier", "rma-fence")], ALIKE)),
        ("Section 5.1, Figure 3",
         "On the pattern of a sparse matrix, fence is faster than lock.",
         beside(IRREGULAR, BESIDE, FASTER)),
    ),
    Paper(
        "paper 002",
        "RMA-MT: A Benchmark Suite for Assessing MPI Multi-threaded RMA Performance",
        "2 nodes of 16 cores and more, InfiniBand QDR, MVAPICH 2.1 and Open MPI of October 2015",
    ): (
        ("Section V, Figure 1",
         "With one thread, the latency of one-sided messages is above that of two-sided ones, also "
         "with the best synchronization, PSCW.",
         quotient(over_two_sided("latency", "pscw", "put", 0), at_least(1.0))),
        ("Section VI.A, Figure 3",
         "The latency of PSCW is less than half of that of lock_all, with one thread and with "
         "sixteen (44 % and 27 % of it there).",
         quotient(over_sync("latency", ["pscw"], "lock_all", threads=(1, MANY)), below(0.5))),
        ("Section VI.A, Figure 3",
         "From one thread to sixteen, latencies grow at least fourfold (almost 5 times with fence "
         "and PSCW there, almost 8 times with lock and lock_all).",
         quotient(over_one_thread("latency", "fence", "pscw", "lock", "lock_all"), at_least(4.0))),
        ("Section VI.A, Figure 2",
         "From one thread to sixteen, lock_all loses bandwidth (19 % there).",
         quotient(over_one_thread("bandwidth", "lock_all"), below(1.0))),
        ("Section VI.A, Figure 4",
         "With messages below 2 KiB, lock_all has less than half of the halo exchange rate of the "
         "two-sided baseline (49.5 % there).",
         quotient(over_two_sided("rate-halo", "lock_all", "get"), below(0.5), high=2 * KIBI - 1)),
        ("Section VI.A, Figure 4",
         "Fence and PSCW have the same halo exchange rate with one thread (2.3 % apart there; "
         "within 10 %).",
         quotient(over_sync("rate-halo", ["fence"], "pscw", "get"), ALIKE)),
        ("Section VI.A, Figure 4",
         "With messages below 2 KiB, fence loses halo exchange rate from one thread to sixteen "
         "(68.2 % are left there): at least a quarter of it.",
         quotient(over_one_thread("rate-halo", "fence", op="get"), below(0.75), high=2 * KIBI - 1)),
        ("Section VI.B, Figure 5",
         "With one thread, bandwidths at 1 MiB hardly depend on the synchronization (within 10 %).",
         quotient(over_sync("bandwidth", ["lock", "pscw"], "fence"), ALIKE, low=MEBI, high=MEBI)),
        ("Section VI.B, Figure 5",
         "With sixteen threads, fence has less bandwidth than lock (21 % less there).",
         quotient(over_sync("bandwidth", ["fence"], "lock", threads=[MANY]), below(1.0))),
        ("Section VI.B, Figure 5",
         "From one thread to sixteen, fence loses bandwidth (28 % there).",
         quotient(over_one_thread("bandwidth", "fence"), below(1.0))),
        ("Section VI.B, Figure 7",
         "At 8 bytes, fence has less than half of the halo exchange rate of the two-sided baseline "
         "(43.4 % there).",
         quotient(over_two_sided("rate-halo", "fence", "put"), below(0.5), low=8, high=8)),
        ("Section VI.B, Figure 7",
         "At 1 MiB, fence has at least 90 % of it (96.4 % there).",
         quotient(over_two_sided("rate-halo", "fence", "put"), at_least(0.9), MEBI, MEBI)),
        ("Section VII.A, Figure 8",
         "In HPCCG, Puts by a thread for every neighbor between lock_all and unlock_all cost at "
         "most 2.9 % of the time with messages.",
         costs("hpccg", "lock-all-threads", 0.029)),
        ("Section VII.B, Figure 8",
         "In MiniMD, Puts by a thread for every neighbor between two fences cost at most 2.4 % of "
         "the time with messages (Open MPI; with MVAPICH2 7.8 %).",
         costs("minimd", "fence-threads", 0.024)),
        ("Section VII.C, Figure 8",
         "In MiniFE, Puts by a thread for every neighbor between two fences cost at most 3.0 % of "
         "the time with messages (Open MPI; with MVAPICH2 44.1 %).",
         costs("minife", "fence-threads", 0.030)),
    ),
    Paper(
        "paper 003",
        "Towards Efficient Collectives for MPI Remote Memory Access",
        "48 processes on 6 nodes, InfiniBand QDR, MVAPICH2 2.3.1; 96 on 12 nodes, Gigabit "
        "Ethernet, MPICH 3.2.1",
    ): (
        ("Section 4, Figures 13 to 16",
         "From some length on, the binomial tree is faster than the linear broadcast.",
         OVERTAKES),
        ("Section 4, Figures 13 to 16",
         "For small messages the linear broadcast is the faster one.",
         SMALLEST_LINEAR),
        ("Sections 4 and 5",
         "The tree gains with the length of the message and with the number of processes.",
         GAIN_GROWS),
        ("Section 4",
         "The tree gains more on a slower network.",
         SLOWER_NETWORKS_GAIN),
        ("Section 4, Figure 14",
         "10 MiB: the tree is ahead from 32 processes on.",
         crosses_by(10 * MEBI, 32)),
        ("Section 4, Figure 14",
         "16 MiB: the tree is ahead from 24 processes on.",
         crosses_by(16 * MEBI, 24)),
        ("Section 4, Figure 16",
         "16 KiB: the tree is ahead from 80 processes on.",
         crosses_by(16 * KIBI, 80)),
        ("Section 4, Figure 16",
         "34 KiB: the tree is ahead from 32 processes on.",
         crosses_by(34 * KIBI, 32)),
    ),
    Paper(
        "paper 004",
        "Benchmarking the State of MPI Partitioned Communication in Open MPI",
        "2 processes on 2 nodes, InfiniBand HDR, Open MPI 5.0.3",
    ): (
        ("Section 5.1, Figure 3",
         "Persistent and partitioned sends keep the bandwidth of the whole buffer down to "
         "partitions of 64 KiB (90 % of it).",
         keeps(("persistent", "psend"), 64 * KIBI, 0.9)),
        ("Section 5.1, Figure 3",
         "Blocking sends lose bandwidth soon when the buffer is split (below 90 % at 256 KiB).",
         keeps(("send",), 256 * KIBI, 0.9, keep=False)),
        ("Section 5.1, Figure 3",
         "With small partitions, partitioned sends come down to blocking sends (within a factor of "
         "1.5 at the smallest).",
         together("psend", "send", 1 / 1.5, smallest=True)),
        ("Section 5.1, Figure 3",
         "With one thread, persistent and partitioned sends are the same (within 10 %).",
         together("psend", "persistent", 0.9)),
        ("Section 5.1, Figure 4",
         "From 1 to 16 threads, persistent sends of large partitions lose a quarter of their "
         "bandwidth.",
         threaded("persistent", 16, at_most(0.75))),
        ("Section 5.1, Figure 4",
         "From 1 to 16 threads, partitioned sends of large partitions lose less than that.",
         threaded("psend", 16, above(0.75))),
        ("Section 5.2, Figure 5",
         "The order in which partitions are marked does not matter (within 10 %).",
         order_matters("psend", ORDERS, 0.1)),
        ("Section 5.3, Figure 6a",
         "With aggregation, sequential and neighborhood order keep the bandwidth of large "
         "partitions whatever the size (90 % of it).",
         keeps(OURS, 0.0, 0.9, grouped=True, orders=(FIRST, "neighborhood"))),
        ("Section 5.3, Figure 6b",
         "With aggregation, a random order loses bandwidth (below 90 % of the sequential order's "
         "with some size).",
         loses(OURS, "randomized", FIRST, 0.9)),
    ),
}  # fmt: skip

CLAIMS = [Claim(paper, *told) for paper, claims in BY_PAPER.items() for told in claims]


WORDS = (
    "Computed from the results in this report. Where a paper's method is here in several variants, "
    "each has a verdict: names that end in -paper are the algorithms as they are printed, made "
    "right; and each kind of memory that is received into, of which the paper's own, plain, comes "
    "first. Times are medians; in brackets is where they lie with 95 % confidence, and a verdict "
    "is unclear where the bound lies there as well."
)
KINDS = {
    Outcome.HOLDS: "holds",
    Outcome.FAILS: "fails",
    Outcome.UNCLEAR: "unclear",
    Outcome.OPEN: "open",
}
COLUMNS = ("claim", "variant here", "measured here", "verdict")


@dataclass(frozen=True)
class Comparison:
    """The claims of a paper as a table: a group of rows for each, a row for every finding."""

    caption: str
    findings: Sequence[tuple[Claim, Sequence[Finding]]]

    def block(self) -> Element:
        """Local. For the page; on a narrow one the cells stand below each other."""
        heads = (element("th", {"scope": "col", "role": "columnheader"}, name) for name in COLUMNS)
        return element(
            "table",
            {"class": "claims", "role": "table"},
            element("caption", None, self.caption),
            element("thead", {"role": "rowgroup"}, element("tr", {"role": "row"}, *heads)),
            *(_group(*each) for each in self.findings),
        )


#: What a file of verdicts has, one row for each.
CLAIM_COLUMNS = ("paper", "where", "claim", "variant", "verdict", "evidence")


@dataclass(frozen=True)
class Judged:
    """All claims, with what was found out about each."""

    findings: Sequence[tuple[Claim, Sequence[Finding]]]

    @property
    def counted(self) -> str:
        """Local. How many verdicts of each kind there are, in words."""
        every = [finding.outcome for _, findings in self.findings for finding in findings]
        counts = {outcome: every.count(outcome) for outcome in Outcome}
        return (
            f"{len(self.findings)} claims of papers, {len(every)} verdicts: "
            f"{counts[Outcome.HOLDS]} hold here, {counts[Outcome.FAILS]} do not, "
            f"{counts[Outcome.UNCLEAR]} are unclear, {counts[Outcome.OPEN]} cannot be tested here"
        )

    def rows(self) -> list[tuple[str, ...]]:
        """Local. A row for every finding, under :data:`CLAIM_COLUMNS`."""
        return [
            (claim.paper.name, claim.where, claim.words, each.variant, each.outcome.value,
             each.evidence)
            for claim, findings in self.findings for each in findings
        ]  # fmt: skip

    def section(self) -> Section:
        """Local. A table for every paper."""
        below = []
        for paper in dict.fromkeys(claim.paper for claim, _ in self.findings):
            mine = [each for each in self.findings if each[0].paper is paper]
            told = Paragraph(f"Measured there: {paper.machine}.", "source")
            table = Comparison(f"Claims of {paper.name}, and what was measured here", mine)
            below.append(Section(f"{paper.title} ({paper.name})", [told, table]))
        return Section("What papers claim, and what holds here", [Paragraph(WORDS)], below)


def judged(results: Sequence[Result]) -> Judged:
    """Local. Every claim, decided by results of one machine and MPI."""
    return Judged([(claim, claim.rule.judge(results)) for claim in CLAIMS])


def _group(claim: Claim, findings: Sequence[Finding]) -> Element:
    """The rows of a claim. The roles survive where a style makes blocks of the cells."""
    where = element("span", {"class": "where"}, claim.where)
    about = {"scope": "rowgroup", "rowspan": str(len(findings)), "role": "rowheader"}
    rows = []
    for place, finding in enumerate(findings):
        head = [] if place else [element("th", about, claim.words, where)]
        cells = (
            element("td", {"role": "cell", "class": "name"}, finding.variant or NOTHING),
            element("td", {"role": "cell"}, finding.evidence),
            element("td", {"role": "cell", "class": "short"}, _badge(finding)),
        )
        rows.append(element("tr", {"role": "row"}, *head, *cells))
    return element("tbody", {"role": "rowgroup"}, *rows)


def _badge(finding: Finding) -> Element:
    outcome = finding.outcome
    return element("span", {"class": f"verdict {KINDS[outcome]}"}, outcome.value)
