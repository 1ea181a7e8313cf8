"""Scaling runs: the same mini-application on the first so many ranks of a job, by several ways."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from mpi4py import MPI

from onesided.apps.bench.ranks import counted
from onesided.apps.bench.selection import ways_of
from onesided.apps.bench.store import Part
from onesided.apps.bench.sweep import Case, Make, sweep
from onesided.apps.cli.failures import CommandError
from onesided.apps.cli.options import Options, doubling
from onesided.apps.cli.report import METHOD, Report
from onesided.apps.miniapps.halos import REFERENCE, Ways, ways

WEAK, STRONG = "weak", "strong"
REMARK = (
    f"vs {REFERENCE}: the overhead as in Figure 8 of paper 002, by the rounds in which both took "
    "their turn; exchange: what the ranks spend with their ghosts, waiting included, on average."
)


@dataclass(frozen=True)
class Stage:
    """One run: on ``ranks`` ranks, with the problem of ``shares`` ranks.

    ``scaling`` is empty where nothing is scaled.
    """

    ranks: int
    shares: int
    scaling: str = ""

    @property
    def labels(self) -> dict[str, str]:
        """Of a row of the report."""
        scaling = {"scaling": self.scaling} if self.scaling else {}
        return {**scaling, "ranks": str(self.ranks)}


def stages(size: int, options: Options) -> list[Stage]:
    """Local. What ``--scaling`` and ``--ranks-list`` mean in a job of ``size`` ranks.

    Strong scaling cuts the problem of the largest number of ranks into fewer parts.
    :class:`CommandError` for more ranks than the job has, and for a list without a scaling.
    """
    if not options.scaling:
        if options.ranks_list:
            raise CommandError("--ranks-list is for --scaling weak or strong")
        return [Stage(size, size)]
    counts = counted(size, options.ranks_list, doubling(1, size))
    most = max(counts)
    return [
        Stage(count, count if scaling == WEAK else most, scaling)
        for scaling in dict.fromkeys(options.scaling)
        for count in counts
    ]


def run_stages(
    comm: MPI.Intracomm,
    options: Options,
    report: Report,
    opened: Callable[[Stage, Ways], Callable[..., Make]],
    rest: str = "",
    told: Callable[[Stage], Callable[[Part], object]] = lambda stage: lambda part: None,
    fill: Callable[[Report], object] = lambda report: None,
) -> int:
    """Collective. The command: every way in turns in every stage; its exit code.

    ``opened``: gives what opens the case of a stage; ``rest``: how the rest of a time is called;
    ``told``: what adds to the results of a stage, ``fill`` to the report.
    """
    wanted = ways_of(options.comm, ways(), REFERENCE)
    cases = [
        Case(stage.labels, [{METHOD: name} for name in wanted], opened(stage, wanted),
             stage.ranks, (REFERENCE,), rest=rest, told=told(stage))
        for stage in stages(comm.size, options)
    ]  # fmt: skip
    runs = options.but(iterations=options.repeats, seconds=inf)
    report.baseline, report.by = REFERENCE, "ranks"
    sweep(comm, runs, report, cases, report.command)
    fill(report)
    report.remarks.append(REMARK)
    return report.end(comm, options)


def counts(stages: Sequence[Stage]) -> list[dict[str, object]]:
    """Local. The stages for JSON."""
    return [{"scaling": s.scaling, "ranks": s.ranks, "shares": s.shares} for s in stages]
