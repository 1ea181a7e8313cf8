"""``onesided bench spmv``: the distributed product against SciPy's serial one on rank 0.

The matrix is the 27-point stencil on a cube of grid points. While rank 0 multiplies alone, the
other ranks sleep.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from mpi4py import MPI

from onesided.apps.bench.race import LEAD, STEADY, Contestant, timed, unchecked
from onesided.apps.bench.selection import BASELINE, chosen, hints, prepare, release
from onesided.apps.bench.store import Part, Parts
from onesided.apps.cli.failures import user_errors
from onesided.apps.cli.options import Options, edge
from onesided.apps.cli.progress import console
from onesided.apps.cli.report import Report, Row, compared, conclusions
from onesided.apps.tools.rowblock import Maker
from onesided.apps.tools.spmv import (
    REMARK,
    against_scipy,
    halo_setup,
    label,
    product,
    traffic,
    vector,
)
from onesided.apps.tools.spmv_contest import (
    RANKS,
    Opponent,
    Outcome,
    SparseCase,
    cases,
    contest,
    core_cache,
    product_aims,
)
from onesided.apps.tools.spmv_parts import CG_REMARK, HALO_REMARK, cg_rows, halo_rows
from onesided.apps.tools.spmv_reading import REMARK as READING_REMARK
from onesided.apps.tools.spmv_reading import reading_rows
from onesided.sparse import DistMatrix, Partition, from_rows, stencil27

# ``onesided bench spmv --targets``: many matrices, and parts of a product, with what to reach.

TARGET_METHODS = "rma-notify"  # where --comm says nothing
HALO, CG, READING = 1, 2, 4  # shares of the time; a matrix has one
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
    share = options.seconds / (len(table) + HALO + CG + READING)
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
            outcome = contest(comm, options.but(seconds=share), block, names, petsc)
            part.pattern["matrices"] = {case.name: _facts(case, outcome)}
            part.rows += _rows(case.name, outcome, cache, asked if wanted else [])

        parts.add(case.name, measure)
    for name, rows, weight in (
        ("halo", halo_rows, HALO), ("cg", cg_rows, CG), ("reading", reading_rows, READING)
    ):  # fmt: skip
        during = options.but(seconds=share * weight)

        def others(part: Part, rows: Any = rows, during: Options = during) -> None:
            part.rows += rows(comm, during, asked, wanted)

        parts.add(name, others)
    nothing = f"no targets are set{' for --quick' if options.quick else ''} on {comm.size} ranks"
    report.remarks += conclusions(report.rows, nothing)
    report.finish(comm, console(options.terminal) if comm.rank == 0 else None, options.json)
    return report.code(comm, strict=options.strict)


def _facts(case: SparseCase, outcome: Outcome) -> dict[str, Any]:
    """Local. What the JSON says of a matrix."""
    return {
        "generated": case.generated,
        "shape": list(outcome.shape),
        "nonzeros": outcome.nnz,
        "bytes": outcome.nbytes,
        "products": outcome.products,
        **({"PETSc": outcome.facts} if outcome.facts else {}),
    }


def _rows(case: str, outcome: Outcome, cache: int, wanted: Sequence[str]) -> list[Row]:
    """Local. A row for every method and opponent, and why one of them is missing.

    ``wanted``: the methods that have targets.
    """
    rows: list[Row] = []
    for method, used in outcome.products.items():
        labels = {"case": case, "method": method, "product": used}
        aims = product_aims(method, outcome.nbytes, cache)
        rows += [
            compared(
                labels,
                outcome.race.times[method],
                outcome.race.times[opponent],
                aim,
                wanted=is_target and method in wanted,
                nbytes=outcome.moved,
                verdict=outcome.race.verdicts[method],
            )
            for opponent, (aim, is_target) in aims.items()
            if opponent in outcome.race.times and opponent != method
        ]
    rows += [
        Row({"case": case, "method": each.method}, reason=each.reason)
        for each in outcome.candidates
        if each.reason
    ]
    rows += [
        Row({"case": case, "opponent": opponent}, reason=why)
        for opponent, why in outcome.absent.items()
    ]
    return rows


SERIAL = "SciPy"
METHODS = "rma-fence,rma-notify"  # where --comm says nothing


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command."""
    if options.targets:
        return run_targets(comm, options)
    options.comm = options.comm or METHODS
    names = chosen(options.comm)
    points = edge(options)
    info = hints(options)
    rows = stencil27(points, Partition.even(points**3, comm.size).range(comm.rank))
    candidates = prepare(
        comm,
        names,
        Maker(lambda method: from_rows(comm, rows, method=method, info=info), info),
        DistMatrix.Free,
    )
    matrices = {each.method: each.made for each in candidates if each.made is not None}
    first = next(iter(matrices.values()))
    x = vector(*first.col_range, np.dtype(np.float64))
    whole = stencil27(points) if comm.rank == 0 else None
    contestants = [_serial(whole, points**3)]
    contestants += [
        Contestant(method, product(each, x), partial(against_scipy, comm, each, whole))
        for method, each in matrices.items()
    ]
    out = console(options.terminal) if comm.rank == 0 else None
    found = timed(comm, contestants, options, out, "multiplying")
    times, alone = found.times, found.times[SERIAL]
    report = Report(
        "bench spmv",
        options.settings(),
        {"stencil": 27, "rows": points**3, "nonzeros": first.nnz, "ranks": comm.size},
        remarks=[REMARK],
    )
    nbytes = traffic(first)
    setups = {method: halo_setup(comm, each) for method, each in matrices.items()}
    labels = {method: label(method, each) for method, each in matrices.items()}
    release(comm, candidates, DistMatrix.Free)
    serial_labels = {"method": SERIAL, "product": "serial, rank 0"}
    report.rows.append(Row(serial_labels, alone, nbytes=nbytes, against={SERIAL: alone}))
    for each in candidates:
        if each.reason:
            report.rows.append(Row({"method": each.method}, reason=each.reason))
            continue
        mine = times[each.method]
        against = {SERIAL: alone} | {name: times[name] for name in (BASELINE,) if name in times}
        setup = setups[each.method] + each.freeing
        row = Row(labels[each.method], mine, setup, nbytes, against, hidden=("error",))
        row.verdict = found.verdicts[each.method]
        report.rows.append(row)
        speed = median(other / one for one, other in zip(mine, alone, strict=True))
        report.remarks.append(f"{each.method}: {speed:.2f} times as fast as {SERIAL} on one rank")
    report.finish(comm, out, options.json)
    return report.code(comm)


def _serial(whole: Any, rows: int) -> Contestant:
    """Local. SciPy's product with the whole matrix, which rank 0 has, alone."""
    why = unchecked("SciPy is what others are checked against")
    x = vector(0, rows, np.dtype(np.float64)) if whole is not None else None
    return Contestant(SERIAL, lambda: whole @ x if whole is not None else None, why, alone=True)
