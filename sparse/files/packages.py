"""Files of other packages: PETSc's binary matrices, MATLAB's, SciPy's; and vectors as ``.npy``."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray
from scipy import sparse

from onesided.collectives import agreed
from onesided.sparse.alike import vector_dtype
from onesided.sparse.assembly import Choices, check_room, from_scipy
from onesided.sparse.errors import MatrixFileError, check_comm, naming
from onesided.sparse.files.compressed import RowFile
from onesided.sparse.files.textfile import Advance
from onesided.sparse.matrix import DistMatrix
from onesided.sparse.partition import Partition
from onesided.sparse.vector import DistVector

_MATRIX = 1211216  # PETSc's numbers at the beginning of an object
_OBJECTS = _MATRIX, 1211214, 1211218, 1211219, 1211221  # vectors, index sets, bags, DMs


@contextmanager
def open_petsc(path: str) -> Iterator[RowFile]:
    """Local. A matrix that PETSc's MatView wrote.

    Big-endian: a number for the kind, rows, columns, nonzeros, the length of each row, columns,
    values. Indices of 32 or 64 bits, real or complex values in double precision.
    """
    whole = np.memmap(path, np.uint8, "r")

    def part(start: int, kind: np.dtype[Any], count: int) -> NDArray[Any]:
        found = whole[start : start + kind.itemsize * count]
        if len(found) != kind.itemsize * count:
            raise ValueError("truncated")
        return found.view(kind)

    index: np.dtype[Any] = np.dtype(">i4")
    if part(0, index, 2).tolist() == [0, _MATRIX]:
        index = np.dtype(">i8")
    kind, n_rows, n_cols, entries = part(0, index, 4).tolist()
    if kind != _MATRIX:
        raise ValueError("no matrix in PETSc's binary format")
    if min(n_rows, n_cols, entries) < 0:
        words = f"sizes are {n_rows}, {n_cols} and {entries}"
        raise ValueError("a dense matrix" if entries == -1 else words)
    before, behind = index.itemsize * (4 + n_rows), index.itemsize * (4 + n_rows + entries)

    def lengths(start: int, stop: int) -> NDArray[np.int64]:
        found = part(index.itemsize * (4 + start), index, stop - start)
        if found.min(initial=0) < 0:
            raise ValueError("lengths of rows are below zero")
        return found.astype(np.int64)

    values = part(behind, _value_kind(path, index, behind, entries), entries)
    yield RowFile((n_rows, n_cols), lengths, part(before, index, entries), values)


def _value_kind(name: str, index: np.dtype[Any], before: int, entries: int) -> np.dtype[Any]:
    """Local. Real or complex, which the file does not say: what ends where the file does, or where
    another object begins; ``ValueError`` where neither does."""
    size = os.path.getsize(name)
    for kind in (np.dtype(">f8"), np.dtype(">c16")):
        end = before + kind.itemsize * entries
        if end == size or (
            end + index.itemsize <= size and np.fromfile(name, index, 1, offset=end)[0] in _OBJECTS
        ):
            return kind
    raise ValueError(
        f"truncated, or no object of PETSc's follows: {size - before} bytes for {entries} values"
    )


def by_rank_0(
    load: Callable[[str, Advance], Any], comm: MPI.Intracomm, path: str, choices: Choices,
    progress: Advance,
) -> DistMatrix:  # fmt: skip
    """Collective. Rank 0 reads a file whole, by a Local function, and deals out the matrix."""
    found = None
    with agreed(comm):
        if comm.rank == 0:
            found = load(path, progress)
            with naming(path):
                vector_dtype(found.dtype)
            if progress is not None:
                progress(os.path.getsize(path), os.path.getsize(path))
    check_room(comm, comm.bcast(None if found is None else found.shape))
    return from_scipy(
        comm, found, method=choices.method, info=choices.info, dtype=choices.dtype,
        partition=choices.partition, kernel=choices.kernel,
    )  # fmt: skip


def load_npz(path: str, progress: Advance) -> Any:
    """Local. SciPy's own format."""
    with naming(path):
        found: Any = sparse.load_npz(path)
        if found.ndim != 2 or found.dtype.kind not in "biufc":
            raise ValueError(f"an array of {found.dtype} and shape {found.shape}, not a matrix")
        if found.format in ("csr", "csc", "bsr"):
            found.check_format(full_check=True)
        return found


def load_matlab(path: str, progress: Advance) -> Any:
    """Local. The first sparse matrix of a MATLAB file, also in a structure or a cell; SuiteSparse's
    is the field A of the structure Problem. Of version 7.3 (HDF5) it is told that SciPy does not
    read it."""
    import scipy.io  # slow to import

    with open(path, "rb") as file:
        if file.read(19) == b"MATLAB 7.3 MAT-file":
            raise MatrixFileError(f"{path}: MATLAB's version 7.3; save it with '-v7'")
    with naming(path):
        variables = scipy.io.loadmat(path, squeeze_me=True, struct_as_record=True, spmatrix=False)
        for found in _sparse_in(list(variables.values())):
            check = getattr(found, "check_format", None)
            if check is not None:
                check(full_check=True)
            return found
    raise MatrixFileError(f"{path} has no sparse matrix")


def _sparse_in(values: Iterable[Any]) -> Iterator[Any]:
    """Local. The sparse matrices among values, and in their fields, A before others, and cells."""
    for value in values:
        if sparse.issparse(value):
            yield value
        elif isinstance(value, np.ndarray | np.void):
            names = sorted(value.dtype.names or (), key=lambda name: name != "A")
            cells = [value] if value.dtype == object else [value[name] for name in names]
            for cell in cells:
                yield from _sparse_in(np.ravel(cell))


def read_vector(
    comm: MPI.Intracomm, path: str | os.PathLike[str], partition: Partition | None = None
) -> DistVector:
    """Collective. A vector (n,), or block of k (n, k), each rank its part, from a file.

    NumPy's ``.npy``, or a Matrix Market file (``.mtx``, ``.mtx.gz``), as SuiteSparse's right-hand
    sides are, which rank 0 reads; a file of one column is a vector.

    ``partition`` None: even blocks. Raises the same error on every rank: ``OSError`` where a rank
    cannot read the file, :class:`MatrixFileError` where it holds no such array.

    Examples
    --------
    >>> import tempfile
    >>> folder = comm.bcast(tempfile.mkdtemp())
    >>> with diags(comm, [-1, 2, -1], [-1, 0, 1], shape=(8, 8)) as A:
    ...     x = DistVector(comm, A.row_partition, np.ones(A.row_range[1] - A.row_range[0]))
    ...     write(x, f"{folder}/x.npy")
    ...     bool((read_vector(comm, f"{folder}/x.npy").array == 1).all())
    True
    """
    check_comm("read_vector", comm)
    with agreed(comm, ("read_vector", partition is None)):
        name = os.fsdecode(path)
    if re.search(r"\.(mtx|mm)(\.gz)?\Z", name, re.IGNORECASE):
        return _market_vector(comm, name, partition)
    block: NDArray[Any] = np.zeros(0)
    with agreed(comm, ("read_vector", name)), naming(name):
        whole = np.load(name, mmap_mode="r", allow_pickle=False)
        if not isinstance(whole, np.ndarray) or whole.ndim not in (1, 2):
            raise ValueError("no array of one or two dimensions")
        if whole.dtype.kind not in "biufc":
            raise ValueError(f"an array of {whole.dtype}")
        rows = partition or Partition.even(len(whole), comm.size)
        if rows.size != len(whole):
            raise ValueError(f"{len(whole)} entries, the partition has {rows.size}")
        start, stop = rows.range(comm.rank)
        native = whole.dtype.newbyteorder("=")
        block = np.array(whole[start:stop], native, order="C")
        if block.ndim == 2 and block.shape[1] == 1:
            block = block[:, 0]  # a vector, as in Matrix Market files
    return DistVector(comm, rows, block)


def _market_vector(comm: MPI.Intracomm, name: str, partition: Partition | None) -> DistVector:
    """Collective. What rank 0 reads of a Matrix Market file."""
    whole: Any = None
    with agreed(comm, ("read_vector", name)):
        if comm.rank == 0:
            import scipy.io  # slow to import

            with open(name, "rb"), naming(name):
                found: Any = scipy.io.mmread(name, spmatrix=False)
                whole = found.toarray() if hasattr(found, "toarray") else np.asarray(found)
            whole = whole[:, 0].copy() if whole.shape[1] == 1 else whole
            if partition is not None and partition.size != len(whole):
                raise MatrixFileError(
                    f"{name}: {len(whole)} entries, the partition has {partition.size}"
                )
    rows = partition or Partition.even(comm.bcast(None if whole is None else len(whole)), comm.size)
    return DistVector.scatter(comm, whole, rows)
