"""Parts of the sparse benchmark beside whole products: the halo alone, CG, and reading a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
from mpi4py import MPI
from scipy import sparse

from onesided.apps.bench.foreign import every_core, shared_folder
from onesided.apps.bench.race import LEAD, Contestant, nothing, race, steady, timed, unchecked
from onesided.apps.bench.selection import hints, prepare, release
from onesided.apps.cli.failures import user_errors
from onesided.apps.cli.options import Options
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
    READ_AIM,
    READ_BEFORE_AIM,
    READ_ENTRIES,
    grid,
    shrink,
)
from onesided.collectives.hardware import Layout
from onesided.sparse import DistMatrix, Partition, cg, read, write_matrixmarket
from onesided.sparse.files.dealing import BLOCK_BYTES
from onesided.sparse.files.marketreader import read_triplets
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
    found = timed(comm, [each for some in entered.values() for each in some], options, case)
    rows: list[Row] = []
    for name, matrix in candidates.made.items():
        labels = {"case": case, **label(name, matrix)}
        row = part.row(labels, matrix, [found.times[each.name] for each in entered[name]])
        row.verdict = found.verdicts[entered[name][0].name]
        rows.append(row)
    release(comm, candidates, DistMatrix.Free)
    return rows + candidates.refused(case=case)


# Reading a plain Matrix Market file on all ranks, against SciPy's readers on rank 0 alone.

PER_ROW = 10  # entries of a row
FEW = 3  # rounds with a reader that takes long
#: What is timed of ours: everything up to a matrix that multiplies, and the entries alone.
WHOLE, ENTRIES = "read", "read, entries alone"
READING_REMARK = (
    "Reading: a plain file of numbers with all digits. read ends with a matrix that multiplies; "
    "entries alone, as mmread, with triplets. SciPy reads on rank 0, with threads as it likes, "
    "while the other ranks sleep; its reader before 1.12 in rounds of its own, fewer."
)


def reading_rows(
    comm: MPI.Intracomm, options: Options, methods: Sequence[str], wanted: bool
) -> list[Row]:
    """Collective. A row of the report for each of ours against each of SciPy's readers.

    By the first of the methods.
    """
    size = max(PER_ROW, READ_ENTRIES // shrink(options) // PER_ROW)
    case = f"reading {PER_ROW * size} entries"
    if len(Layout.of(comm).ranks_per_node) > 1:
        return [Row({"case": case}, reason="the file is made on one node only")]
    with user_errors(), shared_folder(comm) as folder:
        path = folder / "generated.mtx"
        comments = ["Generated, not from any application: random entries"]
        write_matrixmarket(comm, path, _random_rows(comm, size), comments=comments)
        return _timed_rows(comm, options, methods[0], wanted, case, path)


def _random_rows(comm: MPI.Intracomm, size: int) -> sparse.csr_array:
    """Local. This rank's rows of a square matrix, with random values in random places."""
    start, stop = Partition.even(size, comm.size).range(comm.rank)
    draw = np.random.default_rng([comm.rank, 5])
    width = size // PER_ROW
    first = np.arange(PER_ROW, dtype=np.int64) * width
    columns = first + draw.integers(0, width, (stop - start, PER_ROW))
    values = draw.standard_normal(columns.size)
    indptr = np.arange(0, columns.size + 1, PER_ROW, dtype=np.int64)
    return sparse.csr_array((values, columns.ravel(), indptr), shape=(stop - start, size))


def _timed_rows(
    comm: MPI.Intracomm, options: Options, method: str, wanted: bool, case: str, path: Path
) -> list[Row]:
    """Collective. The readers in turns on one file."""

    def whole() -> None:
        read(comm, path, method=method).Free()

    why = unchecked("tests compare what is read with SciPy's matrix")
    contestants = [
        Contestant(WHOLE, whole, why),
        Contestant(ENTRIES, lambda: read_triplets(comm, path, None, BLOCK_BYTES), why),
        Contestant(READ_AIM.opponent, partial(_mmread, path), why, alone=True),
    ]
    races = {READ_AIM: timed(comm, contestants, options, case)}
    reader = comm.bcast(_reader_before() is not None)
    if reader:  # so slow that a few rounds of its own must do
        old = Contestant(READ_BEFORE_AIM.opponent, partial(_read_before, path), why, alone=True)
        pair = [replace(each, warm_up=each.call) for each in contestants[:2]]
        pair.append(replace(old, warm_up=nothing))
        races[READ_BEFORE_AIM] = race(comm, pair, iterations=FEW)
    nbytes = path.stat().st_size
    rows: list[Row] = []
    for name in (WHOLE, ENTRIES):
        labels = {"case": case, "method": f"{method}, {name}" if name == WHOLE else name}
        for aim, found in races.items():
            ours, theirs = found.times[name], found.times[aim.opponent]
            rows.append(compared(labels, ours, theirs, aim, wanted=wanted, nbytes=nbytes))
    if not reader:
        labels = {"case": case, "opponent": READ_BEFORE_AIM.opponent}
        rows.append(Row(labels, reason="this SciPy has no such reader any more"))
    return rows


def _mmread(path: Path) -> None:
    """Local. SciPy's reader, on all cores though a launcher may have bound us to one."""
    with every_core():
        scipy.io.mmread(path)


def _read_before(path: Path) -> None:
    """Local. By the reader that SciPy had before 1.12."""
    _reader_before()().read(str(path))


def _reader_before() -> Any:
    """Local. The class of that reader, or None."""
    try:
        return getattr(import_module("scipy.io._mmio"), "MMFile", None)
    except ImportError:
        return None
