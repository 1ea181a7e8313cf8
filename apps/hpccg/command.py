"""``onesided hpccg``: conjugate gradients as in HPCCG, the ghosts brought in several ways."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from typing import Any

from mpi4py import MPI

from onesided.apps.hpccg.grid import Grid, box_of
from onesided.apps.hpccg.picture import draw
from onesided.apps.hpccg.stage import PRODUCT_SHARE, WHOLE_SHARE, Findings, work
from onesided.apps.mini import overhead
from onesided.apps.mini.halos.registry import ways
from onesided.apps.mini.scaling import Stage, scaled, stages
from onesided.apps.mini.way import by_name, chosen
from onesided.apps.options import settings
from onesided.apps.picture import check_picture
from onesided.apps.progress import console, progress
from onesided.apps.report import Report, check_json
from onesided.apps.spmv import FAILED
from onesided.apps.verdict import Verdict, worst

REMARK = (
    "Times are those of an iteration, the mean over a run, by the slowest rank; exchange: what the "
    "ranks spend with their ghosts, waiting included; product: the local one; sums: the two "
    "reductions; vectors: the rest. residual: its norm after the last iteration, by the "
    "recurrence."
)
BOUNDS = (
    f"{PRODUCT_SHARE}: the time in which memory could read the matrix and both vectors, over that "
    f"of product and exchange; {WHOLE_SHARE}: the same of an iteration with all its vectors. The "
    "bandwidth is that of the best of three loops (copy, add, dot) over arrays as large as the "
    "matrix, on all ranks at once."
)


def run(comm: MPI.Intracomm, options: Namespace) -> int:
    """Collective. The command; its exit code is 1 where a result is wrong."""
    wanted = by_name(chosen(options.comm, ways()))
    box = box_of(options.size)
    every = stages(comm.size, options)
    grids = [Grid.stacked(box, stage.shares) for stage in every]
    for stage, grid in zip(every, grids, strict=True):
        grid.planes(stage.ranks)
    check_json(comm, options)
    check_picture(comm, options.picture)
    check_picture(comm, options.overhead, "--overhead")
    out = console(options.terminal) if comm.rank == 0 else None
    found = Findings()
    last = max(every, key=lambda stage: stage.ranks)
    with progress(out, "solving", len(every) * len(wanted) * options.runs) as tick:

        def stage_work(sub: MPI.Intracomm, stage: Stage) -> None:
            drawing = None
            if options.picture is not None and stage is last:
                drawing = partial(draw, path=options.picture)
            grid = grids[every.index(stage)]
            work(sub, stage, grid, wanted, options, found, tick, drawing)

        scaled(comm, every, stage_work)
    report = Report("hpccg", settings(options), _pattern(comm, options, box, every))
    report.rows = list(found.rows)
    report.remarks = [REMARK, BOUNDS, overhead.REMARK]
    report.listings = overhead.listings(found.rows)
    report.verdicts = _verdicts(found)
    if comm.rank == 0 and options.overhead is not None:
        overhead.draw(options.overhead, "HPCCG", found.rows)
    report.finish(comm, out, options.json)
    return FAILED if comm.bcast(report.verified) is False else 0


def _verdicts(found: Findings) -> dict[str, Verdict]:
    """Local. The worst error of x, whose bound is that of its residual; and of the residuals."""
    verdicts = {}
    solutions = [row.verdict for row in found.rows if row.verdict is not None]
    if solutions:
        verdicts["x, which has to be 1"] = worst(solutions)
    if found.histories:
        verdicts["residuals, against rank 0 alone"] = worst(found.histories)
    return verdicts


def _pattern(
    comm: MPI.Intracomm, options: Namespace, box: Sequence[int], every: Sequence[Stage]
) -> dict[str, Any]:
    """Local."""
    return {
        "box": list(box),
        "iterations": options.iterations,
        "ranks": comm.size,
        "stages": [
            {"scaling": each.scaling, "ranks": each.ranks, "boxes": each.shares} for each in every
        ],
    }
