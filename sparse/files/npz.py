"""SciPy's .npz files of sparse matrices, streamed by rank 0 into the ranks' shares."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
from mpi4py import MPI
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

from onesided.collectives import agreed
from onesided.sparse.errors import MatrixFileError, naming
from onesided.sparse.files.compressed import check_indices, major_indices
from onesided.sparse.files.dealing import Advance
from onesided.sparse.alike import DTYPES
from onesided.sparse.alike import vector_dtype
from onesided.sparse.partition import Partition, index_dtype
from onesided.sparse.triplets import Triplets

FORMATS = ("csr", "csc", "coo")  # whose arrays are streamed; rank 0 reads others whole
_WHOLE = ("bsr", "dia")
_LARGEST_SHAPE = np.iinfo(np.int64).max // 4


@dataclass(frozen=True)
class Described:
    """An array of the file: its dtype, and its number of items."""

    dtype: np.dtype[Any]
    length: int


@dataclass(frozen=True)
class NpzHeader:
    """Format and shape of the matrix, and its arrays but these two."""

    format: str
    shape: tuple[int, int]
    arrays: dict[str, Described]


def read_npz(
    comm: MPI.Intracomm,
    path: str | os.PathLike[str],
    dtype: DTypeLike | None,
    block_bytes: int,
    progress: Advance = None,
) -> tuple[tuple[int, int], Triplets]:
    """Collective. The shape, and an even share of the entries on each rank.

    Rank 0 decompresses the arrays, one block at a time, and sends each block to the rank that
    is to have it. ``comm`` must be free of other messages.
    """
    name = os.fspath(path)
    header: NpzHeader | None = None
    with agreed(comm):
        if comm.rank == 0:
            with _opened(name) as file:
                header = read_npz_header(file)
    header = comm.bcast(header)
    if header is None:
        raise MatrixFileError(f"{name}: rank 0 sent no header")
    if header.format in _WHOLE:
        return header.shape, _whole(comm, name, dtype)
    target = vector_dtype(header.arrays["data"].dtype.newbyteorder("="), dtype)
    source = _Source(comm, name, header, block_bytes, progress)
    entries = Partition.even(header.arrays["data"].length, comm.size)
    start = entries.range(comm.rank)[0]
    rows_first = header.format != "csc"
    sizes = header.shape if rows_first else header.shape[::-1]
    names = ("row", "column") if rows_first else ("column", "row")
    if header.format == "coo":
        major, minor = source.array("row", entries), source.array("col", entries)
        check_indices(comm, name, names[0], major, sizes[0], start)
    else:
        spread = Partition.even(sizes[0] + 1, comm.size)
        pointers = source.array("indptr", spread)
        minor = source.array("indices", entries)
        major = major_indices(comm, name, pointers, spread.range(comm.rank)[0], entries)
    check_indices(comm, name, names[1], minor, sizes[1], start)
    rows, cols = (major, minor) if rows_first else (minor, major)
    values = source.array("data", entries)
    index = index_dtype(max(header.shape))
    return header.shape, Triplets.joined([Triplets(rows, cols, values)], index, target)


def _whole(comm: MPI.Intracomm, name: str, dtype: DTypeLike | None) -> Triplets:
    """Collective. The entries, all on rank 0."""
    values, place = np.zeros(0), (np.zeros(0, np.int64), np.zeros(0, np.int64))
    with agreed(comm), naming(name):
        if comm.rank == 0:
            stored: Any = sparse.load_npz(name)
            found = stored.tocoo()
            values, place = found.data, found.coords
    target = vector_dtype(comm.bcast(values.dtype), dtype)
    return Triplets.joined([Triplets(*place, values)], np.int64, target)


@contextmanager
def _opened(path: str) -> Iterator[zipfile.ZipFile]:
    """The archive; what is wrong with it becomes a MatrixFileError that names the file."""
    with naming(path), zipfile.ZipFile(path) as file:
        yield file


def read_npz_header(file: zipfile.ZipFile) -> NpzHeader:
    """Local. Format, shape and arrays of a matrix; raises ``ValueError`` for what is none."""
    form = _small(file, "format")
    name = form.item() if form.size == 1 else ""
    name = name.decode("latin-1") if isinstance(name, bytes) else str(name)
    if name not in (*FORMATS, *_WHOLE):
        known = ", ".join((*FORMATS, *_WHOLE))
        raise ValueError(f"a matrix in format {name[:20]!r}; {known} are read")
    sizes = _small(file, "shape")
    if sizes.shape != (2,) or sizes.dtype.kind not in "iu":
        raise ValueError(f"a shape of {sizes.shape} {sizes.dtype}, not two sizes")
    shape = int(sizes[0]), int(sizes[1])
    if not 0 <= min(shape) <= max(shape) <= _LARGEST_SHAPE:
        raise ValueError(f"shape {shape}")
    if name in _WHOLE:
        return NpzHeader(name, shape, {})
    members = ("row", "col") if name == "coo" else ("indptr", "indices")
    arrays = {member: _described(file, member) for member in (*members, "data")}
    entries = arrays["data"].length
    lengths = dict.fromkeys(arrays, entries)
    if name != "coo":
        lengths["indptr"] = shape[name == "csc"] + 1
    for member, array in arrays.items():
        if array.dtype.kind not in ("iu" if member != "data" else "biufc"):
            raise ValueError(f"{member} is {array.dtype}")
        if array.dtype.kind in "fc" and array.dtype.newbyteorder("=") not in DTYPES:
            raise ValueError(f"{member} is {array.dtype}; convert it to float32 or float64")
        if array.length != lengths[member]:
            raise ValueError(f"{member} has {array.length} items, not {lengths[member]}")
    return NpzHeader(name, shape, arrays)


def _stream(file: zipfile.ZipFile, member: str) -> tuple[IO[bytes], Described, int]:
    """An array's bytes behind its header; what it is, and its number of axes."""
    stream = file.open(f"{member}.npy")
    version = np.lib.format.read_magic(stream)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in read:
        raise ValueError(f"{member} is in version {version} of NumPy's format")
    shape, _, dtype = read[version](stream)
    if dtype.hasobject or len(shape) > 1:
        raise ValueError(f"{member} is an array of {dtype} with shape {shape}")
    return stream, Described(dtype, int(np.prod(shape, dtype=object))), len(shape)


def _described(file: zipfile.ZipFile, member: str) -> Described:
    stream, array, axes = _stream(file, member)
    stream.close()
    if axes != 1:
        raise ValueError(f"{member} is not one-dimensional")
    return array


def _small(file: zipfile.ZipFile, member: str) -> NDArray[Any]:
    """An array of a few items, whole."""
    stream, array, axes = _stream(file, member)
    with stream:
        bytes_ = array.length * array.dtype.itemsize
        if bytes_ > 4096:
            raise ValueError(f"{member} has {array.length} items")
        items = np.frombuffer(stream.read(bytes_), array.dtype)
        if len(items) != array.length:
            raise ValueError(f"{member} is cut short")
        return items if axes else items.reshape(())


@dataclass(frozen=True)
class _Source:
    """The file, which rank 0 reads, array by array."""

    comm: MPI.Intracomm
    path: str
    header: NpzHeader
    block_bytes: int
    progress: Advance

    def array(self, member: str, partition: Partition) -> NDArray[Any]:
        """Collective. This rank's part of an array; integers of indices become 64 bits wide."""
        dtype = self.header.arrays[member].dtype
        pieces: list[bytes] = []
        failure: Exception | None = None
        if self.comm.rank == 0:
            try:
                self._deal(member, partition, dtype.itemsize, pieces)
            except Exception as error:
                failure = error
        else:
            while data := self.comm.recv(source=0, tag=0):
                pieces.append(data)
        with agreed(self.comm):
            if failure is not None:
                raise failure
        items = np.frombuffer(b"".join(pieces), dtype)
        native = dtype.newbyteorder("=") if member == "data" else np.dtype(np.int64)
        part: NDArray[Any] = items.astype(native)
        return part

    def _deal(self, member: str, partition: Partition, itemsize: int, mine: list[bytes]) -> None:
        """Local, on rank 0. Send each rank its part in blocks, and an empty one at the end."""
        rank, ended = 0, 0
        total = partition.size * itemsize
        try:
            with _opened(self.path) as file, _stream(file, member)[0] as stream:
                done = 0
                for rank in range(self.comm.size):
                    stop = partition.range(rank)[1] * itemsize
                    while done < stop:
                        data = stream.read(min(self.block_bytes, stop - done))
                        if not data:
                            raise MatrixFileError(f"{self.path}: {member} is cut short")
                        done += len(data)
                        if rank:
                            self.comm.send(data, dest=rank)
                        else:
                            mine.append(data)
                        if self.progress is not None:
                            self.progress(done, total)
                    if rank:
                        ended = rank
                        self.comm.send(b"", dest=rank)
        finally:
            for rank in range(ended + 1, self.comm.size):
                self.comm.send(b"", dest=rank)
