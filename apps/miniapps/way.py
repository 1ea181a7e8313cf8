"""Ways to communicate, by name: what a mini-application can be run with, and compared to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from statistics import stdev
from typing import Any

from mpi4py import MPI

from onesided.apps.bench.ranks import among, counted
from onesided.apps.bench.selection import named
from onesided.apps.cli.failures import CommandError
from onesided.apps.cli.options import Options
from onesided.apps.cli.report import Row
from onesided.apps.report.result import REFERENCE as REFERENCE

# Scaling runs: the same mini-application on the first so many ranks of a job, again and again.

WEAK, STRONG = "weak", "strong"


@dataclass(frozen=True)
class Stage:
    """One run: on ``ranks`` ranks, with the problem of ``shares`` ranks.

    ``scaling`` is empty where nothing is scaled.
    """

    ranks: int
    shares: int
    scaling: str = ""

    @property
    def name(self) -> str:
        """Local. What it is kept under."""
        return f"{self.scaling} {self.ranks} {self.shares}"

    @property
    def labels(self) -> dict[str, str]:
        """Local. Of a row of the report."""
        if not self.scaling:
            return {}
        return {"scaling": self.scaling, "ranks": str(self.ranks)}


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
    usual = [1 << power for power in range(size.bit_length()) if 1 << power < size]
    counts = counted(size, options.ranks_list, [*usual, size])
    most = max(counts)
    return [
        Stage(count, count if scaling == WEAK else most, scaling)
        for scaling in dict.fromkeys(options.scaling)
        for count in counts
    ]


def scaled(
    comm: MPI.Intracomm,
    every: Sequence[Stage],
    work: Callable[[MPI.Intracomm, Stage], None],
) -> None:
    """Collective. Call ``work`` for each stage on its ranks, while the others sleep.

    What it finds it keeps by itself: rank 0 is rank 0 of all stages. :class:`CommandError` on all
    ranks for what any stage cannot do.
    """
    for stage in every:

        def run(sub: MPI.Intracomm, stage: Stage = stage) -> None:
            work(sub, stage)

        among(comm, stage.ranks, run)


# A row of a mini-application: times, shares of a bound, and what came out.


@dataclass
class MiniRow(Row):
    """A way to communicate on so many ranks; few runs have no quartiles.

    ``shares`` are parts of one, shown in per cent; ``numbers`` are shown with three digits.
    """

    shares: Mapping[str, float] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)
    hidden: Sequence[str] = ("quartiles", "error")

    @property
    def deviation(self) -> float:
        """Local. The standard deviation of the times; 0 for a single one."""
        return stdev(self.times) if len(self.times) > 1 else 0.0

    def cells(self) -> dict[str, str]:
        """Local. For the table."""
        if self.reason:
            return super().cells()
        shown = super().cells() | {name: f"{100 * x:.0f} %" for name, x in self.shares.items()}
        return shown | {name: f"{x:.3g}" for name, x in self.numbers.items()}

    def record(self) -> dict[str, Any]:
        """Local. For JSON."""
        if self.reason:
            return super().record()
        return super().record() | {"deviation_s": self.deviation, **self.shares, **self.numbers}



def mini_rows(rows: Sequence[Row]) -> list[MiniRow]:
    """Local. Those of a part that was kept, as what they are."""
    return [row for row in rows if isinstance(row, MiniRow)]


@dataclass(frozen=True)
class Way:
    """A way to communicate: its name, where its class is, and what else that is given.

    ``where`` is ``module:Class`` with the whole name of the module, which is imported when the
    way is made.
    """

    name: str
    where: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def make(self, *given: Any) -> Any:
        """Collective where the class says so. An object of the class."""
        module, _, name = self.where.partition(":")
        kind = getattr(import_module(module), name)
        return kind(*given, **self.arguments)


def by_name(ways: Sequence[Way]) -> dict[str, Way]:
    """Local. In this order."""
    return {way.name: way for way in ways}


def chosen(text: str, known: Mapping[str, Way], reference: str = REFERENCE) -> list[Way]:
    """Local. Those that ``--comm`` means, and the reference in any case, which is the first.

    :class:`CommandError` where a name is unknown; it lists the known ones.
    """
    return [known[name] for name in dict.fromkeys([reference, *named(text, known)])]
