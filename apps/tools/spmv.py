"""``onesided spmv`` and ``onesided bench spmv``: products of a sparse matrix and a vector.

``bench spmv`` sets them beside SciPy's serial product, of the whole matrix on rank 0 while others
sleep, and PETSc's MatMult of the same rows in the same partition, in a job of its own.
"""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.choices import chosen, hints
from onesided.apps.bench.sweep import Case, Labels, Make, sweep
from onesided.apps.bench.timing import MOST_REPEATS, STEADY, WARM, Variant, unchecked
from onesided.apps.cli.failures import CommandError, from_rank_0, user_errors
from onesided.apps.cli.options import Options
from onesided.apps.cli.report import BASELINE, METHOD, Report
from onesided.apps.cli.statistics import Verdict
from onesided.apps.report.figures import Plot, save
from onesided.apps.tools.petsc import Petsc, question
from onesided.apps.tools.rowblock import RowBlock, maker_of_file
from onesided.apps.tools.trace_mesh import trace_mesh
from onesided.collectives import UnsupportedError, agreed
from onesided.sparse import DistMatrix, Partition, read, stencil27

PETSC, SCIPY = "PETSc", "SciPy"
TOLERANCE = 50.0  # rounding errors allowed, in units of the dtype's epsilon
REMARK = (
    "An iteration is one product. GB/s: bytes of the matrix, its indices, the vectors, ghosts and "
    "what is packed for others, of all ranks, per second. Set-up: making and freeing the halo."
)
AGAINST = "SciPy's product on rank 0"
TRIALS = 3  # products of PETSc that tell how long one takes
FOLDER = "ONESIDED_MATRICES"  # the variable that names a folder of matrices
GRIDS, MESH = (64, 100), 1_000_000  # points along an edge; triangles


def ready(
    comm: MPI.Intracomm, matrix: DistMatrix, whole: Any, *, checked: bool, warm_up: float = 0.0,
) -> Variant:
    """Collective. Products of a matrix, which ends with it; ``whole``: of SciPy, on rank 0."""
    x = vector(*matrix.col_range, matrix.dtype)
    y = np.empty(matrix.row_range[1] - matrix.row_range[0], matrix.dtype)
    check = partial(against_scipy, comm, matrix, whole) if checked else unchecked("not asked for")
    return Variant(
        partial(matrix.dot, x, y), check, warm_up=warm_up, free=matrix.Free,
        used=matrix.method, set_up=halo_setup(comm, matrix),
        metrics={"bytes": int(matrix.report().product_bytes.sum()), "kernel": matrix.kernel_name},
    )  # fmt: skip


# -- onesided spmv --------------------------------------------------------------------------------


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; its exit code is 1 where a verification failed."""
    with nullcontext(options.file) if options.file else as_file(shipped()) as path:
        return _run(comm, options, Path(path))


def _run(comm: MPI.Intracomm, options: Options, path: Path) -> int:
    names, info = chosen(options.comm), hints(options)
    report, pattern = Report("spmv", options.settings(), {}, remarks=[REMARK]), dict[str, Any]()

    def opened(comm: MPI.Intracomm, stack: ExitStack) -> Make:
        maker = maker_of_file(comm, path, info, options.partition)
        whole = _by_scipy(comm, path) if options.verify else None

        def make(labels: Labels) -> Variant:
            matrix = maker(labels[METHOD])
            if not pattern:
                pattern.update(_pattern(matrix, path.name))
            return ready(comm, matrix, whole, checked=options.verify)

        return make

    case = Case({}, [{METHOD: name} for name in names], opened,
                told=lambda part: part.pattern.update(pattern))
    sweep(comm, options, report, [case], "multiplying")
    report.draw = _draw
    return report.end(comm, options, AGAINST)


def _draw(path: str, content: Mapping[str, Any]) -> None:
    """Local. Who sends how much to whom."""
    file, ranks, sent = (content["pattern"][name] for name in ("file", "ranks", "sent"))
    save(path, [Plot(f"{file} on {ranks} ranks: bytes of a product, who to whom", matrix=sent)])


# -- onesided bench spmv --------------------------------------------------------------------------

BENCH_REMARK = (
    "vs PETSc: MatMult with the same rows on each rank, by the fastest matrix type that its build "
    "has; vs SciPy: the whole matrix on rank 0, others asleep. Products in a row, after "
    f"{WARM * 1e3:.0f} ms that do not count, for at least {STEADY * 1e3:.0f} ms."
)


def run_bench(comm: MPI.Intracomm, options: Options) -> int:
    names = [*chosen(options.comm), SCIPY, PETSC]
    report = Report("bench spmv", options.settings(), {"ranks": comm.size}, remarks=[BENCH_REMARK],
                    by="matrix")  # fmt: skip
    found = matrices(comm, options)
    files = [make.keywords["path"] for make in found.values() if "path" in make.keywords]
    cases = [
        Case({"matrix": name}, [{METHOD: each} for each in names], partial(_opened, make, options),
             against=(BASELINE, SCIPY, PETSC), region=STEADY)
        for name, make in found.items()
    ]  # fmt: skip
    sweep(comm, options, report, cases, "multiplying", files)
    return report.end(comm, options, AGAINST)


def matrices(comm: MPI.Intracomm, options: Options) -> dict[str, partial[RowBlock]]:
    """Collective. By name what makes this rank's rows: files, and made ones.

    :class:`.CommandError` on every rank for a file that is not there.
    """

    def find() -> list[Path]:
        named = options.matrices or [each for each in (os.environ.get(FOLDER, ""),) if each]
        found: list[Path] = []
        for path in map(Path, named):
            inside = sorted(path.iterdir()) if path.is_dir() else [path]
            found += [each for each in inside if not path.is_dir() or ".mtx" in each.name]
        for path in found:
            path.open("rb").close()
        return found

    made: dict[str, partial[RowBlock]] = {}
    paths = from_rank_0(comm, find)
    for path, name in zip(paths, short_names(paths), strict=True):
        made[name] = partial(_of_file, path=path)
    for points in options.shape or (() if options.matrices else GRIDS):
        made[f"27-point {points}^3"] = partial(grid, points)
    if options.mesh is None:
        options.mesh = 0 if options.shape or options.matrices else MESH
    if options.mesh:
        rows = partial(trace_mesh, size=options.mesh)
        made[f"mesh {options.mesh}"] = partial(lambda comm: RowBlock.even(comm, rows(comm)))
    if not made:
        raise CommandError(f"no Matrix Market files in {', '.join(options.matrices)}")
    return made


def short_names(files: Sequence[Path]) -> list[str]:
    """Local. Of matrices, for tables and pictures; a number where two are alike."""
    short = [re.sub(r"\.[A-Za-z]\w*(\.gz)?\Z", "", file.name) for file in files]
    found = [each if short.count(each) == 1 else f"{each}-{k}" for k, each in enumerate(short, 1)]
    if len(set(found)) == len(found):
        return found
    return [f"{each}-{k}" for k, each in enumerate(short, 1)]  # one is called as another became


def _opened(
    source: Callable[[MPI.Intracomm], RowBlock], options: Options,
    comm: MPI.Intracomm, stack: ExitStack,
) -> Make:
    """Collective. The matrix by every method, whole on rank 0, and in PETSc."""
    block = source(comm)
    maker = block.maker(comm, hints(options))
    held: dict[str, Any] = {}

    def make(labels: Labels) -> Variant:
        name = labels[METHOD]
        if name in (SCIPY, PETSC):
            if not held:
                raise UnsupportedError("no matrix could be made")
            every = vector(0, block.shape[1], block.entries.dtype)
            if name == PETSC:
                return _petsc(comm, block, every)
            why = unchecked("SciPy is what others are checked against")
            return Variant(partial(operator.matmul, held["whole"], every), why, on_root=True,
                           warm_up=WARM, set_up=False)  # fmt: skip
        matrix = maker(name)
        if not held:
            held["whole"] = matrix.gather()
        return ready(comm, matrix, held["whole"], checked=True, warm_up=WARM)

    return make


def _petsc(comm: MPI.Intracomm, block: RowBlock, every: NDArray[Any]) -> Variant:
    """Collective. PETSc's, by its own clock, which does not see the question and the answer."""
    job = Petsc(comm, block, every)
    trial = question("product")
    count = round(STEADY / max(min(job.ask(trial) for _ in range(TRIALS)), 1e-9))
    asked = question("product", max(1, min(MOST_REPEATS, count)), WARM)
    why = unchecked("its product has been compared with SciPy's of the same rows")
    facts = {name: job.facts[name] for name in ("type", "version", "types")}
    return Variant(partial(job.run, asked), why, on_root=True, own=partial(job.times, asked),
                   free=job.close, set_up=False, metrics=facts)  # fmt: skip


def grid(points: int, comm: MPI.Intracomm) -> RowBlock:
    share = Partition.even(points**3, comm.size).range(comm.rank)
    return RowBlock.even(comm, stencil27(points, share))


def _of_file(comm: MPI.Intracomm, path: Path) -> RowBlock:
    """Collective. Balanced by nonzeros; a pattern, all of whose values are the same, gets random
    ones."""
    with read(comm, path, method="p2p") as matrix:
        block = RowBlock(matrix.local_rows(), matrix.row_partition, matrix.col_partition)
    values = block.entries.data
    different = comm.allgather([values.min(), values.max()] if len(values) else [])
    if len({value for each in different for value in each}) == 1:
        values[:] = np.random.default_rng(comm.rank).random(len(values))
    return block


def shipped() -> Any:
    """Local. The matrix that comes with the package."""
    folder = files("onesided.apps") / "data"
    inside = folder.iterdir() if folder.is_dir() else ()
    found = [entry for entry in inside if ".mtx" in entry.name]
    if not found:
        raise CommandError("this installation has no matrix of its own: name a file")
    return min(found, key=lambda entry: entry.name)


# -- what both have -------------------------------------------------------------------------------


def halo_setup(comm: MPI.Intracomm, matrix: DistMatrix) -> float:
    """Collective. Seconds that initializing the halo's request took on the slowest rank."""
    return float(comm.allreduce(matrix.halo.request.setup_time, op=MPI.MAX))


def vector(start: int, stop: int, dtype: np.dtype[Any], phase: float = 0.0) -> NDArray[Any]:
    """Local. Entries ``start`` to ``stop`` of a vector whose entries all differ."""
    angle = 0.61803398875 * np.arange(start, stop) + phase
    values = np.cos(angle) + 1j * np.sin(2.0 * angle) if dtype.kind == "c" else np.cos(angle)
    converted: NDArray[Any] = values.astype(dtype)
    return converted


def against_scipy(comm: MPI.Intracomm, matrix: DistMatrix, whole: Any) -> Verdict:
    """Collective. Two products with different vectors; rank 0 has the whole matrix of SciPy."""
    error = float(np.max([_error(comm, matrix, whole, phase) for phase in (0.0, 1.0)]))
    return Verdict(error, TOLERANCE * float(np.finfo(matrix.dtype).eps))


#: What SciPy reads, by how a name ends.
SCIPY_READERS: Mapping[str, Callable[[Path], Any]] = {
    r"\.(mtx|mm)(\.gz)?\Z": partial(scipy.io.mmread, spmatrix=False),
    r"\.(rua|rb|hb)\Z": partial(scipy.io.hb_read, spmatrix=False),
    r"\.npz\Z": scipy.sparse.load_npz,
}


def _by_scipy(comm: MPI.Intracomm, path: Path) -> Any:
    """Collective. The matrix of a file, read by SciPy on rank 0; :class:`CommandError` for a
    format that SciPy has not, or not all of."""
    with user_errors(), agreed(comm):
        if comm.rank != 0:
            return None
        for ending, scipy_read in SCIPY_READERS.items():
            if re.search(ending, path.name, re.IGNORECASE):
                return scipy.sparse.csr_array(scipy_read(path))
        known = "Matrix Market, Rutherford-Boeing (.rua) and .npz"
        raise ValueError(f"{path.name}: --verify reads the file with SciPy, which has {known}")


def _error(comm: MPI.Intracomm, matrix: DistMatrix, whole: Any, phase: float) -> float:
    """Collective. Largest error of an entry of A x relative to the largest entry of |A||x|."""
    blocks = comm.gather(_product(matrix, phase)) or []

    def error() -> float:
        x = vector(0, matrix.shape[1], matrix.dtype, phase)
        difference = np.abs(np.concatenate(blocks) - whole @ x)
        scale = float(np.max(abs(whole) @ np.abs(x), initial=0.0))
        return float(np.max(difference, initial=0.0)) / (scale or 1.0)

    return from_rank_0(comm, error)


def _product(matrix: DistMatrix, phase: float) -> NDArray[Any]:
    """Collective. This rank's block of A x, in the order of the file."""
    ordering = matrix.ordering
    if ordering is None:
        return matrix @ vector(*matrix.col_range, matrix.dtype, phase)
    start, stop = ordering.original_range
    x = vector(start, stop, matrix.dtype, phase)
    y: NDArray[Any] = ordering.backward(matrix @ ordering.forward(x))
    return y


def _pattern(matrix: DistMatrix, shown: str) -> dict[str, Any]:
    """Collective. What is told of a matrix, and of its rows on every rank."""
    found = matrix.report()
    names = "rows", "ghosts", "neighbors", "sent"
    of_ranks = {name: getattr(found, name).tolist() for name in names}
    return {
        "file": shown, "shape": list(found.shape), "nonzeros": matrix.nnz, "dtype": found.dtype,
        "ranks": len(found.rows), **of_ranks,
    }  # fmt: skip
