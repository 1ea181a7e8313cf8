"""The claims beside what was measured, as a table of the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from onesided.apps.reporting.claims.claim import Claim, Finding, Outcome
from onesided.apps.reporting.claims.papers import CLAIMS
from onesided.apps.reporting.markup import Child, element
from onesided.apps.reporting.result import Result
from onesided.apps.reporting.section import Section
from onesided.apps.reporting.table import Paragraph, Table

WORDS = (
    "Computed from the results in this report. Where a paper's method is here in several variants, "
    "each has a verdict: names that end in -paper are the algorithms as they are printed, made "
    "right. Times are medians."
)
KINDS = {Outcome.HOLDS: "holds", Outcome.FAILS: "fails", Outcome.OPEN: "open"}
COLUMNS = ("claim", "where", "variant here", "measured here", "verdict")


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
        papers = dict.fromkeys(claim.paper for claim, _ in self.findings)
        below = []
        for paper in papers:
            rows = [
                row
                for claim, findings in self.findings
                for finding in findings
                if claim.paper is paper
                for row in [_row(claim, finding)]
            ]
            caption = f"Claims of {paper.name}, and what was measured here"
            told = Paragraph(f"{paper.title}. Measured there: {paper.machine}.", "source")
            table = Table(caption, COLUMNS, rows, prose=True)
            below.append(Section(paper.name, [told, table]))
        return Section("What papers claim, and what holds here", [Paragraph(WORDS)], below)


def judged(results: Sequence[Result]) -> Judged:
    """Local. Every claim, decided by results of one machine and MPI."""
    return Judged([(claim, claim.rule.judge(results)) for claim in CLAIMS])


def _row(claim: Claim, finding: Finding) -> list[Child]:
    return [claim.words, claim.where, finding.variant or "-", finding.evidence, _badge(finding)]


def _badge(finding: Finding) -> Element:
    outcome = finding.outcome
    return element("span", {"class": f"verdict {KINDS[outcome]}"}, outcome.value)
