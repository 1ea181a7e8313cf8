"""The claims beside what was measured, as a table of the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from onesided.apps.reporting.claims.claim import Claim, Finding, Outcome
from onesided.apps.reporting.claims.papers import CLAIMS
from onesided.apps.reporting.figure import NOTHING
from onesided.apps.reporting.markup import element
from onesided.apps.reporting.result import Result
from onesided.apps.reporting.section import Section
from onesided.apps.reporting.table import Paragraph

WORDS = (
    "Computed from the results in this report. Where a paper's method is here in several variants, "
    "each has a verdict: names that end in -paper are the algorithms as they are printed, made "
    "right. Times are medians."
)
KINDS = {Outcome.HOLDS: "holds", Outcome.FAILS: "fails", Outcome.OPEN: "open"}
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
            f"{counts[Outcome.OPEN]} cannot be tested here"
        )

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
