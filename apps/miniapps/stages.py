"""Scaling runs: the same mini-application on the first so many ranks of a job, by several ways."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import inf

from mpi4py import MPI

from onesided.apps.bench.ranks import counted
from onesided.apps.bench.selection import ways_of
from onesided.apps.bench.sweep import Case, Make, sweep
from onesided.apps.cli.failures import CommandError
from onesided.apps.cli.options import Options, doubling
from onesided.apps.cli.report import METHOD, Report
from onesided.apps.miniapps.halos import REFERENCE, ways

REMARK = (
    f"vs {REFERENCE}: the overhead as in Figure 8 of paper 002, by the rounds in which both took "
    "their turn; exchange: what the ranks spend with their ghosts, waiting included, on average."
)


@dataclass(frozen=True)
class Stage:
    """One run: on ``ranks`` ranks, with the problem of ``shares`` ranks.

    ``scaling`` is empty where nothing is scaled.
    """

    scaling: str
    ranks: int
    shares: int


def stages(size: int, options: Options) -> list[Stage]:
    """Local. What ``--scaling`` and ``--ranks-list`` mean in a job of ``size`` ranks.

    Strong scaling cuts the problem of the largest number of ranks into fewer parts.
    :class:`CommandError` for more ranks than the job has, and for a list without a scaling.
    """
    if not options.scaling:
        if options.ranks_list:
            raise CommandError("--ranks-list is for --scaling weak or strong")
        return [Stage("", size, size)]
    counts = counted(size, options.ranks_list, doubling(1, size))
    return [
        Stage(scaling, count, count if scaling == "weak" else max(counts))
        for scaling in dict.fromkeys(options.scaling)
        for count in counts
    ]


def run_stages(
    comm: MPI.Intracomm, options: Options, report: Report,
    opened: Callable[[Stage], Callable[..., Make]], rest: str = "",
) -> None:
    """Collective. The rows of every way in every stage.

    ``opened``: gives what opens the case of a stage; ``rest``: how the rest of a time is called.
    """  # fmt: skip
    every = stages(comm.size, options)
    variants = [{METHOD: name} for name in ways_of(options.comm, ways(), REFERENCE)]
    cases = []
    for stage in every:
        scaling = {"scaling": stage.scaling} if stage.scaling else {}
        labels = {**scaling, "ranks": str(stage.ranks)}
        cases.append(Case(labels, variants, opened(stage), stage.ranks, (REFERENCE,), rest=rest))
    report.pattern = {**report.pattern, "stages": [asdict(stage) for stage in every]}
    report.baseline, report.by = REFERENCE, "ranks"
    runs = options.but(iterations=options.repeats, seconds=inf)
    sweep(comm, runs, report, cases, report.command)
    report.remarks.append(REMARK)
