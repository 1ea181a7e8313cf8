"""The table of the sparse benchmark: matrices, opponents, and what is to be reached.

PETSc multiplies the same rows in the same partition, in a job of its own. SciPy has the whole
matrix on rank 0, alone; meanwhile the other ranks sleep.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from onesided.apps.bench.foreign import ForeignError
from onesided.apps.bench.selection import BASELINE
from onesided.apps.cli.failures import from_rank_0, user_errors
from onesided.apps.cli.options import Options
from onesided.apps.cli.statistics import Target
from onesided.apps.tools.petsc import Installation, Petsc, installed
from onesided.apps.tools.rowblock import RowBlock
from onesided.apps.tools.spmv import PETSC as PETSC
from onesided.apps.tools.spmv import SCIPY as SCIPY
from onesided.sparse import Partition, stencil27, trace_mesh
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
    named, found = from_rank_0(comm, partial(_large_enough, options))
    files = [SparseCase(NAME.sub(r"\1", path.name), partial(_of_file, path=path), False)
             for path in found]  # fmt: skip
    reason = "" if named else f"no matrices of files: {FOLDER} and --matrices name none"
    if named and not files:
        where = " ".join(named)
        reason = f"no Matrix Market file with more than {options.entries} entries in {where}"
    return [*files, *_made(shrink(options))], reason


def _large_enough(options: Options) -> tuple[list[str], list[Path]]:
    """Local. What names files and folders, and the files whose headers say that they may have more
    entries than ``--entries``; a symmetric matrix has at most twice as many as its file."""
    named = options.matrices or [each for each in (os.environ.get(FOLDER, ""),) if each]
    files: list[Path] = []
    with user_errors():
        for path in map(Path, named):
            inside = path.iterdir() if path.is_dir() else ()
            files += sorted(each for each in inside if NAME.fullmatch(each.name))
            files += [] if path.is_dir() else [path]
        return named, [path for path in files if _most_entries(path) > options.entries]


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
    """PETSc, as it was found, or the reason where there is none."""

    installation: Installation | None
    reason: str = ""

    @classmethod
    def found(cls, comm: MPI.Intracomm) -> Opponent:
        """Collective."""
        try:
            return cls(from_rank_0(comm, installed))
        except ForeignError as error:
            return cls(None, str(error))

    def start(self, comm: MPI.Intracomm, block: RowBlock, x: Any) -> Petsc:
        """Collective. :class:`ForeignError` on every rank where it cannot take part."""
        if self.installation is None:
            raise ForeignError(self.reason)
        return Petsc(comm, self.installation, block, x)
