"""Distributed matrices in HDF5 files, written and read by any number of ranks.

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
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray
from scipy import sparse

from onesided.collectives import agree, agreed
from onesided.sparse.assembly import Choices, check_room, from_any_rank, from_blocks
from onesided.sparse.errors import naming
from onesided.sparse.matrix import DistMatrix, vector_dtype
from onesided.sparse.partition import Partition, cuts, index_dtype
from onesided.sparse.triplets import Triplets

PIECE_BYTES = 1 << 24  # that are written, or looked up, at a time
_KIND = "csr_matrix"
_LARGEST_SIZE = np.iinfo(np.int64).max // 4


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
        file.attrs["encoding-type"] = _KIND
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


def read_store(comm: MPI.Comm, path: str | os.PathLike[str], choices: Choices) -> DistMatrix:
    """Collective. Read a file of compressed rows; each rank reads the rows that it is to own.

    Raises the same error on every rank: ``OSError`` where a rank cannot open the file,
    ``MatrixFileError`` where it holds no whole matrix.
    """
    name = os.fspath(path)
    with contextlib.ExitStack() as stack:
        with agreed(comm):
            file = stack.enter_context(_opened(name))
            with naming(name):
                stored = _Stored.of(file)
            target = vector_dtype(stored.data.dtype.newbyteorder("="), choices.dtype)
        check_room(comm, stored.shape)
        rows = _balanced(comm, name, stored)
        with agreed(comm), naming(name):
            mine = stored.rows(*rows.range(comm.rank), target)
            permutation = stored.permutation
            triplets = None if permutation is None else _renumbered(mine, rows, comm.rank, stored)
    if triplets is not None:
        return from_any_rank(comm, stored.shape, triplets, choices)
    return from_blocks(comm, mine, rows, choices)


@contextlib.contextmanager
def _opened(path: str) -> Iterator[Any]:
    """Local. The file, to read; a system's error stays what it is."""
    with open(path, "rb"):
        pass
    with naming(path):
        file = h5py.File(path, "r")
    with file:
        yield file


@dataclass(frozen=True, eq=False)
class _Stored:
    """The datasets of an open file."""

    shape: tuple[int, int]
    indptr: Any
    indices: Any
    data: Any
    permutation: Any

    @classmethod
    def of(cls, file: Any) -> _Stored:
        """Local. Raises ``ValueError`` for a file that does not hold a matrix."""
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
        permutation = file.get("permutation")
        lengths = [(indptr, shape[0] + 1), (indices, data.size), (data, data.size)]
        if permutation is not None:
            lengths.append((permutation, shape[0]))
        for item, length in lengths:
            kinds = "biufc" if item is data else "iu"
            if item.shape != (length,) or item.dtype.kind not in kinds:
                raise ValueError(f"{item.name} is {item.dtype} of shape {item.shape}")
        return cls(shape, indptr, indices, data, permutation)

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
        pointers = self.pointers(start, stop)
        part = slice(int(pointers[0]), int(pointers[-1]))
        indices = self.indices[part]
        bad = np.flatnonzero((indices < 0) | (indices >= self.shape[1]))
        if len(bad):
            raise ValueError(
                f"indices[{part.start + int(bad[0])}] is {indices[bad[0]]}, there are "
                f"{self.shape[1]} columns"
            )
        index = index_dtype(max(self.shape[1], len(indices)))
        data = self.data[part].astype(dtype)
        place = data, indices.astype(index), (pointers - pointers[0]).astype(index)
        found = sparse.csr_array(place, shape=(stop - start, self.shape[1]))
        found.sum_duplicates()
        return found


def _balanced(comm: MPI.Comm, path: str, stored: _Stored) -> Partition:
    """Collective. The partition of the rows that balances their nonzeros."""
    even = Partition.even(stored.shape[0], comm.size)
    with agreed(comm), naming(path):
        weights = np.diff(stored.pointers(*even.range(comm.rank))) + 1
    sums = comm.allgather(int(weights.sum()))
    if not any(sums):
        return even
    starts = cuts(weights, sum(sums[: comm.rank]), sum(sums), comm.size)
    comm.Allreduce(MPI.IN_PLACE, starts, op=MPI.SUM)
    return Partition(starts)


def _renumbered(
    rows: sparse.csr_array, partition: Partition, rank: int, stored: _Stored
) -> Triplets:
    """Local. The entries with the indices that they had before the matrix was reordered."""
    size, square = stored.shape[0], stored.shape[0] == stored.shape[1]
    index = index_dtype(max(stored.shape))
    own = stored.permutation[slice(*partition.range(rank))]
    cols = rows.indices.astype(index)
    order = np.argsort(cols, kind="stable")
    ascending = cols[order]
    step = PIECE_BYTES // 8
    for start in range(0, size if square else 0, step):
        piece = stored.permutation[start : start + step]
        first, last = np.searchsorted(ascending, [start, start + len(piece)])
        cols[order[first:last]] = piece[ascending[first:last] - start]
    both = np.concatenate([own, cols])
    if both.size and not (0 <= both.min() and own.max(initial=0) < size):
        raise ValueError(f"the permutation holds {both.min()} to {both.max()}")
    row = np.repeat(own.astype(index), np.diff(rows.indptr))
    return Triplets(row, cols, rows.data)
