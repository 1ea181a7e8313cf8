"""The HDF5 files of :func:`~.store.write`, read by any number of ranks, each its own rows."""

from __future__ import annotations

import contextlib
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
from onesided.sparse.assembly import Choices, check_room, from_any_rank, from_blocks
from onesided.sparse.errors import MatrixFileError, naming
from onesided.sparse.files.dealing import Advance
from onesided.sparse.files.store import KIND
from onesided.sparse.matrix import DistMatrix
from onesided.sparse.moving import balanced
from onesided.sparse.partition import Partition, index_dtype
from onesided.sparse.triplets import Triplets, sent_to

PIECE_BYTES = 1 << 22  # that are read at a time
_LARGEST_SIZE = np.iinfo(np.int64).max // 4

Check = Callable[[NDArray[Any], int], None]  # of items, the first of which has this number


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
        with agreed(comm), naming(name):
            permutation = stored.permutation
            triplets = None if permutation is None else _renumbered(mine, rows, comm.rank, stored)
    if triplets is not None:
        _check_permutation(comm, name, triplets.rows, mine, stored.shape[0])
        held = [triplets]
        del mine, triplets
        return from_any_rank(comm, stored.shape, held, choices)
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
    permutation: Any
    read: int = 0

    @classmethod
    def of(cls, file: Any, path: str, ranks: int, progress: Advance) -> _Stored:
        """Local. Raises ``ValueError`` for a file that does not hold a matrix."""
        import h5py

        if file.attrs.get("encoding-type") == "anndata" and isinstance(file.get("X"), h5py.Group):
            file = file["X"]
        kind = file.attrs.get("encoding-type", KIND)
        names = ("indptr", "indices", "data")
        missing = [name for name in names if not isinstance(file.get(name), h5py.Dataset)]
        if kind != KIND or missing or "shape" not in file.attrs:
            raise ValueError(f"no {KIND}, but {kind!r} with {sorted(file)}")
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
        return cls(path, ranks, progress, shape, indptr, indices, data, permutation)

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


def _check_permutation(
    comm: MPI.Intracomm, path: str, original: NDArray[Any], rows: sparse.csr_array, size: int
) -> None:
    """Collective. Raise where two rows with entries have the same number in the original order.

    ``original``: that of the row of each of this rank's entries.
    """
    lengths = np.diff(rows.indptr)
    own = original[rows.indptr[:-1][lengths > 0]].astype(np.int64)
    even = Partition.even(size, comm.size)
    (came,) = sent_to(comm, even.owners(own), [own])
    with agreed(comm):
        start, stop = even.range(comm.rank)
        repeated = np.flatnonzero(np.bincount(came - start, minlength=stop - start) > 1)
        if len(repeated):
            raise MatrixFileError(f"{path}: the permutation has {start + repeated[0]} twice")


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
