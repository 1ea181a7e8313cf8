"""``onesided bench alltoallv``: benchmark 1 of paper 000, uniform exchanges by every method.

Every rank sends equal blocks, filled with its own number, to all ranks, itself included. The first
2, 4, 8 ... ranks of the job exchange while the others sleep: the same number of bytes per rank
(weak scaling), or the same for all of them together (strong scaling).
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence

import numpy as np
from mpi4py import MPI

from onesided.apps.evidence.exchange import REMARK, Contest, Problem, wrong_elements
from onesided.apps.evidence.figures import check_figures, draw_figures, scaling_figures
from onesided.apps.evidence.ranks import among, counted
from onesided.apps.evidence.sweep import Place, doubling, places, series
from onesided.apps.options import settings
from onesided.apps.progress import console, progress
from onesided.apps.report import Report, Row, byte_count, check_json
from onesided.apps.selection import BASELINE, chosen
from onesided.apps.spmv import FAILED

BYTES_REMARK = (
    "Bytes are what a rank sends in one iteration, its own block included; GB/s: these bytes per "
    "second."
)


def run(comm: MPI.Intracomm, options: Namespace) -> int:
    """Collective. The command; its exit code is 1 where wrong data came."""
    names = [name for name in chosen(options.comm) if name != BASELINE]
    counts = counted(comm.size, options.ranks_list, doubling(comm.size))
    every = series(options.scaling, counts, sorted(set(options.sizes)))
    table = places(every)
    figures = scaling_figures(every)
    check_json(comm, options)
    check_figures(comm, options.picture, figures)
    report = Report(
        "bench alltoallv",
        settings(options),
        {
            "ranks": comm.size,
            "blocks": "uniform",
            "counts": counts,
            "series": [each.record() for each in every],
        },
        remarks=[BYTES_REMARK, REMARK],
    )
    out = console(options.terminal) if comm.rank == 0 else None
    share = options.seconds / len(table)
    with progress(out, "exchanging", len(table) * options.iterations) as tick:
        for count in counts:
            mine = [place for place in table if place.ranks == count]

            def compare(
                sub: MPI.Intracomm, mine: Sequence[Place] = mine, tick: Callable[[], None] = tick
            ) -> None:
                for place in mine:
                    report.rows += _compare(sub, options, names, place, share, tick)

            among(comm, count, compare)
    if comm.rank == 0:
        draw_figures(options.picture, figures, report.rows, options.memory[0])
    report.remarks.append(wrong_elements(report.rows, "the number of the rank that sent it"))
    wrong = comm.bcast(report.verified is False)
    report.finish(comm, out, options.json)
    return FAILED if wrong else 0


def _compare(
    comm: MPI.Intracomm,
    options: Namespace,
    names: Sequence[str],
    place: Place,
    seconds: float,
    tick: Callable[[], None],
) -> list[Row]:
    """Collective. The rows of one place."""
    labels = {"ranks": str(place.ranks), "bytes": byte_count(place.nbytes)}
    return Contest(comm, options, names, labels, seconds).rows(uniform(comm, place.count), tick)


def uniform(comm: MPI.Intracomm, count: int) -> Problem:
    """Local. Blocks of ``count`` elements, filled with the number of the rank that sends them."""
    sent = np.full(count * comm.size, float(comm.rank))
    counts = [count] * comm.size
    expected = np.repeat(np.arange(float(comm.size)), count)
    return Problem(sent, counts, counts, expected, sent.nbytes)
