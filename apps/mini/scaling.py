"""Scaling runs: the same mini-application on the first so many ranks of a job, again and again."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mpi4py import MPI

from onesided.apps.evidence.ranks import among, counted
from onesided.apps.failures import CommandError
from onesided.apps.mini.options import SCALINGS

WEAK, STRONG = SCALINGS


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


def stages(size: int, options: Namespace) -> list[Stage]:
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
