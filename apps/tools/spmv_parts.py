"""Parts of the sparse benchmark beside whole products: the halo alone, and an iteration of CG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI
from scipy import sparse

from onesided.apps.bench.race import LEAD, Contestant, steady, timed, unchecked
from onesided.apps.bench.selection import hints, prepare, release
from onesided.apps.cli.options import Options
from onesided.apps.cli.progress import console
from onesided.apps.cli.report import Row, compared
from onesided.apps.cli.statistics import Verdict
from onesided.apps.tools.rowblock import RowBlock
from onesided.apps.tools.spmv import against_scipy, label, product, vector
from onesided.apps.tools.spmv_contest import (
    CG_AIM,
    GRIDS,
    HALO_AIM,
    HALO_ENTRIES,
    LEAST_GRID,
    grid,
    shrink,
)
from onesided.sparse import DistMatrix, cg
from onesided.sparse.solvers import Solution

CG_ITERATIONS = 20
RESIDUAL = 1e-9  # what it may lie off that of the recurrence, relative to b
#: Vectors that an iteration of CG reads and writes: (p, q) two, (r, r) one, and x += alpha p,
#: r -= alpha q, p = r + beta p three each.
CG_VECTORS = 12
ADD_VECTORS = 3  # of c = a + b, by which the bandwidth of memory is measured
HALO_REMARK = "Halo: start and finish, in which a rank packs, sends, and waits for its ghosts."
CG_REMARK = (
    f"CG: an iteration, of {CG_ITERATIONS} in a row, against one product and {CG_VECTORS} vectors "
    "read or written (two scalar products: 3; three updates: 9), as fast as c = a + b of such "
    f"vectors ({ADD_VECTORS}), on all ranks at once in the same rounds."
)


@dataclass(frozen=True)
class Part:
    """What of a matrix is timed, under a name, and the row of the report that the times make."""

    contestants: Callable[[MPI.Intracomm, str, DistMatrix], list[Contestant]]
    row: Callable[[dict[str, str], DistMatrix, list[list[float]]], Row]


def halo_rows(
    comm: MPI.Intracomm, options: Options, names: Sequence[str], wanted: bool
) -> list[Row]:
    """Collective. Ghosts from the next rank, one for each row: a row of the report per method."""
    count = max(1, HALO_ENTRIES // shrink(options))
    case = f"halo, {count} doubles"
    if comm.size == 1:
        return [Row({"case": case}, reason="one rank has no neighbor")]
    return _compared(comm, options, names, case, _neighbors(comm, count), _halo(wanted))


def _neighbors(comm: MPI.Intracomm, count: int) -> RowBlock:
    """Local. A matrix whose every row has one entry, in a column of the next rank."""
    first = (comm.rank + 1) % comm.size * count
    columns = np.arange(first, first + count, dtype=np.int32)
    indptr = np.arange(count + 1, dtype=np.int32)
    shape = (count, comm.size * count)
    return RowBlock.even(comm, sparse.csr_array((np.ones(count), columns, indptr), shape=shape))


def _halo(wanted: bool) -> Part:
    def contestants(comm: MPI.Intracomm, name: str, matrix: DistMatrix) -> list[Contestant]:
        halo, x = matrix.halo, vector(*matrix.col_range, matrix.dtype)

        def refresh() -> None:
            halo.start(x)
            halo.finish()

        check = partial(against_scipy, comm, matrix, matrix.gather())
        return [steady(comm, name, refresh, check)]

    def row(labels: dict[str, str], matrix: DistMatrix, times: list[list[float]]) -> Row:
        nbytes = len(matrix.pattern.ghosts) * matrix.dtype.itemsize
        return compared(labels, times[0], (), HALO_AIM, wanted=wanted, nbytes=nbytes)

    return Part(contestants, row)


def cg_rows(
    comm: MPI.Intracomm, options: Options, names: Sequence[str], wanted: bool
) -> list[Row]:
    """Collective. An iteration of CG on the largest grid: a row of the report per method."""
    edge = max(LEAST_GRID, GRIDS[-1] // shrink(options))
    case = f"CG, 27-point {edge}^3"
    return _compared(comm, options, names, case, grid(edge, comm), _cg(wanted))


def _cg(wanted: bool) -> Part:
    def contestants(comm: MPI.Intracomm, name: str, matrix: DistMatrix) -> list[Contestant]:
        x = vector(*matrix.col_range, matrix.dtype)
        a, b, c = (np.ones_like(x) for _ in range(3))
        solve = partial(_solve, matrix, x)
        return [
            Contestant(f"{name} CG", solve, partial(_residual, comm, matrix, x), lead=LEAD),
            steady(comm, f"{name} product", product(matrix, x), unchecked("within CG")),
            steady(comm, f"{name} vectors", partial(np.add, a, b, out=c), unchecked("a sum")),
        ]

    def row(labels: dict[str, str], matrix: DistMatrix, times: list[list[float]]) -> Row:
        runs, products, sums = times
        ours = [each / CG_ITERATIONS for each in runs]
        factor = CG_VECTORS / ADD_VECTORS
        theirs = [one + factor * add for one, add in zip(products, sums, strict=True)]
        return compared(labels, ours, theirs, CG_AIM, wanted=wanted)

    return Part(contestants, row)


def _residual(comm: MPI.Intracomm, matrix: DistMatrix, b: Any) -> Verdict:
    """Collective. The true residual against that of the recurrence, relative to b."""
    solution = _solve(matrix, b)
    rest = b - matrix @ solution.x
    squares = comm.allreduce(np.array([np.vdot(rest, rest).real, np.vdot(b, b).real]))
    length, size = np.sqrt(squares).tolist()
    off = abs(length - float(solution.residuals[-1]))
    return Verdict(off / (size or 1.0), RESIDUAL)


def _solve(matrix: DistMatrix, b: Any) -> Solution:
    """Collective. So many iterations, to a tolerance that is not reached."""
    solution = cg(matrix, b, rtol=0.0, maxiter=CG_ITERATIONS)
    if solution.iterations != CG_ITERATIONS:
        raise ArithmeticError(f"{solution.iterations} iterations of CG, then {solution.reason}")
    return solution


def _compared(
    comm: MPI.Intracomm,
    options: Options,
    names: Sequence[str],
    case: str,
    block: RowBlock,
    part: Part,
) -> list[Row]:
    """Collective. A row for every method, timed in turns; or why it is missing."""
    candidates = prepare(comm, names, block.maker(comm, hints(options)), DistMatrix.Free)
    entered = {name: part.contestants(comm, name, each) for name, each in candidates.made.items()}
    out = console(options.terminal) if comm.rank == 0 else None
    found = timed(comm, [each for some in entered.values() for each in some], options, out, case)
    rows: list[Row] = []
    for name, matrix in candidates.made.items():
        labels = {"case": case, **label(name, matrix)}
        row = part.row(labels, matrix, [found.times[each.name] for each in entered[name]])
        row.verdict = found.verdicts[entered[name][0].name]
        rows.append(row)
    release(comm, candidates, DistMatrix.Free)
    return rows + candidates.refused(case=case)
