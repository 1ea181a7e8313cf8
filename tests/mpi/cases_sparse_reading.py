"""Reading Matrix Market files on several ranks, and what every rank says of bad ones."""

import contextlib
import gzip
import os
import shutil
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import scipy.io
from cases import parameters, skip
from cases_matrix import check
from errors import agreed, raises
from scipy import sparse

from onesided.collectives import MismatchError
from onesided.sparse import MatrixMarketError, moving, read, read_vector, write_matrixmarket
from onesided.sparse.files.marketreader import read_triplets
from onesided.sparse.moving import Triplets, balanced_rows, route
from onesided.sparse.partition import Partition

pytestmark = pytest.mark.one_mpi

SHIPPED = Path(__file__).resolve().parent.parent / "matrices"
LARGE = os.environ.get("ONESIDED_MATRICES", "")
REAL = "%%MatrixMarket matrix coordinate real general\n"
ARRAY = b"%%MatrixMarket matrix array real general\n"


def shipped_files():
    return sorted(path.name for path in SHIPPED.glob("*.mtx.gz"))


def large_files():
    return sorted(path.name for path in Path(LARGE).glob("*.mtx.gz")) if LARGE else ["none"]


def check_file(comm, path, method):
    """Read and multiply on all ranks, and compare with SciPy."""
    whole = sparse.csr_array(scipy.io.mmread(path, spmatrix=False))
    with read(comm, path, method=method) as matrix:
        assert matrix.nnz == whole.nnz
        check(matrix, whole, np.random.default_rng(whole.nnz))


@contextlib.contextmanager
def file_of(comm, data, name="m.mtx"):
    """Collective. A file that rank 0 alone has written and, in the end, removes."""
    folder = tempfile.mkdtemp() if comm.rank == 0 else None
    path = Path(comm.bcast(folder), name)
    if comm.rank == 0:
        path.write_bytes(data)
    comm.Barrier()
    yield path
    comm.Barrier()
    if folder:
        shutil.rmtree(folder)


@parameters(name=shipped_files)
def case_shipped(comm, name):
    check_file(comm, SHIPPED / name, "p2p")


@parameters(name=large_files, method=["rma-notify", "rma-fence"])
def case_large(comm, name, method):
    if not LARGE:
        skip("ONESIDED_MATRICES names no folder")
    check_file(comm, Path(LARGE, name), method)


@parameters(
    block=["Hamrle1 64", "ash219 100", "plskz362 1500", "mhd1280b 20000"], packed=[True, False]
)
def case_small_blocks(comm, block, packed):
    name, size = block.split()
    data = (SHIPPED / f"{name}.mtx.gz").read_bytes()
    with file_of(comm, data if packed else gzip.decompress(data)) as path:
        shape, triplets = read_triplets(comm, path, None, int(size))
    parts = comm.gather((triplets.rows, triplets.cols, triplets.values))
    if comm.rank == 0:
        joined = [np.concatenate(part) for part in zip(*parts, strict=True)]
        mine = sparse.coo_array((joined[2], joined[:2]), shape=shape)
        theirs = sparse.coo_array(scipy.io.mmread(SHIPPED / f"{name}.mtx.gz", spmatrix=False))
        assert mine.nnz == theirs.nnz
        assert np.array_equal(mine.toarray(), theirs.toarray())
        assert all(len(part[0]) for part in parts)


@parameters(packed=[False, True], shape=[(5, 7), (1, 1), (0, 0), (0, 3), (40, 2)])
def case_array_files(comm, packed, shape):
    values = (np.arange(shape[0] * shape[1]) % 3).astype(float)
    text = f"%%MatrixMarket matrix array real general\n{shape[0]} {shape[1]}\n"
    text += "".join(f"{value}\n" for value in values)
    data = gzip.compress(text.encode()) if packed else text.encode()
    whole = values.reshape(shape, order="F")
    with file_of(comm, data) as path:
        _, triplets = read_triplets(comm, path, None, 16)
        found = np.zeros(shape)
        found[triplets.rows, triplets.cols] = triplets.values
        assert np.array_equal(comm.allreduce(found), whole)
        with read(comm, path, method="p2p") as matrix:
            x = np.arange(1.0, shape[1] + 1)
            y = matrix @ x[slice(*matrix.col_range)]
            assert np.array_equal(y, (whole @ x)[slice(*matrix.row_range)])
            assert matrix.nnz == np.count_nonzero(whole)


def case_duplicates_blank_lines_nan_and_a_missing_newline(comm):
    text = REAL + "% comment\n\n3 2 6\n1 1 1\n\n1 1 2\n3 2 4\n   \n1 1 -3.5\n2 1 nan\n3 2 0"
    with file_of(comm, text.encode()) as path, read(comm, path, method="p2p") as matrix:
        assert matrix.nnz == 3
        y = matrix @ np.array([1.0, 10.0])[slice(*matrix.col_range)]
        expected = np.array([-0.5, np.nan, 40.0])[slice(*matrix.row_range)]
        assert np.array_equal(y, expected, equal_nan=True)


BAD = {
    "empty file": (b"", "it is empty"),
    "not Matrix Market": (b"PK\x03\x04 binary\n", "line 1 is"),
    "truncated": ((REAL + "9 9 4\n1 1 1\n2 2 2\n").encode(), "holds 2 entries, its line 2 says 4"),
    "no entries": ((REAL + "9 9 4\n").encode(), "holds 0 entries"),
    "too many": ((REAL + "9 9 1\n1 1 1\n\n3 3 3\n").encode(), "goes on behind its last entry"),
    "text at the end": ((REAL + "9 9 2\n1 1 1\n2 2 2\nthe end\n").encode(), "line 5: "),
    "bad number": ((REAL + "9 9 2\n1 1 1\n2 2 two\n").encode(), "line 4: 'two'"),
    "row out of range": ((REAL + "9 9 2\n10 1 1\n2 2 2\n").encode(), "line 3: row index 10"),
    "column out of range": ((REAL + "9 9 2\n1 1 1\n2 0 2\n").encode(), "line 4: column index 0"),
    "first of two faults": ((REAL + "9 9 3\n1 1 1\n2 x 2\n3 3 y\n").encode(), "line 4: 'x'"),
    "truncated array": (ARRAY + b"2 2\n1\n2\n3\n", "holds 3 entries, its line 2 says 4"),
    "long array": (ARRAY + b"2 1\n1\n2\n3\n", "goes on behind its last entry"),
}


@parameters(name=list(BAD), size=[8, 1 << 20], packed=[False, True])
def case_bad_file(comm, name, size, packed):
    data, words = BAD[name]
    with file_of(comm, gzip.compress(data) if packed and data else data) as path:
        for call in (lambda: read_triplets(comm, path, None, size), lambda: read(comm, path)):
            agreed(comm, MatrixMarketError, call, words, str(path))


@parameters(where=[3, 50, 199, 200], size=[30, 300])
def case_the_line_of_a_fault_is_exact_wherever_it_lies(comm, where, size):
    lines = [f"{k} {k} 1" for k in range(1, 201)]
    lines[where - 1] = "1 1 oops"
    data = (REAL + "% comment\n200 200 200\n" + "\n".join(lines)).encode()
    with file_of(comm, data) as path:
        agreed(comm, MatrixMarketError, lambda: read_triplets(comm, path, None, size),
               f"line {where + 3}: 'oops'")


def case_files_that_cannot_be_opened(comm):
    """After such an error another file can be read."""
    with file_of(comm, b"") as path:
        folder = path.parent
        missing = folder / "no.mtx"
        agreed(comm, FileNotFoundError, lambda: read(comm, missing), str(missing))
        agreed(comm, IsADirectoryError, lambda: read(comm, folder))
        number = 5 if comm.rank == comm.size - 1 else path
        agreed(comm, TypeError, lambda: read(comm, number), "not int")
        agreed(comm, TypeError, lambda: read_vector(comm, number), "not int")
        for call in (read, read_vector, lambda path, comm: write_matrixmarket(path, comm, None)):
            words = "a communicator, and then the path"
            agreed(comm, TypeError, lambda call=call: call(path, comm), words)
    complex_file = SHIPPED / "dwg961b.mtx.gz"
    agreed(comm, TypeError, lambda: read(comm, complex_file, dtype="f8"), "values of complex128")
    if comm.size > 1:
        dtype = "f8" if comm.rank == comm.size - 1 else None
        raises(MismatchError, lambda: read(comm, complex_file, dtype=dtype), "dtype=<f8")
    check_file(comm, SHIPPED / "west0067.mtx.gz", "p2p")


@parameters(n=[1, 5, 1000], skew=[1, 3])
def case_rows_are_balanced_and_entries_routed(comm, n, skew, seed):
    rng = np.random.default_rng([seed, comm.rank])
    count = 300 * (comm.rank + 1)
    rows = (n * rng.random(count) ** skew).astype(np.int32)
    mine = Triplets(rows, rng.integers(0, 50, count).astype(np.int32), rng.random(count))
    everything = comm.allgather((mine.rows, mine.cols, mine.values))
    whole = [np.concatenate(part) for part in zip(*everything, strict=True)]
    partition = balanced_rows(comm, mine.rows, n)
    weights = np.bincount(whole[0], minlength=n) + 1
    assert np.array_equal(partition.starts, Partition.balanced(weights, comm.size).starts)
    received = route(comm, [mine], partition)
    start, stop = partition.range(comm.rank)
    belongs = (whole[0] >= start) & (whole[0] < stop)
    for part, got in zip(whole, (received.rows, received.cols, received.values), strict=True):
        assert np.array_equal(got, part[belongs])  # in the order of the ranks, and of each
    assert comm.allreduce(int(belongs.sum())) == len(whole[0])


@parameters(kind=["f8", "c16", "i4", "?"], piece=[8, 1 << 30])
def case_items_go_to_those_only_that_they_are_for(comm, kind, piece, seed):
    rng = np.random.default_rng([seed, comm.rank])
    to = rng.integers(0, 4, comm.size) * rng.integers(0, 2, comm.size)
    items = rng.integers(0, 2, (int(to.sum()), 2)).astype(kind)
    with mock.patch.object(moving, "_PIECE_BYTES", piece):
        of = moving.counterparts(comm, to)
        came = moving.moved(comm, items, to, of)
    starts = np.cumsum(to) - to
    sent = comm.allgather([items[start : start + n] for start, n in zip(starts, to, strict=True)])
    assert np.array_equal(came, np.concatenate([parts[comm.rank] for parts in sent]))
    assert came.dtype == items.dtype
    assert of.tolist() == [len(parts[comm.rank]) for parts in sent]
