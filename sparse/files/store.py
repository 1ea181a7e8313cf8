"""Distributed matrices in HDF5 files, written by all ranks at once.

A file holds compressed rows, as the datasets ``indptr``, ``indices`` and ``data`` with the
attributes of AnnData's ``csr_matrix``, so that other programs can read it. h5py from PyPI has no
MPI driver; but the datasets are contiguous, and HDF5 says where in the file they begin: so rank 0
makes the file without data, all ranks write theirs into it at once, and the file gets its name
when it is complete. Every rank must see the folder.
"""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.collectives import agreed
from onesided.sparse.errors import naming
from onesided.sparse.files.draft import drafted
from onesided.sparse.files.marketwriter import write_matrixmarket
from onesided.sparse.matrix import DistMatrix
from onesided.sparse.moving import before
from onesided.sparse.partition import index_dtype
from onesided.sparse.vector import DistVector

PIECE_BYTES = 1 << 24  # that are written at a time
KIND = "csr_matrix"
MATRIX_ENDINGS, VECTOR_ENDINGS = (".h5", ".hdf5", ".mtx"), (".npy",)
#: Endings that say what a file holds; any other one gets the format of the thing's kind.
ENDINGS = (
    *MATRIX_ENDINGS, *VECTOR_ENDINGS, ".gz", ".mm", ".tgz", ".h5ad", ".npz", ".petsc", ".mat",
    ".rb", ".hb", ".rua", ".rsa",
)  # fmt: skip


def write(thing: DistMatrix | DistVector, path: str | os.PathLike[str]) -> None:
    """Collective. Write a matrix to an HDF5 file, which :func:`~onesided.sparse.read` reads.

    Any number of ranks can read it. The order of its rows, where the matrix was reordered, is
    stored with it, and reading gives the caller's order again. A path that ends with ``.mtx`` gets
    a Matrix Market file, which knows no order of rows but its own. A vector, or a block of them, is
    written as NumPy's ``.npy``, for :func:`~onesided.sparse.read_vector` and ``numpy.load``. A file
    of that name is replaced when the new one is complete and on the disk; where anything fails, it
    stays, and what is no regular file is never replaced.

    Raises the same error on every rank: ``OSError`` where the system fails, as on a full disk
    or where a rank does not see the folder; ``TypeError`` for what is neither; ``ValueError`` for
    a reordered matrix in a Matrix Market file, and for the ending of another format (``.npz``,
    ``.mtx.gz``), which :func:`~onesided.sparse.read` would believe.

    Examples
    --------
    >>> import tempfile
    >>> folder = comm.bcast(tempfile.mkdtemp())
    >>> A = diags(comm, [-1, 2, -1], [-1, 0, 1], shape=(8, 8))
    >>> write(A, f"{folder}/A.h5")
    >>> with read(comm, f"{folder}/A.h5") as again:
    ...     again.nnz
    22
    >>> A.Free()
    """
    if isinstance(thing, DistVector):
        with agreed(thing.comm, ("write", os.fspath(path))):
            _check_ending(path, thing)
        with drafted(thing.comm, path) as draft:
            _write_vector(thing, draft)
        return
    if not isinstance(thing, DistMatrix):
        raise TypeError(
            f"write takes a DistMatrix or a DistVector, and then the path, not {thing!r:.60}"
        )
    comm = thing.comm
    rows = thing.local_rows()
    with agreed(comm, ("write", os.fspath(path))):
        market = os.fspath(path).lower().endswith(".mtx")
        _check_ending(path, thing)
        if market and thing.ordering is not None:
            raise ValueError(f"{os.fspath(path)}: the matrix is reordered; write it as HDF5 (.h5)")
    if market:
        write_matrixmarket(comm, path, rows)
        return
    with drafted(comm, path) as draft:
        parts = _parts(thing, rows)
        places: dict[str, int] = {}
        with agreed(comm):
            if comm.rank == 0:
                places = _create(draft, thing, parts)
        places = comm.bcast(places)
        with agreed(comm), naming(draft):
            _fill(draft, places, parts)


def _check_ending(path: str | os.PathLike[str], thing: DistMatrix | DistVector) -> None:
    """Local. ``ValueError`` for the name of a format that is read, but not written so."""
    name = os.fspath(path)
    kinds = MATRIX_ENDINGS if isinstance(thing, DistMatrix) else VECTOR_ENDINGS
    if any(name.lower().endswith(ending) for ending in ENDINGS if ending not in kinds):
        written = ", ".join(kinds)
        raise ValueError(f"{name}: a {type(thing).__name__} is written as {written}")


def _write_vector(vector: DistVector, draft: str) -> None:
    """Collective. NumPy's header, and behind it the blocks of the ranks."""
    comm, start = vector.comm, vector.partition.range(vector.comm.rank)[0]
    stream = io.BytesIO()
    head = {"descr": vector.dtype.str, "fortran_order": False, "shape": vector.shape}
    np.lib.format.write_array_header_1_0(stream, head)
    header = stream.getvalue()
    with agreed(comm):
        if comm.rank == 0:
            with open(draft, "wb") as file:
                file.write(header)
    block = np.ascontiguousarray(vector.array)
    width = int(np.prod(vector.shape[1:]))
    place = _Part(block.reshape(-1), start * width, vector.partition.size * width)
    with agreed(comm):
        _fill(draft, {"vector": len(header)}, {"vector": place})


@dataclass(frozen=True, eq=False)
class _Part:
    """This rank's part of a dataset, and where in the dataset it begins, in items."""

    items: NDArray[Any]
    first: int
    length: int


def _parts(matrix: DistMatrix, rows: Any) -> dict[str, _Part]:
    """Collective. What this rank has to write."""
    comm, start = matrix.comm, matrix.row_range[0]
    first, total = before(comm, int(rows.nnz))
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
    import h5py  # slow to import

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
    import h5py

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

