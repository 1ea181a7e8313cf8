"""``onesided spmv``: multiply a matrix from a file with a vector, by one or several methods."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.foreign import ForeignError
from onesided.apps.bench.race import (
    LEAD,
    STEADY,
    Contestant,
    Race,
    repeats,
    steady,
    timed,
    unchecked,
)
from onesided.apps.bench.selection import BASELINE, Candidates, chosen, hints, prepare, release
from onesided.apps.cli.failures import CommandError, by_rank_0, from_rank_0, user_errors
from onesided.apps.cli.options import Options
from onesided.apps.cli.progress import on_rank_0, reading
from onesided.apps.cli.report import Report, Row
from onesided.apps.cli.statistics import Verdict, conclusion
from onesided.apps.report.chart import save_traffic
from onesided.apps.tools.petsc import Petsc, question
from onesided.apps.tools.rowblock import Maker
from onesided.collectives import agreed
from onesided.sparse import DistMatrix, read

PETSC, SCIPY = "PETSc", "SciPy"
TOLERANCE = 50.0  # rounding errors allowed, in units of the dtype's epsilon
REMARK = (
    "An iteration is one product. GB/s: bytes of the matrix, its indices and the vectors that all "
    "ranks read and write, per second. Set-up: initializing and freeing the halo's request."
)


@dataclass
class Outcome:
    """What came out: the race of products, and what there is to say about the matrix.

    ``labels`` by method, with how it multiplies; ``setups`` of the halo's requests. ``moved``:
    bytes that one product reads and writes at least. ``absent`` tells why an opponent did not take
    part, ``facts`` what PETSc says of itself.
    """

    candidates: Candidates[DistMatrix]
    labels: dict[str, dict[str, str]]
    setups: dict[str, float]
    shape: tuple[int, int]
    nnz: int
    moved: int
    race: Race = field(default_factory=Race)
    absent: dict[str, str] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    def rows(self, hidden: Sequence[str] = ()) -> list[Row]:
        """Local. For every method its time, or why it has none."""
        times, rows = self.race.times, []
        against = {name: times[name] for name in (SCIPY, BASELINE) if name in times}
        for each in self.candidates:
            name = each.method
            row = Row({"method": name}, reason=each.reason)
            if not each.reason:
                setup = self.setups[name] + each.freeing
                row = Row(self.labels[name], times[name], setup, self.moved, against, hidden=hidden)
                row.verdict = self.race.verdicts.get(name)
            rows.append(row)
        return rows


def contest(
    comm: MPI.Intracomm,
    options: Options,
    candidates: Candidates[DistMatrix],
    whole: Callable[[DistMatrix], Any] | None,
    *,
    serial: bool = True,
    in_a_row: bool = False,
    petsc: Callable[[Any], Petsc] | None = None,
) -> Outcome:
    """Collective. Time products of all of them with the same matrix, then free them.

    ``whole``: makes SciPy's matrix on rank 0, Collective, with which ours are checked, and which
    takes part on rank 0 alone where ``serial``. ``in_a_row``: see :func:`.steady`. ``petsc``
    begins the job that multiplies with x.
    """
    matrices = candidates.made
    first = next(iter(matrices.values()))
    outcome = Outcome(
        candidates,
        {name: label(name, each) for name, each in matrices.items()},
        {name: halo_setup(comm, each) for name, each in matrices.items()},
        first.shape,
        first.nnz,
        traffic(first),
    )
    alone = None if whole is None else whole(first)
    x = vector(*first.col_range, first.dtype)
    every = vector(0, first.shape[1], first.dtype) if serial else None
    enter = partial(steady, comm) if in_a_row else Contestant
    contestants = [
        enter(
            name, product(each, x),
            unchecked("without --verify") if whole is None
            else partial(against_scipy, comm, each, alone),
        )
        for name, each in matrices.items()
    ]  # fmt: skip
    if serial:
        why = unchecked("SciPy is what others are checked against")
        multiply = partial(operator.matmul, alone, every)  # on rank 0, which has both
        contestants.append(enter(SCIPY, multiply, why, alone=True))
    job: Petsc | None = None
    if petsc is not None:
        try:
            job = petsc(every)
            outcome.facts = job.facts
            asked = question(repeats(comm, contestants[0].call, STEADY), LEAD)
            why = unchecked("a library in a job of its own, with the rows that SciPy has, too")
            own = partial(job.times, asked)  # its clock does not see the question and the answer
            contestants.append(Contestant(PETSC, partial(job.run, asked), why, alone=True, own=own))
        except ForeignError as error:
            outcome.absent[PETSC] = str(error)
    outcome.race = timed(comm, contestants, options, "multiplying")
    if job is not None:
        job.close()
    release(comm, candidates, DistMatrix.Free)
    return outcome


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
    inside = folder.iterdir() if folder.is_dir() else ()
    found = [entry for entry in inside if ".mtx" in entry.name]
    if not found:
        raise CommandError("this installation has no matrix of its own: name a file")
    return min(found, key=lambda entry: entry.name)


def _run(comm: MPI.Intracomm, options: Options, names: list[str], path: Path, shown: str) -> int:
    info = hints(options)
    with reading(on_rank_0(comm, options), f"reading {Path(shown).name}") as advance:
        make = partial(
            read, comm, path, info=info, partition=options.partition, progress=advance
        )
        maker = Maker(lambda method: make(method=method), info)
        candidates = prepare(comm, names, maker, DistMatrix.Free)
    matrix = next(iter(candidates.made.values()))
    report = Report("spmv", options.settings(), _pattern(comm, matrix, shown), remarks=[REMARK])
    if options.picture is not None:
        sent = matrix.report().sent
        title = f"{Path(shown).name} on {comm.size} ranks"
        by_rank_0(comm, partial(save_traffic, options.picture, title, sent))
    whole = partial(_by_scipy, comm, path) if options.verify else None
    outcome = contest(comm, options, candidates, whole, serial=False)
    if options.verify:
        verdicts = outcome.race.verdicts.values()
        report.remarks.append(conclusion(verdicts, "SciPy's product on rank 0"))
    report.rows = outcome.rows()
    return report.end(comm, options)


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


def against_scipy(comm: MPI.Intracomm, matrix: DistMatrix, whole: Any) -> Verdict:
    """Collective. Two products with different vectors; rank 0 has the whole matrix of SciPy."""
    error = float(np.max([_error(comm, matrix, whole, phase) for phase in (0.0, 1.0)]))
    return Verdict(error, TOLERANCE * float(np.finfo(matrix.dtype).eps))


def _by_scipy(comm: MPI.Intracomm, path: Path, _: DistMatrix) -> Any:
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


SCIPY_READERS: Mapping[str, Callable[[Path], Any]] = {
    r"\.(mtx|mm)(\.gz)?\Z": scipy.io.mmread,
    r"\.(rua|rb|hb)\Z": scipy.io.hb_read,
    r"\.npz\Z": scipy.sparse.load_npz,
}


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
