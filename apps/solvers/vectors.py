"""Vectors of ``onesided solve`` and ``onesided pagerank``: where they come from and go to.

A vector in a file, and every vector that a person sees, is in the order of the matrix's file; the
solvers work in the order of the matrix, which a partition may have permuted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.cli.failures import CommandError, user_errors
from onesided.sparse import DistMatrix, DistVector, Partition, read_vector, write
from onesided.sparse.solvers.space import start_block

ENDING = ".npy"  # of the file of a vector


def file_rows(matrix: DistMatrix) -> tuple[int, int]:
    """Local. The rows of the file, half-open, of which this rank has the entries of a vector."""
    if matrix.ordering is None:
        return matrix.row_range
    first, last = matrix.ordering.original_range
    return int(first), int(last)


def in_file_order(matrix: DistMatrix, block: NDArray[Any]) -> NDArray[Any]:
    """Collective. A block in the matrix's order, as that of the file's order."""
    if matrix.ordering is None:
        return block
    moved: NDArray[Any] = matrix.ordering.backward(block)
    return moved


def _partition(comm: MPI.Intracomm, length: int) -> Partition:
    """Collective. Of which every rank has so many entries."""
    return Partition.from_lengths(np.array(comm.allgather(length), np.int64))


def vector(comm: MPI.Intracomm, matrix: DistMatrix, source: str) -> NDArray[Any]:
    """Collective. ``ones``, ``random``, or a file's vector, as this rank's block in matrix order.

    :class:`CommandError` where a file cannot be read, or holds another number of entries.
    """
    rows = file_rows(matrix)
    if source == "ones":
        block = np.ones(rows[1] - rows[0], matrix.dtype)
    elif source == "random":
        block = start_block(rows, matrix.dtype)
    else:
        with user_errors():
            block = read_vector(comm, source, _partition(comm, rows[1] - rows[0])).array
        if block.ndim != 1:
            raise CommandError(f"{source} holds {block.shape[1]} columns, one is wanted")
        kinds = (matrix.dtype, np.complex64) if block.dtype.kind == "c" else (matrix.dtype,)
        block = block.astype(np.result_type(*kinds))
    if matrix.ordering is None:
        return block
    moved: NDArray[Any] = matrix.ordering.forward(block)
    return moved


def check_output(path: str | None) -> None:
    """Local. :class:`CommandError` before the work where a vector is not written so."""
    if path is not None and not path.endswith(ENDING):
        raise CommandError(f"--output {path}: a vector is written as {ENDING}")


def write_solution(comm: MPI.Intracomm, path: str, block: NDArray[Any]) -> None:
    """Collective. The ranks' blocks, one after the other, in the order of the matrix's file.

    What was there is replaced when all of it is on the disk. :class:`CommandError` where it cannot
    be written.
    """
    with user_errors():
        write(DistVector(comm, _partition(comm, len(block)), block), path)
