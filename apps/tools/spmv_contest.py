"""One matrix multiplied by our methods, by PETSc and by SciPy in turns: who takes part, and times.

PETSc multiplies the same rows in the same partition, in a job of its own. SciPy has the whole
matrix on rank 0, alone; meanwhile the other ranks sleep.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

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
from onesided.apps.bench.selection import BASELINE, Candidate, hints, prepare, release
from onesided.apps.cli.failures import user_errors
from onesided.apps.cli.options import Options
from onesided.apps.cli.progress import console
from onesided.apps.cli.statistics import Target
from onesided.apps.tools.petsc import Installation, Petsc, find, question
from onesided.apps.tools.rowblock import RowBlock
from onesided.apps.tools.spmv import against_scipy, product, traffic, vector
from onesided.collectives import agreed
from onesided.sparse import DistMatrix, Partition, stencil27, trace_mesh
from onesided.sparse.files.matrixmarket import read_header
from onesided.sparse.files.textfile import TextFile

# The matrices of the sparse benchmark: those of a folder that are large enough, and made ones.

FOLDER = "ONESIDED_MATRICES"  # the variable that names the folder of matrices
NAME = re.compile(r"(.+)\.mtx(\.gz)?")
GRIDS = (64, 100)  # points along an edge
LEAST_GRID = 8
MESH = 1_000_000  # triangles
LEAST_MESH = 1000
QUICK = 64  # what they are divided by with --quick


def shrink(options: Options) -> int:
    """Local. What sizes are divided by."""
    return QUICK if options.quick else 1


@dataclass(frozen=True)
class SparseCase:
    """A matrix by name; ``make`` (Collective) gives this rank's rows of it."""

    name: str
    make: Callable[[MPI.Intracomm], RowBlock]
    generated: bool = True


def cases(comm: MPI.Intracomm, options: Options) -> tuple[list[SparseCase], str]:
    """Collective. All cases, and why there are none of files; empty where there are some.

    :class:`.CommandError` on every rank for a folder that is not there, or a file with no header.
    """
    named = options.matrices or [each for each in (os.environ.get(FOLDER, ""),) if each]
    named = comm.bcast(named)  # launchers need not pass the environment on
    found: list[Path] = []
    with user_errors(), agreed(comm):
        if comm.rank == 0:
            found = _large_enough(map(Path, named), options.entries)
    files = [
        SparseCase(NAME.sub(r"\1", path.name), partial(_of_file, path=path), False)
        for path in comm.bcast(found)
    ]
    reason = "" if named else f"no matrices of files: {FOLDER} and --matrices name none"
    if named and not files:
        where = " ".join(named)
        reason = f"no Matrix Market file with more than {options.entries} entries in {where}"
    return [*files, *_made(shrink(options))], reason


def _large_enough(named: Iterable[Path], entries: int) -> list[Path]:
    """Local. The files whose headers say that they may have more entries, of folders by name.

    A symmetric matrix has at most twice as many as its file.
    """
    files: list[Path] = []
    for path in named:
        folder = path.is_dir()
        inside = (each for each in path.iterdir() if NAME.fullmatch(each.name)) if folder else ()
        files += sorted(inside) if folder else [path]
    return [path for path in files if _most_entries(path) > entries]


def _most_entries(path: Path) -> int:
    file = TextFile(path)
    try:
        header = read_header(file)
    finally:
        file.close()
    return header.entries * (1 if header.symmetry == "general" else 2)


def _of_file(comm: MPI.Intracomm, path: Path) -> RowBlock:
    """Collective. A pattern, all of whose values are the same, gets random ones."""
    block = RowBlock.of_file(comm, path)
    values = block.entries.data
    different = comm.allgather([values.min(), values.max()] if len(values) else [])
    if len({value for each in different for value in each}) == 1:
        values[:] = np.random.default_rng(comm.rank).random(len(values))
    return block


def grid(points: int, comm: MPI.Intracomm) -> RowBlock:
    """Local. The 27-point matrix of a cube."""
    share = Partition.even(points**3, comm.size).range(comm.rank)
    return RowBlock.even(comm, stencil27(points, share))


def _mesh(size: int, comm: MPI.Intracomm) -> RowBlock:
    return RowBlock.even(comm, trace_mesh(comm, size))


def _made(divisor: int) -> list[SparseCase]:
    grids = dict.fromkeys(max(LEAST_GRID, edge // divisor) for edge in GRIDS)
    size = max(LEAST_MESH, MESH // divisor)
    return [
        *(SparseCase(f"27-point {edge}^3", partial(grid, edge)) for edge in grids),
        SparseCase(f"trace mesh {size}, generated", partial(_mesh, size)),
    ]


# What the sparse matrix has to reach, and against whom: the numbers of the benchmark's table.

PETSC, SCIPY = "PETSc", "SciPy"
RANKS = 2  # for which the targets hold
ONE_SIDED = "rma-"  # how the names of the one-sided methods begin

PETSC_BOUND = 0.85  # most that a product may take, in times of PETSc's
SCIPY_BOUND = 1.7  # times as fast as SciPy's serial product, where a core's cache is too small
NOT_SLOWER = 1.02  # what can still be called "not slower" where times are measured

HALO_SECONDS = 15e-6  # what is not local arithmetic in a product, on one node
HALO_ENTRIES = 4096  # doubles from the neighbor, then
CG_BOUND = 1.15  # an iteration, in times of one product and the traffic of its vectors
READ_ENTRIES = 5_000_000
READ_BEFORE = 5.0  # times as fast as SciPy's reader before 1.12

HALO_AIM = Target(f"{HALO_SECONDS * 1e6:.0f} us", 1.0, least=False, seconds=HALO_SECONDS)
CG_AIM = Target("product + vectors", CG_BOUND, least=False)
READ_AIM = Target("mmread", NOT_SLOWER, least=False)
READ_BEFORE_AIM = Target("mmread before 1.12", READ_BEFORE)

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
USUAL_CACHE = 2 << 20
SUFFIXES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def product_aims(method: str, nbytes: int, cache: int) -> dict[str, tuple[Target, bool]]:
    """Local. By opponent what a product is compared with, and whether that is a target.

    ``nbytes``: the arrays of the whole matrix; ``cache``: bytes of the cache of one core.
    """
    one_sided = method.startswith(ONE_SIDED)
    return {
        PETSC: (Target(PETSC, PETSC_BOUND, least=False), True),
        BASELINE: (Target(BASELINE, NOT_SLOWER, least=False), one_sided),
        SCIPY: (Target(SCIPY, SCIPY_BOUND), nbytes > cache),
    }


def core_cache(folder: Path = CACHES) -> int:
    """Local. Bytes of the largest cache that belongs to one core alone; 2 MiB if that is unknown.

    Hardware threads of a core share its caches, and count as one.
    """
    try:
        mine = (folder.parent / "topology" / "thread_siblings_list").read_text()
    except OSError:
        mine = ""
    sizes = [_own_size(entry, mine) for entry in sorted(folder.glob("index*"))]
    return max(sizes, default=0) or USUAL_CACHE


def _own_size(entry: Path, siblings: str) -> int:
    """Bytes of a cache; 0 where another core shares it, or it cannot be read."""
    try:
        size = re.fullmatch(r"(\d+)([KMG]?)", (entry / "size").read_text().strip())
        shared = (entry / "shared_cpu_list").read_text()
    except OSError:
        return 0
    alone = re.fullmatch(r"\d+\s*", shared) is not None or shared == siblings
    return int(size[1]) * SUFFIXES[size[2]] if size and alone else 0


@dataclass(frozen=True)
class Opponent:
    """PETSc, as it was found: rank 0 has the installation, all have the reason if there is none."""

    installation: Installation | None
    reason: str = ""

    @classmethod
    def found(cls, comm: MPI.Intracomm) -> Opponent:
        """Collective."""
        try:
            return cls(find(comm))
        except ForeignError as error:
            return cls(None, str(error))

    def start(self, comm: MPI.Intracomm, block: RowBlock, x: Any) -> Petsc:
        """Collective. :class:`ForeignError` on every rank where it cannot take part."""
        if self.reason:
            raise ForeignError(self.reason)
        return Petsc(comm, self.installation, block, x)


@dataclass
class Outcome:
    """What came out: the race of products, and what there is to say about the matrix.

    ``products`` tells by method how it multiplies; ``absent`` why an opponent did not take part;
    ``facts`` what PETSc says of itself. ``nbytes``: the arrays of the whole matrix; ``moved``:
    what one product reads and writes at least.
    """

    race: Race
    candidates: list[Candidate[DistMatrix]]
    products: dict[str, str]
    shape: tuple[int, int]
    nnz: int
    nbytes: int
    moved: int
    absent: dict[str, str] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)


def contest(
    comm: MPI.Intracomm, options: Options, block: RowBlock, names: Sequence[str], petsc: Opponent
) -> Outcome:
    """Collective. Time products of all of them with the same matrix."""
    info = hints(options)
    candidates = prepare(comm, names, block.maker(comm, info), DistMatrix.Free)
    matrices = {each.method: each.made for each in candidates if each.made is not None}
    first = next(iter(matrices.values()))
    outcome = Outcome(
        Race(),
        candidates,
        {name: each.kernel_name for name, each in matrices.items()},
        block.shape,
        first.nnz,
        _bytes(comm, block),
        traffic(first),
    )
    x = vector(*first.col_range, first.dtype)
    alone = first.gather()  # on rank 0
    contestants = [
        steady(comm, name, product(each, x), partial(against_scipy, comm, each, alone))
        for name, each in matrices.items()
    ]
    contestants.append(_serial(comm, first, alone))
    whole = vector(0, first.shape[1], first.dtype)
    job: Petsc | None = None
    try:
        job = petsc.start(comm, block, whole)
        outcome.facts = job.facts
        asked = question(repeats(comm, contestants[0].call, STEADY), LEAD)
        why = unchecked("a library in a job of its own, with the rows that SciPy has, too")
        own = partial(job.times, asked)  # its clock does not see the question and the answer
        contestants.append(Contestant(PETSC, partial(job.run, asked), why, alone=True, own=own))
    except ForeignError as error:
        outcome.absent[PETSC] = str(error)
    out = console(options.terminal) if comm.rank == 0 else None
    outcome.race = timed(comm, contestants, options, out, "multiplying")
    if job is not None:
        job.close()
    release(comm, candidates, DistMatrix.Free)
    return outcome


def _serial(comm: MPI.Intracomm, matrix: DistMatrix, whole: Any) -> Contestant:
    """Collective. SciPy's product with the whole matrix, on rank 0 alone."""
    x = vector(0, matrix.shape[1], matrix.dtype)
    why = unchecked("SciPy is what others are checked against")
    return steady(comm, SCIPY, lambda: whole @ x if whole is not None else None, why, alone=True)


def _bytes(comm: MPI.Intracomm, block: RowBlock) -> int:
    """Collective. The arrays of the matrix on all ranks together."""
    entries = block.entries
    mine = entries.data.nbytes + entries.indices.nbytes + entries.indptr.nbytes
    return int(comm.allreduce(mine))
