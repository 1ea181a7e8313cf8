"""Distributed matrices in HDF5 files, written by all ranks at once.

A file holds compressed rows, as the datasets ``indptr``, ``indices`` and ``data`` with the
attributes of AnnData's ``csr_matrix``, so that other programs can read it. h5py from PyPI has no
MPI driver; but the datasets are contiguous, and HDF5 says where in the file they begin: so rank 0
makes the file without data, all ranks write theirs into it at once, and the file gets its name
when it is complete. Every rank must see the folder.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from onesided.collectives import agree, agreed
from onesided.sparse.errors import naming
from onesided.sparse.matrix import DistMatrix
from onesided.sparse.partition import index_dtype

PIECE_BYTES = 1 << 24  # that are written at a time
KIND = "csr_matrix"


def write(matrix: DistMatrix, path: str | os.PathLike[str]) -> None:
    """Collective. Write a matrix to an HDF5 file, which :func:`~onesided.sparse.read` reads.

    Any number of ranks can read it. The order of its rows, where the matrix was reordered, is
    stored with it, and reading gives the caller's order again. A file of that name is replaced
    when the new one is complete and on the disk; where anything fails, it stays.

    Raises the same error on every rank: ``OSError`` where the system fails, as on a full disk
    or where a rank does not see the folder.
    """
    comm = matrix.comm
    final = os.path.realpath(path)
    draft = comm.bcast(f"{final}.{uuid.uuid4().hex[:12]}.new")
    rows = matrix.local_rows()
    try:
        agree(comm, what=("sparse.write", os.fspath(path)))
        parts = _parts(matrix, rows)
        places: dict[str, int] = {}
        with agreed(comm):
            if comm.rank == 0:
                places = _create(draft, matrix, parts)
        places = comm.bcast(places)
        with agreed(comm), naming(draft):
            _fill(draft, places, parts)
        with agreed(comm):
            if comm.rank == 0:
                os.replace(draft, final)
                _to_disk(os.path.dirname(final))
    except Exception:  # agreed: no rank writes any more
        if comm.rank == 0:
            with contextlib.suppress(OSError):
                os.unlink(draft)
        raise


@dataclass(frozen=True, eq=False)
class _Part:
    """This rank's part of a dataset, and where in the dataset it begins, in items."""

    items: NDArray[Any]
    first: int
    length: int


def _parts(matrix: DistMatrix, rows: Any) -> dict[str, _Part]:
    """Collective. What this rank has to write."""
    comm, start = matrix.comm, matrix.row_range[0]
    counts = comm.allgather(int(rows.nnz))
    first, total = sum(counts[: comm.rank]), sum(counts)
    pointers = rows.indptr.astype(np.int64) + first
    last = comm.rank == comm.size - 1
    index = index_dtype(matrix.shape[1])
    parts = {
        "indptr": _Part(pointers if last else pointers[:-1], start, matrix.shape[0] + 1),
        "indices": _Part(rows.indices.astype(index, copy=False), first, total),
        "data": _Part(rows.data, first, total),
    }
    if matrix.ordering is not None:
        original = np.arange(*matrix.ordering.original_range, dtype=np.int64)
        parts["permutation"] = _Part(matrix.ordering.forward(original), start, matrix.shape[0])
    return parts


def _create(draft: str, matrix: DistMatrix, parts: dict[str, _Part]) -> dict[str, int]:
    """Local. Make the file without data; where in it each dataset begins."""
    with naming(draft), h5py.File(draft, "w") as file:
        file.attrs["encoding-type"] = KIND
        file.attrs["encoding-version"] = "0.1.0"
        file.attrs["shape"] = np.array(matrix.shape, np.int64)
        return {
            name: _allocated(file, name, part.length, part.items.dtype)
            for name, part in parts.items()
        }


def _allocated(file: Any, name: str, length: int, dtype: np.dtype[Any]) -> int:
    """Local. Make a contiguous dataset whose room is not filled; its place in the file."""
    layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    layout.set_layout(h5py.h5d.CONTIGUOUS)
    layout.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    layout.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    space = h5py.h5s.create_simple((length,))
    kind = h5py.h5t.py_create(dtype, logical=True)
    made = h5py.h5d.create(file.id, name.encode(), kind, space, layout)
    return int(made.get_offset() or 0)


def _fill(draft: str, places: dict[str, int], parts: dict[str, _Part]) -> None:
    """Local. Write this rank's parts into the file, in bounded pieces, and to the disk."""
    number = os.open(draft, os.O_WRONLY)
    try:
        for name, part in parts.items():
            data = np.ascontiguousarray(part.items).view(np.uint8).data
            at = places[name] + part.first * part.items.dtype.itemsize
            done = 0
            while done < len(data):
                done += os.pwrite(number, data[done : done + PIECE_BYTES], at + done)
        os.fsync(number)
    finally:
        os.close(number)


def _to_disk(folder: str) -> None:
    """Local. Make a renamed file last."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
