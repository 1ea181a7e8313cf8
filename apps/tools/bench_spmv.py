"""``onesided bench spmv``: the distributed product against SciPy's serial one on rank 0.

The matrix is the 27-point stencil on a cube of grid points. While rank 0 multiplies alone, the
other ranks sleep.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from statistics import median
from typing import Any

from mpi4py import MPI

from onesided.apps.bench.race import LEAD, STEADY
from onesided.apps.bench.selection import chosen, hints, prepare
from onesided.apps.bench.store import Part, Parts
from onesided.apps.cli.failures import user_errors
from onesided.apps.cli.options import Options, edge
from onesided.apps.cli.report import Report, Row, compared, conclusions
from onesided.apps.cli.statistics import Target, paired
from onesided.apps.tools.spmv import PETSC, REMARK, SCIPY, Outcome, contest
from onesided.apps.tools.spmv_contest import (
    RANKS,
    Opponent,
    SparseCase,
    cases,
    core_cache,
    grid,
    product_aims,
)
from onesided.apps.tools.spmv_parts import (
    CG_REMARK,
    HALO_REMARK,
    READING_REMARK,
    cg_rows,
    halo_rows,
    reading_rows,
)
from onesided.sparse import DistMatrix, stencil27

# ``onesided bench spmv --targets``: many matrices, and parts of a product, with what to reach.

TARGET_METHODS = "rma-notify"  # where --comm says nothing
#: What is timed beside products, and its shares of the time; a matrix has one.
OTHERS = {"halo": (halo_rows, 1), "cg": (cg_rows, 2), "reading": (reading_rows, 4)}
TARGETS_REMARK = (
    "Reached: the median over the rounds of our time over the opponent's (at most), or of how many "
    "times as fast ours is (at least). Products in a row, after "
    f"{LEAD * 1e3:.0f} ms that do not count, for at least {STEADY * 1e3:.0f} ms. PETSc: MatMult "
    "with the same rows on each rank, in a job of its own. SciPy: the whole matrix on rank 0, "
    "others asleep; it has a target where the matrix exceeds the cache of a core."
)


def run_targets(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command with ``--targets``."""
    options.comm = options.comm or TARGET_METHODS
    names, asked = chosen(options.comm), chosen(options.comm, baseline=False)
    table, reason = cases(comm, options)
    share = options.seconds / (len(table) + sum(weight for _, weight in OTHERS.values()))
    wanted = comm.size == RANKS and not options.quick
    cache = comm.bcast(core_cache())
    petsc = Opponent.found(comm)
    pattern = {"ranks": comm.size, "core_cache_bytes": cache, "matrices": {}}
    report = Report("bench spmv --targets", options.settings(), pattern)
    report.remarks = [
        each for each in (TARGETS_REMARK, HALO_REMARK, CG_REMARK, READING_REMARK, reason) if each
    ]
    parts = Parts(comm, report, options.json)
    for case in table:

        def measure(part: Part, case: SparseCase = case) -> None:
            with user_errors():
                block = case.make(comm)
            if not case.generated and block.nnz(comm) <= options.entries:
                return
            made = block.maker(comm, hints(options))
            outcome = contest(
                comm, options.but(seconds=share), prepare(comm, names, made, DistMatrix.Free),
                DistMatrix.gather, in_a_row=True, petsc=partial(petsc.start, comm, block),
            )  # fmt: skip
            nbytes = block.nbytes(comm)
            part.pattern["matrices"] = {case.name: {
                "generated": case.generated,
                "shape": list(outcome.shape),
                "nonzeros": outcome.nnz,
                "bytes": nbytes,
                "products": {name: each["product"] for name, each in outcome.labels.items()},
                **({PETSC: outcome.facts} if outcome.facts else {}),
            }}  # fmt: skip
            for name in outcome.labels:
                aims = product_aims(name, nbytes, cache)
                part.rows += _against(case.name, outcome, name, aims, wanted and name in asked)
            part.rows += outcome.candidates.refused(case=case.name)
            part.rows += [
                Row({"case": case.name, "opponent": opponent}, reason=why)
                for opponent, why in outcome.absent.items()
            ]

        parts.add(case.name, measure)
    for name, (rows, weight) in OTHERS.items():
        during = options.but(seconds=share * weight)

        def others(part: Part, rows: Any = rows, during: Options = during) -> None:
            part.rows += rows(comm, during, asked, wanted)

        parts.add(name, others)
    nothing = f"no targets are set{' for --quick' if options.quick else ''} on {comm.size} ranks"
    report.remarks += conclusions(report.rows, nothing)
    return report.end(comm, options)


def _against(
    case: str, outcome: Outcome, method: str, aims: Mapping[str, tuple[Target, bool]], wanted: bool
) -> list[Row]:
    """Local. A row of a method for every opponent that was timed."""
    race = outcome.race
    return [
        compared(
            {"case": case, **outcome.labels[method]},
            race.times[method],
            race.times[opponent],
            aim,
            wanted=is_target and wanted,
            nbytes=outcome.moved,
            verdict=race.verdicts[method],
        )
        for opponent, (aim, is_target) in aims.items()
        if opponent in race.times and opponent != method
    ]


METHODS = "rma-fence,rma-notify"  # where --comm says nothing


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command."""
    if options.targets:
        return run_targets(comm, options)
    options.comm = options.comm or METHODS
    points = edge(options)
    make = grid(points, comm).maker(comm, hints(options))
    candidates = prepare(comm, chosen(options.comm), make, DistMatrix.Free)
    outcome = contest(
        comm, options, candidates, lambda _: stencil27(points) if comm.rank == 0 else None
    )
    pattern = {"stencil": 27, "rows": points**3, "nonzeros": outcome.nnz, "ranks": comm.size}
    report = Report("bench spmv", options.settings(), pattern, remarks=[REMARK])
    times = outcome.race.times
    alone = times[SCIPY]
    labels = {"method": SCIPY, "product": "serial, rank 0"}
    report.rows = [Row(labels, alone, nbytes=outcome.moved, against={SCIPY: alone})]
    report.rows += outcome.rows(hidden=("error",))
    for name in outcome.labels:
        speed = median(paired(alone, times[name]))
        report.remarks.append(f"{name}: {speed:.2f} times as fast as {SCIPY} on one rank")
    return report.end(comm, options)
