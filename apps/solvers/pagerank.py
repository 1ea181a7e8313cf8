"""``onesided pagerank``: rank the nodes of a directed graph whose matrix is in a file."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.timing import nothing
from onesided.apps.cli.failures import from_rank_0
from onesided.apps.cli.options import Options
from onesided.apps.cli.report import Listing, Report
from onesided.apps.cli.statistics import Verdict
from onesided.apps.solvers.solve import Solve, run_methods
from onesided.apps.solvers.vectors import file_rows, in_file_order, write_solution
from onesided.sparse import DistMatrix
from onesided.sparse.solvers import Solution, pagerank

TOLERANCE = 200.0  # rounding errors allowed, in units of the dtype's epsilon
REMARK = (
    "Times are of one ranking. Nodes are rows of the file, the first one 1; an entry in row i and "
    "column j is a link from i to j, as likely as its value says."
)


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; its exit code is 1 where the ranks did not converge or are wrong."""
    report = Report("pagerank", options.settings(), {}, remarks=[REMARK])

    def prepared(matrix: DistMatrix) -> tuple[Solve, Callable[[], object]]:
        how = {"damping": options.damping, "atol": options.atol, "maxiter": options.maxiter}
        return partial(pagerank, matrix, **how), nothing

    def verdict(matrix: DistMatrix, solution: Solution[Any]) -> Verdict | None:
        return _verdict(comm, matrix, solution, options.damping) if options.verify else None

    def ended(matrix: DistMatrix, solution: Solution[Any]) -> None:
        report.listings["top"] = _top(comm, matrix, solution.x, options.top)
        if options.output is not None:
            write_solution(comm, options.output, in_file_order(matrix, solution.x))

    return run_methods(comm, options, report, prepared, verdict, ended)


def _top(comm: MPI.Intracomm, matrix: DistMatrix, block: NDArray[Any], count: int) -> Listing:
    """Collective. The nodes of the highest ranks; of equal ones the first."""
    mine = in_file_order(matrix, block)
    best = np.argsort(-mine, kind="stable")[:count]
    first = file_rows(matrix)[0]
    found = comm.gather([(float(mine[k]), first + int(k) + 1) for k in best])
    listing = Listing(f"The first {count} of {matrix.shape[0]} nodes", COLUMNS)
    pairs = sorted((pair for part in found or [] for pair in part), key=lambda p: (-p[0], p[1]))
    listing.rows += [(place, node, rank) for place, (rank, node) in enumerate(pairs[:count], 1)]
    return listing


COLUMNS = {"place": ".0f", "node": ".0f", "rank": ".6e"}


def _verdict(
    comm: MPI.Intracomm, matrix: DistMatrix, solution: Solution[Any], damping: float
) -> Verdict:
    """Collective. As many iterations with SciPy's products of the whole matrix on rank 0."""
    whole = matrix.gather()
    blocks = comm.gather(solution.x) or []

    def error() -> float:
        x = _serial(whole, damping, solution.iterations + 1)
        largest = float(np.max(x, initial=0.0))
        found = np.concatenate(blocks)
        return float(np.max(np.abs(found - x), initial=0.0)) / (largest or 1.0)

    allowed = TOLERANCE * float(np.finfo(matrix.dtype).eps)
    return Verdict(from_rank_0(comm, error), allowed)


def _serial(whole: Any, damping: float, iterations: int) -> NDArray[Any]:
    """Local. The ranks after some iterations."""
    size = whole.shape[0]
    out = np.asarray(whole.sum(axis=1)).reshape(-1)
    dangling = out == 0
    x = np.full(size, 1.0 / max(size, 1))
    for _ in range(iterations):
        given = np.divide(x, out, out=np.zeros(size), where=~dangling)
        lost = x[dangling].sum()
        x = damping * (whole.T @ given + lost / size) + (1.0 - damping) / size
    return x
