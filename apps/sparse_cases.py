"""The matrices of the sparse benchmark: those of a folder that are large enough, and made ones."""

from __future__ import annotations

import os
import re
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from mpi4py import MPI

from onesided.apps.failures import user_errors
from onesided.apps.rowblock import RowBlock
from onesided.collectives import agreed
from onesided.sparse import Partition, stencil27, trace_mesh
from onesided.sparse.files.matrixmarket import read_header
from onesided.sparse.files.textfile import TextFile

FOLDER = "ONESIDED_MATRICES"  # the variable that names the folder of matrices
NAME = re.compile(r"(.+)\.mtx(\.gz)?")
GRIDS = (64, 100)  # points along an edge
LEAST_GRID = 8
MESH = 1_000_000  # triangles
LEAST_MESH = 1000


@dataclass(frozen=True)
class SparseCase:
    """A matrix by name; ``make`` (Collective) gives this rank's rows of it."""

    name: str
    make: Callable[[MPI.Intracomm], RowBlock]
    generated: bool = True


def cases(comm: MPI.Intracomm, options: Namespace) -> tuple[list[SparseCase], str]:
    """Collective. All cases, and why there are none of files; empty where there are some.

    :class:`.CommandError` on every rank for a folder that is not there, or a file with no header.
    """
    folder = options.matrices or os.environ.get(FOLDER, "")
    folder = comm.bcast(folder)  # launchers need not pass the environment on
    found: list[Path] = []
    with user_errors(), agreed(comm):
        if comm.rank == 0 and folder:
            found = _large_enough(Path(folder), options.entries)
    files = [
        SparseCase(NAME.sub(r"\1", path.name), partial(_of_file, path=path), False)
        for path in comm.bcast(found)
    ]
    reason = "" if folder else f"no matrices of files: {FOLDER} and --matrices name no folder"
    if folder and not files:
        reason = f"no Matrix Market file with more than {options.entries} entries in {folder}"
    return [*files, *_made(options.shrink)], reason


def _large_enough(folder: Path, entries: int) -> list[Path]:
    """Local. The files whose headers say that they may have more entries, by name.

    A symmetric matrix has at most twice as many as its file.
    """
    names = sorted(path for path in folder.iterdir() if NAME.fullmatch(path.name))
    return [path for path in names if _most_entries(path) > entries]


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
