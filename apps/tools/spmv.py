"""``onesided spmv``: multiply a matrix from a file with a vector, by one or several methods."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.race import Contestant, timed, unchecked
from onesided.apps.bench.selection import BASELINE, chosen, hints, prepare, release
from onesided.apps.cli.failures import CommandError, user_errors
from onesided.apps.cli.options import Options
from onesided.apps.cli.progress import console, reading
from onesided.apps.cli.report import Report, Row
from onesided.apps.cli.statistics import Verdict, conclusion
from onesided.apps.report.chart import save_traffic
from onesided.apps.tools.rowblock import Maker
from onesided.collectives import agreed
from onesided.sparse import DistMatrix, read

TOLERANCE = 50.0  # rounding errors allowed, in units of the dtype's epsilon
REMARK = (
    "An iteration is one product. GB/s: bytes of the matrix, its indices and the vectors that all "
    "ranks read and write, per second. Set-up: initializing and freeing the halo's request."
)


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; its exit code is 1 where a verification failed."""
    names = chosen(options.comm)
    if options.file is not None:
        return _run(comm, options, names, Path(options.file), options.file)
    with as_file(shipped()) as path:
        return _run(comm, options, names, path, path.name)


def shipped() -> Any:
    """Local. The matrix that comes with the package."""
    folder = files("onesided.apps") / "data"
    found = (
        sorted(
            (entry for entry in folder.iterdir() if ".mtx" in entry.name),
            key=lambda entry: entry.name,
        )
        if folder.is_dir()
        else []
    )
    if not found:
        raise CommandError("this installation has no matrix of its own: name a file")
    return found[0]


def _run(comm: MPI.Intracomm, options: Options, names: list[str], path: Path, shown: str) -> int:
    info = hints(options)
    out = console(options.terminal) if comm.rank == 0 else None
    with reading(out, f"reading {Path(shown).name}") as advance:
        candidates = prepare(
            comm,
            names,
            Maker(
                lambda method: read(
                    comm, path, method=method, info=info, partition=options.partition,
                    progress=advance,
                ),
                info,
            ),
            DistMatrix.Free,
        )  # fmt: skip
    matrices = {each.method: each.made for each in candidates if each.made is not None}
    matrix = next(iter(matrices.values()))
    report = Report("spmv", options.settings(), _pattern(comm, matrix, shown), remarks=[REMARK])
    if options.picture is not None:
        sent = matrix.report().sent
        if comm.rank == 0:
            save_traffic(options.picture, f"{Path(shown).name} on {comm.size} ranks", sent)
    x = vector(*matrix.col_range, matrix.dtype)
    checks = _checks(comm, matrices, path) if options.verify else {}
    contestants = [
        Contestant(method, product(each, x), checks.get(method, unchecked("without --verify")))
        for method, each in matrices.items()
    ]
    found = timed(comm, contestants, options, out, "multiplying")
    times, verdicts = found.times, found.verdicts
    if verdicts:
        report.remarks.append(conclusion(verdicts.values(), "SciPy's product on rank 0"))
    setups = {method: halo_setup(comm, each) for method, each in matrices.items()}
    labels = {method: label(method, each) for method, each in matrices.items()}
    release(comm, candidates, DistMatrix.Free)
    for each in candidates:
        method = each.method
        row = Row({"method": method}, reason=each.reason)
        if not each.reason:
            row = Row(labels[method], times[method], setups[method] + each.freeing, traffic(matrix))
            row.against = {name: times[name] for name in (BASELINE,) if name in times}
            row.verdict = verdicts.get(method)
        report.rows.append(row)
    report.finish(comm, out, options.json)
    return report.code(comm)


def product(matrix: DistMatrix, x: NDArray[Any]) -> Callable[[], object]:
    """Local. The call that is timed: a product into memory that is there."""
    y = np.empty(matrix.row_range[1] - matrix.row_range[0], matrix.dtype)
    return lambda: matrix.dot(x, y)


def label(method: str, matrix: DistMatrix) -> dict[str, str]:
    """Local. The method, with what ``auto`` chose, and the way to multiply."""
    used = method if matrix.method == method else f"{method} ({matrix.method})"
    return {"method": used, "product": matrix.kernel_name}


def halo_setup(comm: MPI.Intracomm, matrix: DistMatrix) -> float:
    """Collective. Seconds that initializing the halo's request took on the slowest rank."""
    return float(comm.allreduce(matrix.halo.request.setup_time, op=MPI.MAX))


def traffic(matrix: DistMatrix) -> int:
    """Local. Bytes that one product reads and writes at least: CSR with 32-bit indices, x, y."""
    rows, columns = matrix.shape
    item = matrix.dtype.itemsize
    return matrix.nnz * (item + 4) + rows * (item + 4) + columns * item


def vector(start: int, stop: int, dtype: np.dtype[Any], phase: float = 0.0) -> NDArray[Any]:
    """Local. Entries ``start`` to ``stop`` of a vector whose entries all differ."""
    angle = 0.61803398875 * np.arange(start, stop) + phase
    values = np.cos(angle) + 1j * np.sin(2.0 * angle) if dtype.kind == "c" else np.cos(angle)
    converted: NDArray[Any] = values.astype(dtype)
    return converted


def _checks(
    comm: MPI.Intracomm, matrices: dict[str, DistMatrix], path: Path
) -> dict[str, Callable[[], Verdict]]:
    """Collective. By method against SciPy, which reads the file on rank 0."""
    whole = None
    with user_errors(), agreed(comm):
        if comm.rank == 0:
            whole = scipy.sparse.csr_array(_read_by_scipy(path))
    return {method: partial(against_scipy, comm, each, whole) for method, each in matrices.items()}


def against_scipy(comm: MPI.Intracomm, matrix: DistMatrix, whole: Any) -> Verdict:
    """Collective. Two products with different vectors; rank 0 has the whole matrix of SciPy."""
    error = float(np.max([_error(comm, matrix, whole, phase) for phase in (0.0, 1.0)]))
    return Verdict(error, TOLERANCE * float(np.finfo(matrix.dtype).eps))


def _read_by_scipy(path: Path) -> Any:
    """Local. The matrix of a file, read by SciPy.

    ``ValueError`` for a format that SciPy has not, or not all of.
    """
    for ending, scipy_read in SCIPY_READERS.items():
        if re.search(ending, path.name, re.IGNORECASE):
            return scipy_read(path)
    known = "Matrix Market, Rutherford-Boeing (.rua) and .npz"
    raise ValueError(f"{path.name}: --verify reads the file with SciPy, which has {known}")


SCIPY_READERS: Mapping[str, Callable[[Path], Any]] = {
    r"\.(mtx|mm)(\.gz)?\Z": scipy.io.mmread,
    r"\.(rua|rb|hb)\Z": scipy.io.hb_read,
    r"\.npz\Z": scipy.sparse.load_npz,
}


def _error(comm: MPI.Intracomm, matrix: DistMatrix, whole: Any, phase: float) -> float:
    """Collective. Largest error of an entry of A x relative to the largest entry of |A||x|."""
    blocks = comm.gather(_product(matrix, phase))
    error = 0.0
    if blocks is not None:
        x = vector(0, matrix.shape[1], matrix.dtype, phase)
        difference = np.abs(np.concatenate(blocks) - whole @ x)
        scale = float(np.max(abs(whole) @ np.abs(x), initial=0.0))
        error = float(np.max(difference, initial=0.0)) / (scale or 1.0)
    return float(comm.bcast(error))


def _product(matrix: DistMatrix, phase: float) -> NDArray[Any]:
    """Collective. This rank's block of A x, in the order of the file."""
    ordering = matrix.ordering
    if ordering is None:
        return matrix @ vector(*matrix.col_range, matrix.dtype, phase)
    start, stop = ordering.original_range
    x = vector(start, stop, matrix.dtype, phase)
    y: NDArray[Any] = ordering.backward(matrix @ ordering.forward(x))
    return y


def _pattern(comm: MPI.Intracomm, matrix: DistMatrix, shown: str) -> dict[str, Any]:
    ghosts = len(matrix.pattern.ghosts)
    return {
        "file": shown,
        "shape": list(matrix.shape),
        "nonzeros": matrix.nnz,
        "dtype": matrix.dtype.name,
        "ranks": comm.size,
        "rows": comm.allgather(matrix.row_range[1] - matrix.row_range[0]),
        "ghosts": comm.allgather(ghosts),
        "neighbors": comm.allgather(matrix.halo.neighbors),
    }
