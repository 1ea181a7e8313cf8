"""``onesided minife``: steady temperatures by finite elements, the ghosts brought in several ways.

First the meshes of the order of convergence are solved on all ranks. Then all ways take turns with
the same number of iterations of conjugate gradients, on the last mesh or on those of the scaling.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from mpi4py import MPI

from onesided.apps.mini import overhead
from onesided.apps.mini.scaling import Stage, scaled, stages
from onesided.apps.mini.way import by_name, chosen
from onesided.apps.minife.bisection import Triple
from onesided.apps.minife.convergence import converged, listing, verdicts
from onesided.apps.minife.halos.registry import ways
from onesided.apps.minife.problem import PROBLEMS
from onesided.apps.minife.sizes import extents, halved, of_stage, words
from onesided.apps.minife.slices import draw
from onesided.apps.minife.stage import Findings, work
from onesided.apps.minife.system import System
from onesided.apps.options import settings
from onesided.apps.picture import check_picture
from onesided.apps.progress import console, progress
from onesided.apps.report import Report, check_json
from onesided.apps.spmv import FAILED
from onesided.apps.verdict import worst

REMARKS = (
    "Times are those of an iteration of conjugate gradients, the mean over a run, by the slowest "
    "rank; exchange: what the ranks spend with their ghosts, waiting included; product: the local "
    "one; sums: the two reductions; vectors: the rest. GB/s: what the product and the vectors read "
    "and write at least, on all ranks.",
    "error: the largest of all nodes that are compared with the known solution, relative to its "
    "largest value; order: the power of the spacing with which it fell since the coarser mesh.",
)


def run(comm: MPI.Intracomm, options: Namespace) -> int:
    """Collective. The command; its exit code is 1 where a result is wrong."""
    wanted = by_name(chosen(options.comm, ways()))
    problem, size = PROBLEMS[options.problem], extents(options.size)
    meshes = halved(size, options.levels, comm.size)
    every = stages(comm.size, options)
    check_json(comm, options)
    check_picture(comm, options.picture)
    check_picture(comm, options.overhead, "--overhead")
    out = console(options.terminal) if comm.rank == 0 else None
    found = Findings()
    total = len(meshes) + len(every) * len(wanted) * options.runs
    with progress(out, "solving", total) as tick:
        levels, system, x = converged(comm, options, problem, meshes, tick)
        if options.picture is not None:
            draw(system, x, options.picture)

        def run_stage(sub: MPI.Intracomm, stage: Stage) -> None:
            mine = System(sub, of_stage(size, stage), problem, options.distort)
            work(mine, stage, wanted, options, found, tick)

        if options.scaling:
            system.Free()
            scaled(comm, every, run_stage)
        else:
            work(system, every[0], wanted, options, found, tick)
    report = Report("minife", settings(options), _pattern(comm, options, size, every))
    report.rows = list(found.rows)
    report.remarks = [f"{problem.name}: {problem.summary}.", *REMARKS, overhead.REMARK]
    report.listings = {"levels": listing(levels), "assembly": found.setup}
    report.listings |= overhead.listings(found.rows)
    report.verdicts = verdicts(levels, options.rtol)
    if found.compared:
        report.verdicts["solutions, against rank 0 alone"] = worst(found.compared)
    if comm.rank == 0 and options.overhead is not None:
        overhead.draw(options.overhead, "MiniFE", found.rows)
    report.finish(comm, out, options.json)
    return FAILED if comm.bcast(report.verified) is False else 0


def _pattern(
    comm: MPI.Intracomm, options: Namespace, size: Triple, every: Sequence[Stage]
) -> dict[str, Any]:
    """Local."""
    return {
        "problem": options.problem,
        "elements": list(size),
        "distortion": options.distort,
        "ranks": comm.size,
        "stages": [
            {
                "scaling": each.scaling,
                "ranks": each.ranks,
                "elements": words(of_stage(size, each)),
            }
            for each in every
        ],
    }
