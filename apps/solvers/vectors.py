"""Vectors of ``onesided solve`` and ``onesided pagerank``: where they come from and go to.

A vector in a file, and every vector that a person sees, is in the order of the matrix's file; the
solvers work in the order of the matrix, which a partition may have permuted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import scipy.io
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.cli.failures import CommandError, user_errors, words
from onesided.collectives import agreed
from onesided.sparse import DistMatrix
from onesided.sparse.solvers.space import start_block

DATASET = "x"


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


def vector(comm: MPI.Intracomm, matrix: DistMatrix, source: str) -> NDArray[Any]:
    """Collective. ``ones``, ``random``, or a file's vector, as this rank's block in matrix order.

    :class:`CommandError` where a file cannot be read, or holds another number of entries.
    """
    rows = file_rows(matrix)
    if source in NAMED:
        block = NAMED[source](rows, matrix.dtype)
    else:
        with user_errors():
            block = _scattered(comm, matrix, Path(source))
    if matrix.ordering is None:
        return block
    moved: NDArray[Any] = matrix.ordering.forward(block)
    return moved


def _ones(rows: tuple[int, int], dtype: np.dtype[Any]) -> NDArray[Any]:
    return np.ones(rows[1] - rows[0], dtype)


NAMED: Mapping[str, Callable[[tuple[int, int], np.dtype[Any]], NDArray[Any]]] = {
    "ones": _ones,
    "random": start_block,
}


def _scattered(comm: MPI.Intracomm, matrix: DistMatrix, path: Path) -> NDArray[Any]:
    """Collective. This rank's entries of a vector that rank 0 reads."""
    ranges = comm.gather(file_rows(matrix))
    blocks: list[NDArray[Any]] | None = None
    with agreed(comm):
        if ranges is not None:
            whole = _read(path)
            if whole.shape != (matrix.shape[0],):
                raise ValueError(
                    f"{path} holds an array of shape {whole.shape}, the matrix has "
                    f"{matrix.shape[0]} rows"
                )
            if whole.dtype.kind not in "biufc":
                raise ValueError(f"{path} holds {whole.dtype}, no numbers")
            blocks = [whole[first:last] for first, last in ranges]
    block: NDArray[Any] = comm.scatter(blocks)
    kind = matrix.dtype if block.dtype.kind != "c" else np.result_type(matrix.dtype, np.complex64)
    return block.astype(kind)


def _read(path: Path) -> NDArray[Any]:
    """Local. The vector of a file, told by the end of its name; a column is one as well."""
    whole = READERS.get(path.suffix, _read_market)(path)
    if whole.ndim == 2 and 1 in whole.shape:
        whole = whole.reshape(-1)
    return whole


def _read_market(path: Path) -> NDArray[Any]:
    found = scipy.io.mmread(path)
    return np.asarray(found.toarray() if hasattr(found, "toarray") else found)


def _read_hdf5(path: Path) -> NDArray[Any]:
    with h5py.File(path, "r") as file:
        if DATASET not in file:
            raise ValueError(f"{path} has no dataset {DATASET!r}")
        return np.asarray(file[DATASET])


READERS: Mapping[str, Callable[[Path], NDArray[Any]]] = {
    ".npy": lambda path: np.asarray(np.load(path, allow_pickle=False)),
    ".h5": _read_hdf5,
    ".hdf5": _read_hdf5,
}


def write_solution(
    comm: MPI.Intracomm, path: str, block: NDArray[Any], attributes: Mapping[str, Any]
) -> None:
    """Collective. The ranks' blocks, one after the other, as dataset ``x`` of a new HDF5 file.

    Rank 0 writes, and never holds more than one rank's block besides its own. What was there is
    replaced when all of it is on the disk. :class:`CommandError` where it cannot be written.
    """
    lengths = comm.allgather(len(block))
    with user_errors(), agreed(comm):
        if comm.rank != 0:
            comm.send(block, dest=0)
            return
        others = (comm.recv(source=rank, tag=0) for rank in range(1, comm.size))
        pieces = chain([block], others)
        try:
            _write(path, lengths, pieces, attributes)
        except OSError as error:
            raise CommandError(f"{path}: {words(error)}") from error
        finally:
            for _ in pieces:  # the other ranks send in any case
                pass


def _write(
    path: str, lengths: list[int], pieces: Iterable[NDArray[Any]], attributes: Mapping[str, Any]
) -> None:
    """Local. Under another name, and moved when all of it is on the disk."""
    part, first = Path(f"{path}.part"), 0
    try:
        with h5py.File(part, "w") as file:
            dataset = None
            for length, piece in zip(lengths, pieces, strict=True):
                if dataset is None:
                    dataset = file.create_dataset(DATASET, (sum(lengths),), piece.dtype)
                    dataset.attrs.update(attributes)
                dataset[first : first + length] = piece
                first += length
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
