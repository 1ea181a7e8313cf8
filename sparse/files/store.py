"""Distributed matrices in HDF5 files, written and read by all ranks at once.

A file holds compressed rows, as the datasets ``indptr``, ``indices`` and ``data`` with the
attributes of AnnData's ``csr_matrix``, so that other programs can read it. h5py from PyPI has no
MPI driver; but the datasets are contiguous, and HDF5 says where in the file they begin: so rank 0
makes the file without data, all ranks write theirs into it at once, and the file gets its name
when it is complete. Every rank must see the folder. Any number of ranks can read it.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray
from scipy import sparse

from onesided.collectives import agreed
from onesided.sparse.alike import vector_dtype
from onesided.sparse.assembly import Choices, check_room, from_blocks
from onesided.sparse.errors import naming
from onesided.sparse.files.draft import drafted
from onesided.sparse.files.marketwriter import write_matrixmarket
from onesided.sparse.files.textfile import Advance
from onesided.sparse.matrix import DistMatrix
from onesided.sparse.moving import balanced, before
from onesided.sparse.partition import Partition, index_dtype
from onesided.sparse.vector import DistVector

PIECE_BYTES = 1 << 22  # that are written or read at a time
_KIND = "csr_matrix"
_LARGEST_SIZE = np.iinfo(np.int64).max // 4
MATRIX_ENDINGS, VECTOR_ENDINGS = (".h5", ".hdf5", ".mtx"), (".npy",)
#: Endings that say what a file holds; any other one gets the format of the thing's kind.
ENDINGS = (
    *MATRIX_ENDINGS, *VECTOR_ENDINGS, ".gz", ".mm", ".tgz", ".h5ad", ".npz", ".petsc", ".mat",
    ".rb", ".hb", ".rua", ".rsa",
)  # fmt: skip

Check = Callable[[NDArray[Any], int], None]  # of items, the first of which has this number


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
    comm, start = thing.comm, thing.row_range[0]
    rows = thing.local_rows()
    with agreed(comm, ("write", os.fspath(path))):
        _check_ending(path, thing)
    if thing.ordering is not None:
        rows, start = thing.ordering.restored(rows), thing.ordering.original_range[0]
    if os.fspath(path).lower().endswith(".mtx"):
        write_matrixmarket(comm, path, rows)
        return
    with drafted(comm, path) as draft:
        parts = _parts(thing, rows, start)
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


def _parts(matrix: DistMatrix, rows: Any, start: int) -> dict[str, _Part]:
    """Collective. What this rank has to write, rows from ``start`` on."""
    comm = matrix.comm
    first, total = before(comm, int(rows.nnz))
    pointers = rows.indptr.astype(np.int64) + first
    last = comm.rank == comm.size - 1
    index = index_dtype(matrix.shape[1])
    return {
        "indptr": _Part(pointers if last else pointers[:-1], start, matrix.shape[0] + 1),
        "indices": _Part(rows.indices.astype(index, copy=False), first, total),
        "data": _Part(rows.data, first, total),
    }


def _create(draft: str, matrix: DistMatrix, parts: dict[str, _Part]) -> dict[str, int]:
    """Local. Make the file without data; where in it each dataset begins."""
    import h5py  # slow to import

    with naming(draft), h5py.File(draft, "w") as file:
        file.attrs["encoding-type"] = _KIND
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


def read_store(
    comm: MPI.Intracomm, path: str | os.PathLike[str], choices: Choices, progress: Advance = None
) -> DistMatrix:
    """Collective. Read a file of compressed rows; each rank reads the rows that it is to own.

    ``progress(done, total)`` is called on rank 0 with bytes of the datasets, taking it that the
    other ranks have read as many.

    Raises the same error on every rank: ``OSError`` where a rank cannot open the file,
    ``MatrixFileError`` where it holds no whole matrix.
    """
    name = os.fspath(path)
    with contextlib.ExitStack() as stack:
        with agreed(comm):
            file = stack.enter_context(_opened(name))
            with naming(name):
                stored = _Stored.of(file, name, comm.size, None if comm.rank else progress)
            target = vector_dtype(stored.data.dtype.newbyteorder("="), choices.dtype)
        check_room(comm, stored.shape)
        rows = _balanced(comm, name, stored)
        with agreed(comm):
            mine = stored.rows(*rows.range(comm.rank), target)
    return from_blocks(comm, mine, rows, choices)


@contextlib.contextmanager
def _opened(path: str) -> Iterator[Any]:
    """Local. The file, to read; a system's error stays what it is."""
    import h5py  # slow to import

    with open(path, "rb"):
        pass
    with naming(path):
        file = h5py.File(path, "r")
    with file:
        yield file


@dataclass(eq=False)
class _Stored:
    """The datasets of an open file, and how far their reading is.

    ``read``: bytes of indices and values that this rank has read.
    """

    path: str
    ranks: int
    progress: Advance
    shape: tuple[int, int]
    indptr: Any
    indices: Any
    data: Any
    read: int = 0

    @classmethod
    def of(cls, file: Any, path: str, ranks: int, progress: Advance) -> _Stored:
        """Local. Raises ``ValueError`` for a file that does not hold a matrix."""
        import h5py

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
        lengths = [(indptr, shape[0] + 1), (indices, data.size), (data, data.size)]
        for item, length in lengths:
            kinds = "biufc" if item is data else "iu"
            if item.shape != (length,) or item.dtype.kind not in kinds:
                raise ValueError(f"{item.name} is {item.dtype} of shape {item.shape}")
        return cls(path, ranks, progress, shape, indptr, indices, data)

    def pointers(self, start: int, stop: int) -> NDArray[np.int64]:
        """Local. Where the rows ``start:stop`` begin, and where the last of them ends."""
        found: NDArray[np.int64] = self.indptr[start : stop + 1].astype(np.int64)
        limits = np.concatenate([[0], found, [self.data.size]])
        falls = np.flatnonzero(np.diff(limits) < 0)
        if len(falls):
            at = int(falls[0])
            raise ValueError(
                f"indptr[{start + at}] is {limits[at + 1]}, after {limits[at]}, of "
                f"{self.data.size} entries"
            )
        if (start == 0 and found[0] != 0) or (
            stop == self.shape[0] and found[-1] != self.data.size
        ):
            raise ValueError(f"indptr does not go from 0 to {self.data.size}")
        return found

    def rows(self, start: int, stop: int, dtype: np.dtype[Any]) -> sparse.csr_array:
        """Local. CSR of these rows, columns global, duplicates summed."""
        with naming(self.path):
            pointers = self.pointers(start, stop)
        first, last = int(pointers[0]), int(pointers[-1])
        index = index_dtype(max(self.shape[1], last - first))
        self._tell()
        indices = self._items(self.indices, first, last, np.dtype(index), self._check_columns)
        data = self._items(self.data, first, last, dtype, None)
        place = data, indices, (pointers - first).astype(index)
        found = sparse.csr_array(place, shape=(stop - start, self.shape[1]))
        found.sum_duplicates()
        return found

    def _items(
        self, dataset: Any, first: int, last: int, dtype: np.dtype[Any], check: Check | None
    ) -> NDArray[Any]:
        """Local. The items ``first:last`` of a dataset, in pieces."""
        found = np.empty(last - first, dtype)
        step = max(PIECE_BYTES // dataset.dtype.itemsize, 1)
        for start in range(first, last, step):
            with naming(self.path):
                piece = dataset[start : min(start + step, last)]
                if check is not None:
                    check(piece, start)
                found[start - first : start - first + len(piece)] = piece
            self.read += piece.nbytes
            self._tell()
        return found

    def _tell(self) -> None:
        """Local. Say how far reading is, if that is wanted."""
        if self.progress is not None:
            total = int(self.indices.nbytes + self.data.nbytes)
            self.progress(min(self.read * self.ranks, total), total)

    def _check_columns(self, indices: NDArray[Any], first: int) -> None:
        """Local. Raise ``ValueError`` for a column that there is not."""
        bad = np.flatnonzero((indices < 0) | (indices >= self.shape[1]))
        if len(bad):
            raise ValueError(
                f"indices[{first + int(bad[0])}] is {indices[bad[0]]}, there are "
                f"{self.shape[1]} columns"
            )


def _balanced(comm: MPI.Intracomm, path: str, stored: _Stored) -> Partition:
    """Collective. The partition of the rows that balances their nonzeros."""
    even = Partition.even(stored.shape[0], comm.size)
    with agreed(comm), naming(path):
        weights = np.diff(stored.pointers(*even.range(comm.rank))) + 1
    return balanced(comm, weights) or even
