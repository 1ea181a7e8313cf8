"""Scaling runs: the same mini-application on the first so many ranks of a job, again and again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import stdev
from typing import Any

from mpi4py import MPI

from onesided.apps.bench.ranks import among, counted
from onesided.apps.bench.store import Part, Parts
from onesided.apps.cli.failures import CommandError
from onesided.apps.cli.options import Options, doubling
from onesided.apps.cli.progress import progress
from onesided.apps.cli.report import Report, Row
from onesided.apps.cli.statistics import worst

#: What is called after each turn of one way.
Tick = Callable[[], object]

WEAK, STRONG = "weak", "strong"
HIDDEN = ("quartiles", "error")  # of few runs, and of errors that are right


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
        """Local. Of a row of the report."""
        if not self.scaling:
            return {}
        return {"scaling": self.scaling, "ranks": str(self.ranks)}


def largest(every: Sequence[Stage]) -> Stage:
    """Local. The first of those on the most ranks."""
    return max(every, key=lambda stage: stage.ranks)


def stages(size: int, options: Options) -> list[Stage]:
    """Local. What ``--scaling`` and ``--ranks-list`` mean in a job of ``size`` ranks.

    Strong scaling cuts the problem of the largest number of ranks into fewer parts. Where weak
    scaling runs on that number too, it is the same run, and is made once for each of the two, as
    a table without holes. :class:`CommandError` for more ranks than the job has, and for a list
    without a scaling.
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


def measured(
    comm: MPI.Intracomm,
    options: Options,
    report: Report,
    every: Sequence[Stage],
    turns: int,
    work: Callable[[MPI.Intracomm, Stage, Part, Tick], None],
    drawn: Stage | None = None,
) -> list[Part]:
    """Collective. Call ``work`` for each stage on its ranks, while the others sleep.

    It adds what it finds to the part that it is given, and calls the tick after each of so many
    turns. All parts, which rank 0 has, are in the report then; of their verdicts on the same thing
    the worst. The stage that is ``drawn`` is measured also where it was before.
    :class:`CommandError` on all ranks for what any stage cannot do.
    """
    parts, found = Parts(comm, report, options.json), []
    with progress(comm, options, report.command, len(every) * turns) as tick:
        for stage in every:

            def run(sub: MPI.Intracomm, stage: Stage = stage) -> None:
                def measure(part: Part) -> None:
                    work(sub, stage, part, tick)

                name = f"{stage.scaling} {stage.ranks} {stage.shares}"
                found.append(parts.add(name, measure, keep=stage is not drawn))

            among(comm, range(stage.ranks), run)
    for what in report.verdicts:
        each = [part.verdicts[what] for part in found if what in part.verdicts]
        report.verdicts[what] = worst(each)
    return found


def deviation(row: Row) -> float:
    """Local. The standard deviation of the times; 0 for a single one."""
    return stdev(row.times) if len(row.times) > 1 else 0.0


def tell(
    row: Row, *, shares: Mapping[str, float] | None = None,
    numbers: Mapping[str, float] | None = None, facts: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    """Local. Add to a row parts of one, shown in per cent, numbers, and facts for JSON alone."""
    shares, numbers = shares or {}, numbers or {}
    cells = {name: f"{100 * share:.0f} %" for name, share in shares.items()}
    cells |= {name: f"{number:.3g}" for name, number in numbers.items()}
    row.shown = {**row.shown, **cells}
    row.facts = {**row.facts, **(facts or {}), **shares, **numbers}
