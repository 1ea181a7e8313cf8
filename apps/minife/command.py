"""``onesided minife``: steady temperatures by finite elements, the ghosts brought in several ways.

First the meshes of the order of convergence are solved on all ranks. Then all ways take turns with
the same number of iterations of conjugate gradients, on the last mesh or on those of the scaling.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from mpi4py import MPI

from onesided.apps.closing import closing
from onesided.apps.mini import command
from onesided.apps.mini.halos.registry import ways
from onesided.apps.mini.scaling import Stage, scaled, stages
from onesided.apps.mini.way import by_name, chosen
from onesided.apps.minife.convergence import converged, listing, verdicts
from onesided.apps.minife.mesh import Triple
from onesided.apps.minife.problem import PROBLEMS
from onesided.apps.minife.sizes import extents, halved, of_stage, words
from onesided.apps.minife.slices import draw
from onesided.apps.minife.stage import Findings, work
from onesided.apps.minife.system import System
from onesided.apps.options import settings
from onesided.apps.report import Report
from onesided.apps.verdict import worst

REMARKS = (
    f"{command.REMARK} GB/s: what the product and the vectors read and write at least, on all "
    "ranks.",
    "error: the largest of all nodes that are compared with the known solution, relative to its "
    "largest value; order: the power of the spacing with which it fell since the coarser mesh.",
)


def run(comm: MPI.Intracomm, options: Namespace) -> int:
    """Collective. The command; its exit code is 1 where a result is wrong."""
    wanted = by_name(chosen(options.comm, ways()))
    problem, size = PROBLEMS[options.problem], extents(options.size)
    meshes = halved(size, options.levels, comm.size)
    every = stages(comm.size, options)
    found = Findings()
    steps = len(meshes) + len(every) * len(wanted) * options.runs
    with command.solving(comm, options, steps) as (out, tick):

        def stage_work(sub: MPI.Intracomm, stage: Stage) -> None:
            with closing() as stack:
                mine = System(sub, of_stage(size, stage), problem, options.distort)
                stack.callback(mine.Free)
                work(mine, stage, wanted, options, found, tick)

        with closing() as stack:
            levels, system, x = converged(comm, options, problem, meshes, tick)
            stack.callback(system.Free)
            if options.picture is not None:
                draw(system, x, options.picture)
            if not options.scaling:
                work(system, every[0], wanted, options, found, tick)
        if options.scaling:
            scaled(comm, every, stage_work)
    report = Report("minife", settings(options), _pattern(comm, options, size, every))
    report.remarks = [f"{problem.name}: {problem.summary}.", *REMARKS]
    report.listings = {"levels": listing(levels), "assembly": found.setup}
    report.verdicts = verdicts(levels, options.rtol)
    if found.compared:
        report.verdicts["solutions, against rank 0 alone"] = worst(found.compared)
    return command.finish(comm, options, out, report, found.rows, "MiniFE")


def _pattern(
    comm: MPI.Intracomm, options: Namespace, size: Triple, every: Sequence[Stage]
) -> dict[str, Any]:
    """Local."""
    return {
        "problem": options.problem,
        "elements": list(size),
        "distortion": options.distort,
        "ranks": comm.size,
        "stages": command.staged(every, lambda stage: {"elements": words(of_stage(size, stage))}),
    }
