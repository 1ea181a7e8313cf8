"""``onesided bench spmv --suite``: many matrices, and parts of a product, with what to reach."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from mpi4py import MPI

from onesided.apps.comparison import Comparison, comparison, conclusions
from onesided.apps.failures import user_errors
from onesided.apps.options import settings
from onesided.apps.progress import console
from onesided.apps.report import Report, Row
from onesided.apps.selection import chosen
from onesided.apps.sparse_cases import SparseCase, cases
from onesided.apps.sparse_contest import Opponent, Outcome, contest
from onesided.apps.sparse_parts import CG_REMARK, HALO_REMARK, cg_rows, halo_rows
from onesided.apps.sparse_reading import REMARK as READING_REMARK
from onesided.apps.sparse_reading import reading_rows
from onesided.apps.sparse_targets import RANKS, core_cache, product_aims
from onesided.apps.timing import LEAD, STEADY

METHODS = "rma-notify"  # where --comm says nothing
HALO, CG, READING = 1, 2, 4  # shares of the time; a matrix has one
REMARK = (
    "Reached: the median over the rounds of our time over the opponent's (at most), or of how many "
    "times as fast ours is (at least). Products in a row, after "
    f"{LEAD * 1e3:.0f} ms that do not count, for at least {STEADY * 1e3:.0f} ms. PETSc: MatMult "
    "with the same rows on each rank, in a job of its own. SciPy: the whole matrix on rank 0, "
    "others asleep; it has a target where the matrix exceeds the cache of a core."
)


def run_suite(comm: MPI.Intracomm, options: Namespace) -> int:
    """Collective. The command with ``--suite``."""
    options.comm = options.comm or METHODS
    names, asked = chosen(options.comm), chosen(options.comm, baseline=False)
    table, reason = cases(comm, options)
    share = options.seconds / (len(table) + HALO + CG + READING)
    wanted = comm.size == RANKS and options.shrink == 1
    cache = comm.bcast(core_cache())
    petsc = Opponent.found(comm)
    matrices: dict[str, Any] = {}
    pattern = {"ranks": comm.size, "core_cache_bytes": cache, "matrices": matrices}
    report = Report("bench spmv --suite", settings(options), pattern)
    report.remarks = [
        each for each in (REMARK, HALO_REMARK, CG_REMARK, READING_REMARK, reason) if each
    ]
    for case in table:
        with user_errors():
            block = case.make(comm)
        if not case.generated and block.nnz(comm) <= options.entries:
            continue
        outcome = contest(comm, _during(options, share), block, names, petsc)
        del block
        matrices[case.name] = _facts(case, outcome)
        report.rows += _rows(case.name, outcome, cache, asked if wanted else [])
    report.rows += halo_rows(comm, _during(options, share * HALO), asked, wanted)
    report.rows += cg_rows(comm, _during(options, share * CG), asked, wanted)
    report.rows += reading_rows(comm, _during(options, share * READING), asked[0], wanted)
    nothing = f"no targets are set for --shrink {options.shrink} on {comm.size} ranks"
    report.remarks += conclusions(report.rows, nothing)
    report.finish(comm, console(options.terminal) if comm.rank == 0 else None, options.json)
    return 0


def _during(options: Namespace, seconds: float) -> Namespace:
    """Local. The options with less time."""
    return Namespace(**(vars(options) | {"seconds": seconds}))


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
    for method, product in outcome.products.items():
        labels = {"case": case, "method": method, "product": product}
        aims = product_aims(method, outcome.nbytes, cache)
        rows += [
            comparison(
                labels,
                outcome.times[method],
                outcome.times[opponent],
                aim,
                wanted=is_target and method in wanted,
                nbytes=outcome.moved,
            )
            for opponent, (aim, is_target) in aims.items()
            if opponent in outcome.times and opponent != method
        ]
    rows += [
        Comparison({"case": case, "method": each.method}, reason=each.reason)
        for each in outcome.candidates
        if each.reason
    ]
    rows += [
        Comparison({"case": case, "opponent": opponent}, reason=why)
        for opponent, why in outcome.absent.items()
    ]
    return rows
