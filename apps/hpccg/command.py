"""``onesided hpccg``: conjugate gradients as in HPCCG, the ghosts brought in several ways."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from mpi4py import MPI

from onesided.apps.hpccg.grid import Grid, box_of
from onesided.apps.hpccg.stage import PRODUCT_SHARE, WHOLE_SHARE, Findings, work
from onesided.apps.mini import command
from onesided.apps.mini.halos.registry import ways
from onesided.apps.mini.scaling import Stage, scaled, stages
from onesided.apps.mini.way import by_name, chosen
from onesided.apps.options import settings
from onesided.apps.report import Report
from onesided.apps.verdict import Verdict, worst

RESIDUAL = "residual: its norm after the last iteration, by the recurrence."
BOUNDS = (
    f"{PRODUCT_SHARE}: the time in which memory could read the matrix and both vectors, over that "
    f"of product and exchange; {WHOLE_SHARE}: the same of an iteration with all its vectors. The "
    "bandwidth is what NumPy reaches by the best of five loops (copy, add, dot, sum, a product "
    "with few long rows), before or after the runs, over as many bytes as the matrix has, on all "
    "ranks at once."
)


def run(comm: MPI.Intracomm, options: Namespace) -> int:
    """Collective. The command; its exit code is 1 where a result is wrong."""
    wanted = by_name(chosen(options.comm, ways()))
    box = box_of(options.size)
    every = stages(comm.size, options)
    grids = {stage: Grid.stacked(box, stage.shares) for stage in every}
    for stage, grid in grids.items():
        grid.planes(stage.ranks)
    found = Findings()
    last = max(every, key=lambda stage: stage.ranks)
    with command.solving(comm, options, len(every) * len(wanted) * options.runs) as (out, tick):

        def stage_work(sub: MPI.Intracomm, stage: Stage) -> None:
            picture = options.picture if stage == last else None
            work(sub, stage, grids[stage], wanted, options, found, tick, picture)

        scaled(comm, every, stage_work)
    report = Report("hpccg", settings(options), _pattern(comm, options, box, every))
    report.remarks = [f"{command.REMARK} {RESIDUAL}", BOUNDS]
    report.verdicts = _verdicts(found)
    return command.finish(comm, options, out, report, found.rows, "HPCCG")


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
        "stages": command.staged(every, lambda stage: {"boxes": stage.shares}),
    }
