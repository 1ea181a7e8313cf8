"""Distributed matrices in HDF5 files, written and read by all ranks at once.

A file holds compressed rows, as the datasets ``indptr``, ``indices`` and ``data`` with the
attributes of AnnData's ``csr_matrix``, so that other programs can read it. h5py from PyPI has no
MPI driver; but the datasets are contiguous, and HDF5 says where in the file they begin: so rank 0
makes the file without data, all ranks write theirs into it at once, and the file gets its name
when it is complete. Every rank must see the folder. Any number of ranks can read it.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from onesided.collectives import agreed
from onesided.sparse.files.compressed import RowFile
from onesided.sparse.files.draft import write_together
from onesided.sparse.files.marketwriter import write_matrixmarket
from onesided.sparse.matrix import DistMatrix
from onesided.sparse.moving import before
from onesided.sparse.partition import index_dtype
from onesided.sparse.vector import DistVector

_KIND = "csr_matrix"
_LARGEST_SIZE = np.iinfo(np.int64).max // 4
MATRIX_ENDINGS, VECTOR_ENDINGS = (".h5", ".hdf5", ".mtx"), (".npy",)
#: Endings that say what a file holds; any other one gets the format of the thing's kind.
_ENDINGS = re.compile(
    r"\.(h5|hdf5|mtx|npy|gz|mm|tgz|h5ad|npz|petsc|mat|rb|hb|[rcpi][suhzr]a)\Z", re.IGNORECASE
)


def write(thing: DistMatrix | DistVector, path: str | os.PathLike[str]) -> None:
    """Collective. Write a matrix to an HDF5 file, which :func:`~onesided.sparse.read` reads.

    Any number of ranks can read it. Rows and columns of a matrix that was reordered are written in
    the caller's order. A path that ends with ``.mtx`` gets a Matrix Market file. A vector, or a
    block of them, is written as NumPy's ``.npy``, for :func:`~onesided.sparse.read_vector` and
    ``numpy.load``. A file of that name is replaced when the new one is complete and on the disk;
    where anything fails, it stays, and what is no regular file is never replaced.

    Raises the same error on every rank: ``OSError`` where the system fails, as on a full disk
    or where a rank does not see the folder; ``TypeError`` for what is neither; ``ValueError`` for
    the ending of another format (``.npz``, ``.mtx.gz``), which :func:`~onesided.sparse.read` would
    believe.

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
    if not isinstance(thing, DistMatrix | DistVector):
        raise TypeError(
            f"write takes a DistMatrix or a DistVector, and then the path, not {thing!r:.60}"
        )
    comm, kind = thing.comm, type(thing).__name__
    with agreed(comm, ("write", kind)):
        name = os.fsdecode(path)
        written = MATRIX_ENDINGS if isinstance(thing, DistMatrix) else VECTOR_ENDINGS
        if _ENDINGS.search(name) and not name.lower().endswith(written):
            raise ValueError(f"{name}: a {kind} is written as {', '.join(written)}")
    if isinstance(thing, DistVector):
        _write_vector(thing, name)
        return
    rows, start = thing.local_rows(), thing.row_range[0]
    if thing.ordering is not None:
        rows, start = thing.ordering.restored(rows), thing.ordering.original_range[0]
    if name.lower().endswith(".mtx"):
        write_matrixmarket(comm, name, rows)
        return
    parts = _parts(thing, rows, start)

    def fill(file: BinaryIO, places: dict[str, int]) -> None:
        for name, (items, first, _) in parts.items():
            file.seek(places[name] + first * items.dtype.itemsize)
            file.write(np.ascontiguousarray(items).data)

    write_together(comm, name, lambda draft: _create(draft, thing.shape, parts), fill)


def _write_vector(vector: DistVector, path: str) -> None:
    """Collective. NumPy's header, and behind it the blocks of the ranks."""
    stream = io.BytesIO()
    head = {"descr": vector.dtype.str, "fortran_order": False, "shape": vector.shape}
    np.lib.format.write_array_header_1_0(stream, head)
    header = stream.getvalue()

    def fill(file: BinaryIO, _: object) -> None:
        first = vector.partition.range(vector.comm.rank)[0]
        row_bytes = int(np.prod(vector.shape[1:])) * vector.dtype.itemsize
        file.seek(len(header) + first * row_bytes)
        file.write(np.ascontiguousarray(vector.array).data)

    write_together(vector.comm, path, lambda draft: Path(draft).write_bytes(header), fill)


#: By the name of a dataset this rank's items of it, where in it they begin, and its length.
_Parts = dict[str, tuple[NDArray[Any], int, int]]


def _parts(matrix: DistMatrix, rows: Any, start: int) -> _Parts:
    """Collective. What this rank has to write, rows from ``start`` on."""
    comm = matrix.comm
    first, total = before(comm, int(rows.nnz))
    pointers = rows.indptr.astype(np.int64) + first
    last = comm.rank == comm.size - 1
    index = index_dtype(matrix.shape[1])
    return {
        "indptr": (pointers if last else pointers[:-1], start, matrix.shape[0] + 1),
        "indices": (rows.indices.astype(index, copy=False), first, total),
        "data": (rows.data, first, total),
    }


def _create(draft: str, shape: tuple[int, int], parts: _Parts) -> dict[str, int]:
    """Local. Make the file without data; where in it each dataset begins."""
    import h5py  # slow to import

    with h5py.File(draft, "w") as file:
        file.attrs["encoding-type"] = _KIND
        file.attrs["encoding-version"] = "0.1.0"
        file.attrs["shape"] = np.array(shape, np.int64)
        return {
            name: _allocated(file, name, length, items.dtype)
            for name, (items, _, length) in parts.items()
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


@contextmanager
def open_store(path: str) -> Iterator[RowFile]:
    """Local. ``ValueError`` for a file that does not hold a matrix."""
    import h5py  # slow to import

    with h5py.File(path, "r") as whole:
        file: Any = whole
        if file.attrs.get("encoding-type") == "anndata" and isinstance(file.get("X"), h5py.Group):
            file = file["X"]
        kind = file.attrs.get("encoding-type", _KIND)
        names = ("indptr", "indices", "data")
        missing = [name for name in names if not isinstance(file.get(name), h5py.Dataset)]
        if kind != _KIND or missing or "shape" not in file.attrs:
            raise ValueError(f"no {_KIND}, but {kind!r} with {sorted(file)}")
        sizes = np.asarray(file.attrs["shape"])
        if sizes.shape != (2,) or sizes.dtype.kind not in "iu":
            raise ValueError(f"the shape is {sizes}")
        shape = int(sizes[0]), int(sizes[1])
        if not 0 <= min(shape) <= max(shape) <= _LARGEST_SIZE:
            raise ValueError(f"the shape is {shape}")
        indptr, indices, data = (file[name] for name in names)
        for item, length, kinds in (
            (indptr, shape[0] + 1, "iu"), (indices, data.size, "iu"), (data, data.size, "biufc")
        ):  # fmt: skip
            if item.shape != (length,) or item.dtype.kind not in kinds:
                raise ValueError(f"{item.name} is {item.dtype} of shape {item.shape}")

        def lengths(start: int, stop: int) -> NDArray[np.int64]:
            found = indptr[start : stop + 1].astype(np.int64)
            limits = np.concatenate([[0], found, [data.size]])
            falls = np.flatnonzero(np.diff(limits) < 0)
            if len(falls):
                at = int(falls[0])
                words = f"indptr[{start + at}] is {limits[at + 1]}, after {limits[at]}"
                raise ValueError(f"{words}, of {data.size} entries")
            if (start == 0 and found[0] != 0) or (stop == shape[0] and found[-1] != data.size):
                raise ValueError(f"indptr does not go from 0 to {data.size}")
            sizes: NDArray[np.int64] = np.diff(found)
            return sizes

        yield RowFile(shape, lengths, indices, data)
