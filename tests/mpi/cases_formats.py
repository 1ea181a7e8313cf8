"""Harwell-Boeing, npz and HDF5 files on several ranks, and entries from any rank, against SciPy."""

import contextlib
import gzip
import io
import os
import resource
import tarfile
import threading
from pathlib import Path

import h5py
import numpy as np
import scipy.io
from boeing import boeing_file
from cases import parameters, ranks
from cases_sparse_reading import SHIPPED, file_of, same_error
from mpi4py import MPI
from scipy import sparse

from onesided.collectives import MismatchError
from onesided.sparse import (
    DistVector,
    Partition,
    from_scipy,
    read,
    read_vector,
    write_matrixmarket,
)
from onesided.sparse.assembly import from_triplets
from onesided.sparse.errors import HarwellBoeingError, MatrixFileError
from onesided.sparse.files import store
from onesided.sparse.files.store import write


def random_matrix(shape, kind, seed=1, density=0.2):
    """SciPy's CSC with sorted indices; values that text of 17 digits holds exactly."""
    rng = np.random.default_rng(seed)
    mask = rng.random(shape) < density
    values = np.round(rng.standard_normal(shape) * 100)
    if kind == "complex":
        values = values + 1j * np.round(rng.standard_normal(shape) * 100)
    if kind != "integer":
        values = values / 8
    if kind == "pattern":
        values = np.ones(shape)
    return sparse.csc_array(np.where(mask, values, 0))


def whole_of(comm, matrix):
    """Collective. The dense matrix of a distributed one without an ordering, on every rank."""
    rows = matrix.local_rows().toarray()
    return np.concatenate([part for part in comm.allgather(rows) if len(part)] or [rows])


def check(comm, path, whole, **choices):
    """Collective. Read and compare; entries that SciPy stores are stored."""
    with read(comm, path, method="p2p", **choices) as matrix:
        assert matrix.shape == whole.shape
        found = whole_of(comm, matrix)
        assert np.array_equal(found, whole.toarray(), equal_nan=True)
        return matrix.nnz


KINDS = ["real", "complex", "integer", "pattern"]
SYMMETRIES = ["u", "s", "z", "h"]


def symmetric(whole, symmetry):
    """A matrix with that symmetry, and the lower triangle that a file of it holds."""
    if symmetry == "u":
        return whole, whole
    lower = sparse.csc_array(sparse.tril(whole, -1 if symmetry == "z" else 0))
    other = {"s": lower.T, "z": -lower.T, "h": lower.T.conj()}[symmetry].tolil()
    other.setdiag(0)
    return sparse.csc_array(lower + other), lower


@parameters(kind=KINDS, symmetry=SYMMETRIES, rutherford=[False, True], size=[200, 1 << 20])
def case_boeing(comm, kind, symmetry, rutherford, size):
    whole = random_matrix((23, 23), kind)
    if symmetry == "h":
        whole.setdiag(whole.diagonal().real)
        whole.eliminate_zeros()
    whole, held = symmetric(whole, symmetry)
    assert held.nnz > 20
    with file_of(comm, boeing_file(held, kind, symmetry, rutherford), "m.rb") as path:
        check(comm, path, whole)


@parameters(shape=[(1, 1), (0, 0), (0, 4), (4, 0), (3, 40), (40, 3), (2, 2)], packed=[False, True])
def case_boeing_shapes(comm, shape, packed):
    whole = random_matrix(shape, "real", density=0.3)
    data = boeing_file(whole, "real", "r", True)
    data = gzip.compress(data) if packed else data
    with file_of(comm, data, "m.rra.gz" if packed else "m.rra") as path:
        check(comm, path, whole)


FORMS = {
    "D exponents": ("(4D20.13)", lambda x: f"{x:20.12E}".replace("E", "D")),
    "scaled": ("(1P,3E25.16)", lambda x: f"{x:25.16E}"),
    "in brackets": ("(1P(3E25.16))", lambda x: f"{x:25.16E}"),
    "fields that touch": ("(3E22.15)", lambda x: f"{x:22.15E}"),
    "signs for exponents": ("(3E24.16)", lambda x: f"{x:.16E}".replace("E", "").rjust(24)),
    "fixed": ("(8F10.3)", lambda x: f"{x:10.3f}"),
    "without points": ("(8F10.3)", lambda x: f"{round(x * 1000):10d}"),
    "narrower than they say": ("(3E26.16)", lambda x: f"{x:25.16E}"),
    "one a line": ("(E30.16)", lambda x: f"{x:30.16E}"),
    "scale of fixed": ("(2PF12.3)", lambda x: f"{x * 100:12.3f}"),
    "pairs over lines": ("(3D25.16)", lambda x: f"{x:25.16E}".replace("E", "d")),
}


@parameters(form=list(FORMS), kind=["real", "complex"])
def case_fortran_formats(comm, form, kind):
    whole = random_matrix((30, 11), kind)
    words, written = FORMS[form]
    data = boeing_file(whole, kind, "u", False, words, written)
    with file_of(comm, data, "m.rua") as path:
        check(comm, path, whole)


def case_scipy_reads_the_same_boeing_file(comm):
    whole = random_matrix((17, 29), "real")
    with file_of(comm, boeing_file(whole, "real", "u", False), "m.rua") as path:
        assert np.array_equal(scipy.io.hb_read(path, spmatrix=False).toarray(), whole.toarray())
        check(comm, path, whole)
        if comm.rank == 0:
            scipy.io.hb_write(path, sparse.csc_array(whole))
        comm.Barrier()
        check(comm, path, scipy.io.hb_read(path, spmatrix=False))


@ranks(at_least=2)
def case_a_message_that_a_freed_communicator_left(comm):
    """An MPI may give its number to the communicator over which a file is dealt out."""
    whole = random_matrix((17, 29), "real")
    with file_of(comm, boeing_file(whole, "real", "u", False), "m.rua") as path:
        readers, left = comm.Dup(), comm.Dup()
        if comm.rank == 0:
            left.send(b"nobody receives this", 1, tag=left.Get_attr(MPI.TAG_UB))
        comm.Barrier()
        left.Free()
        check(readers, path, whole)
        readers.Free()
        others = [comm.Dup() for _ in range(30)]  # let no later case find it
        for other in others:
            while (message := other.improbe()) is not None:
                message.recv()
        for other in others:
            other.Free()


def broken(change):
    """A file of three rows and columns, with some of its lines changed."""
    whole = sparse.csc_array(np.array([[1.0, 0, 2], [0, 3, 0], [4, 0, 5]]))
    lines = boeing_file(whole, "real", "u", False).decode().split("\n")
    change(lines)
    return "\n".join(lines).encode()


def put(line, old, new):
    def change(lines):
        assert old in lines[line - 1], (lines[line - 1], old)
        lines[line - 1] = lines[line - 1].replace(old, new, 1)

    return change


BROKEN = {
    "header cut": (lambda lines: lines.__delitem__(slice(3, None)), "header has 3 lines"),
    "no counts": (put(2, "1", "x"), "line 2: sizes expected"),
    "no type": (put(3, "RUA", "XYZ"), "line 3: no type"),
    "elements": (put(3, "RUA", "RUE"), "line 3: a matrix of elements"),
    "auxiliary": (put(3, "RUA", "QUA"), "line 3: the values are in an auxiliary file"),
    "huge": (put(3, "             3", "9999999999999999999"), "line 3: sizes too large"),
    "not square": (lambda lines: (put(3, "RUA", "RSA")(lines), shrink(lines)), "line 3: symmetric"),
    "format": (put(4, "(3E25.16)", "(3A25)"), "line 4: '(3A25)' is no format"),
    "formats": (put(4, "(3E25.16)", ""), "line 4: 3 formats expected"),
    "wide format": (put(4, "(3E25.16)", "(9999E9999.16)"), "much shorter than 9999 fields"),
    "pointer no number": (put(5, " 3", " x"), "line 5: column pointer: 'x'"),
    "pointer falls": (put(5, " 3", " 9"), "pointer 2 is 3, the one before it 8"),
    "pointer ends": (put(5, " 6", " 5"), "pointers go from 0 to 4, not from 0 to 5"),
    "index zero": (put(6, " 2", " 0"), "row index -1 of entry 2 is out of range"),
    "index large": (put(6, " 2", " 4"), "row index 3 of entry 2 is out of range"),
    "index missing": (put(6, " 2", "  "), "line 6: row index: a number is missing"),
    "value": (put(7, "E+", "X+"), "line 7: value: "),
    "value missing": (lambda lines: lines.__delitem__(slice(7, None)), "is truncated: of 5 fields"),
}


def shrink(lines):
    words = lines[2][14:].split()
    lines[2] = lines[2][:14] + f"{2:14d}" + "".join(f"{int(word):14d}" for word in words[1:])


@parameters(name=list(BROKEN), packed=[False, True])
def case_broken_boeing(comm, name, packed):
    change, words = BROKEN[name]
    data = broken(change)
    with file_of(comm, gzip.compress(data) if packed else data, "m.rua") as path:
        kind = MatrixFileError if "ointer" in words or "of entry" in words else HarwellBoeingError
        kind = HarwellBoeingError if "line" in words else kind
        text = same_error(comm, lambda: read(comm, path), kind)
        assert words in text, text
        assert str(path) in text, text


def npz_of(whole, packed=True):
    buffer = io.BytesIO()
    sparse.save_npz(buffer, whole, compressed=packed)
    return buffer.getvalue()


@parameters(
    form=["csr", "csc", "coo", "bsr", "dia"], kind=["complex", "integer"], packed=[False, True]
)
def case_npz(comm, form, kind, packed):
    whole = random_matrix((31, 19), kind).asformat(form)
    assert whole.nnz
    with file_of(comm, npz_of(whole, packed), "m.npz") as path:
        assert check(comm, path, whole) == whole.tocsr().nnz


def arrays_of(change):
    arrays = {
        "format": np.array(b"csr"),
        "shape": np.array([2, 3]),
        "data": np.arange(3.0),
        "indices": np.array([0, 2, 1]),
        "indptr": np.array([0, 2, 3]),
    }
    arrays |= change
    arrays = {key: value for key, value in arrays.items() if value is not None}
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


BAD_NPZ = {
    "no archive": b"PK\x03\x04 and nothing",
    "format": arrays_of({"format": np.array(b"lil")}),
    "no format": arrays_of({"format": None}),
    "shape": arrays_of({"shape": np.array([2, 3, 4])}),
    "negative": arrays_of({"shape": np.array([-2, 3])}),
    "data": arrays_of({"data": None}),
    "words": arrays_of({"data": np.array(["a", "b", "c"])}),
    "objects": arrays_of({"data": np.array([None] * 3, object)}),
    "lengths": arrays_of({"data": np.arange(2.0)}),
    "pointers": arrays_of({"indptr": np.array([0, 3])}),
    "falling": arrays_of({"indptr": np.array([0, 4, 3])}),
    "late": arrays_of({"indptr": np.array([1, 2, 3])}),
    "large": arrays_of({"indices": np.array([0, 3, 1])}),
    "axes": arrays_of({"data": np.ones((3, 1))}),
    "cut": npz_of(sparse.eye_array(300, format="csr"))[:-200],
}


@parameters(name=list(BAD_NPZ))
def case_bad_npz(comm, name):
    with file_of(comm, BAD_NPZ[name], "m.npz") as path:
        text = same_error(comm, lambda: read(comm, path), MatrixFileError)
        assert str(path) in text, text


@parameters(kind=["real", "complex"], shape=[(7, 30), (30, 7)], dtype=[None, "f4"])
def case_store(comm, kind, shape, dtype):
    whole = random_matrix(shape, kind)
    if dtype == "f4" and kind == "complex":
        dtype = "c8"
    with file_of(comm, npz_of(whole), "m.npz") as path:
        stored = path.with_name("m.h5")
        with read(comm, path, method="p2p", dtype=dtype) as matrix:
            write(matrix, stored)
        assert not list(path.parent.glob("*.new"))
        assert check(comm, stored, whole) == whole.nnz
        with h5py.File(stored) as file:
            parts = file["data"][:], file["indices"][:], file["indptr"][:]
            assert file.attrs["encoding-type"] == "csr_matrix"
            other = sparse.csr_array(parts, shape=file.attrs["shape"])
        assert np.array_equal(other.toarray(), whole.toarray())


@ranks(at_least=2)
def case_a_store_of_other_ranks(comm):
    whole = random_matrix((50, 50), "real")
    fewer = comm.Split(comm.rank == 0)
    try:
        with file_of(comm, npz_of(whole), "m.npz") as path:
            if comm.rank == 0:
                with read(fewer, path, method="p2p") as matrix:
                    write(matrix, path.with_name("one.h5"))
            comm.Barrier()
            check(comm, path.with_name("one.h5"), whole)
            with read(comm, path, method="p2p") as matrix:
                write(matrix, path.with_name("all.h5"))
            check(fewer, path.with_name("all.h5"), whole)
    finally:
        fewer.Free()


def case_a_failed_write_leaves_the_old_file(comm):
    whole = random_matrix((20, 20), "real")
    with file_of(comm, npz_of(whole), "m.npz") as path:
        stored = path.with_name("m.h5")
        with read(comm, path, method="p2p") as matrix:
            write(matrix, stored)
            missing = path.with_name("no folder") / "m.h5"
            text = same_error(comm, lambda: write(matrix, missing), FileNotFoundError)
            assert "no folder" in text
            folder = path.with_name("folder.h5")
            if comm.rank == 0:
                folder.mkdir()
            comm.Barrier()
            same_error(comm, lambda: write(matrix, folder), IsADirectoryError)
        assert not list(path.parent.glob("*.new"))
        check(comm, stored, whole)


@contextlib.contextmanager
def largest_file(size):
    """Local. No file of this process may become larger."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@parameters(size=[100, 5000, 30_000], who=["first", "last"])
def case_a_full_disk_leaves_the_old_file(comm, size, who):
    whole = random_matrix((90, 90), "real", density=0.9)
    limited = comm.rank == (0 if who == "first" else comm.size - 1)
    with file_of(comm, npz_of(whole), "m.npz") as path:
        stored = path.with_name("m.h5")
        with read(comm, path, method="p2p") as matrix:
            write(matrix, stored)
            with largest_file(size) if limited else contextlib.nullcontext():
                text = same_error(comm, lambda: write(matrix, stored), OSError)
        assert "File too large" in text, text
        assert str(stored) in text, text
        assert not list(path.parent.glob("*.new"))
        check(comm, stored, whole)


@ranks(at_least=2)
def case_a_store_that_a_rank_does_not_see(comm):
    with file_of(comm, npz_of(random_matrix((9, 9), "real")), "m.npz") as path:
        mine = path.with_name("m.h5")
        with read(comm, path, method="p2p") as matrix:
            write(matrix, mine)
        if comm.rank == comm.size - 1:
            mine = path.with_name("other.h5")
        text = same_error(comm, lambda: read(comm, mine), FileNotFoundError)
        assert "other.h5" in text, text


def stored_arrays(path, change):
    """Local. Write a store with some datasets or attributes other than they should be."""
    arrays = {"data": np.arange(3.0), "indices": np.array([0, 2, 1]), "indptr": np.array([0, 2, 3])}
    shape = change.get("shape", [2, 3])
    with h5py.File(path, "w") as file:
        if shape is not None:
            file.attrs["shape"] = shape
        for name, items in (arrays | change).items():
            if items is not None and name != "shape":
                file[name] = items


BAD_STORES = {
    "no shape": ({"shape": None}, "no csr_matrix"),
    "three sizes": ({"shape": [2, 3, 4]}, "the shape is"),
    "negative": ({"shape": [-2, 3]}, "the shape is"),
    "other shape": ({"shape": [4, 3]}, "indptr is int64 of shape (3,)"),
    "no data": ({"data": None}, "no csr_matrix"),
    "words": ({"data": np.array([b"a", b"b", b"c"])}, "data is |S1"),
    "lengths": ({"data": np.arange(4.0)}, "indices is int64 of shape (3,)"),
    "axes": ({"data": np.ones((3, 1))}, "data is float64 of shape (3, 1)"),
    "falling": ({"indptr": np.array([0, 4, 3])}, "indptr[2] is 3, after 4"),
    "late": ({"indptr": np.array([1, 2, 3])}, "indptr does not go from 0 to 3"),
    "short": ({"indptr": np.array([0, 1, 2])}, "indptr does not go from 0 to 3"),
    "large": ({"indices": np.array([0, 3, 1])}, "indices[1] is 3, there are 3 columns"),
}


@parameters(name=list(BAD_STORES))
def case_bad_store(comm, name):
    change, words = BAD_STORES[name]
    with file_of(comm, b"", "m.h5") as path:
        if comm.rank == 0:
            stored_arrays(path, change)
        comm.Barrier()
        text = same_error(comm, lambda: read(comm, path), MatrixFileError)
        assert words in text, text
        assert str(path) in text, text


@parameters(cut=[0.1, 0.6, 0.95])
def case_cut_store(comm, cut):
    whole = random_matrix((60, 60), "real")
    with file_of(comm, npz_of(whole), "m.npz") as path:
        stored = path.with_name("m.h5")
        with read(comm, path, method="p2p") as matrix:
            write(matrix, stored)
        if comm.rank == 0:
            data = stored.read_bytes()
            stored.write_bytes(data[: int(cut * len(data))])
        comm.Barrier()
        same_error(comm, lambda: read(comm, stored), MatrixFileError)


WRONG = {
    "lengths": (([0, 1], [0], [1.0]), ValueError, "shapes (2,), (1,), (1,)"),
    "row": (([2], [0], [1.0]), ValueError, "row index 2 of entry 0 is out of range, there are 2"),
    "column": (([0], [-1], [1.0]), ValueError, "column index -1 of entry 0"),
    "floats": (([0.5], [0], [1.0]), TypeError, "row indices are float64"),
    "values": (([0], [0], ["word"]), TypeError, "values of"),
}


@parameters(name=list(WRONG))
def case_wrong_entries_on_one_rank(comm, name):
    entries, kind, words = WRONG[name]
    mine = entries if comm.rank == comm.size - 1 else ([0], [0], [1.0])
    text = same_error(comm, lambda: from_triplets(comm, *mine, (2, 3)), kind)
    assert words in text, text


@parameters(shape=[(2, -3), (2.5, 3)])
def case_wrong_shapes(comm, shape):
    kind = ValueError if shape[0] == 2 else TypeError
    same_error(comm, lambda: from_triplets(comm, [], [], [], shape), kind)


@ranks(at_least=2)
def case_other_shapes(comm):
    same_error(
        comm, lambda: from_triplets(comm, [], [], [], (2, 3 + comm.rank // 1)), MismatchError
    )


def case_too_many_rows_for_the_memory(comm):
    text = "%%MatrixMarket matrix coordinate real general\n900000000000000000 5 1\n1 1 1\n"
    with file_of(comm, text.encode()) as path:
        words = same_error(comm, lambda: read(comm, path), MemoryError)
        assert "900000000000000000 rows" in words


@parameters(packed=[False, True])
def case_formats_are_told_by_content(comm, packed):
    whole = random_matrix((12, 12), "real")
    market = io.BytesIO()
    scipy.io.mmwrite(market, whole)
    files = [market.getvalue(), boeing_file(whole, "real", "u", False)]
    files = [gzip.compress(data) for data in files] if packed else [*files, npz_of(whole)]
    for data in files:
        with file_of(comm, data, "matrix") as path:
            check(comm, path, whole)
    with file_of(comm, npz_of(whole), "m.npz") as path:
        with read(comm, path, method="p2p") as matrix:
            write(matrix, path.with_name("no ending"))
            write(matrix, path.with_name("written.mtx"))
            if comm.rank == 0:
                assert abs(scipy.io.mmread(path.with_name("written.mtx")) - whole).max() == 0
        check(comm, path.with_name("no ending"), whole)


@parameters(data=["", "hello\n", "\x00\x00"])
def case_no_matrix_at_all(comm, data):
    with file_of(comm, data.encode(), "matrix") as path:
        text = same_error(comm, lambda: read(comm, path), MatrixFileError)
        assert "is no file of Matrix Market, Harwell-Boeing, npz, HDF5" in text, text


@parameters(name=["m.mtx", "m.mtx.gz", "m.rua", "m.npz", "m.h5"])
def case_progress(comm, name):
    whole = random_matrix((60, 60), "real")
    market = io.BytesIO()
    scipy.io.mmwrite(market, whole)
    data = {
        "m.mtx": market.getvalue(),
        "m.mtx.gz": gzip.compress(market.getvalue()),
        "m.rua": boeing_file(whole, "real", "u", False),
        "m.npz": npz_of(whole),
        "m.h5": npz_of(whole),
    }[name]
    seen = []
    with file_of(comm, data, name.replace("h5", "npz")) as path:
        if name == "m.h5":
            path = stored_from(comm, path)
        check(comm, path, whole, progress=lambda done, total: seen.append((done, total)))
    assert bool(seen) == (comm.rank == 0)
    assert all(0 <= done <= total for done, total in seen)


def stored_from(comm, path):
    """Collective. The matrix of a file in an HDF5 file beside it."""
    with read(comm, path, method="p2p") as matrix:
        write(matrix, path.with_name("m.h5"))
    return path.with_name("m.h5")


@parameters(name=["west0067.mtx.gz", "ash219.mtx.gz", "m.h5"])
def case_a_failing_progress_is_an_error_on_every_rank(comm, name):
    def progress(done, total):
        raise RuntimeError("no terminal")

    with file_of(comm, npz_of(random_matrix((9, 9), "real")), "m.npz") as path:
        path = stored_from(comm, path) if name == "m.h5" else SHIPPED / name
        text = same_error(comm, lambda: read(comm, path, progress=progress), RuntimeError)
        assert "no terminal" in text


def case_progress_of_a_store_goes_to_its_end(comm):
    whole, seen = random_matrix((300, 300), "real"), []
    before, store.PIECE_BYTES = store.PIECE_BYTES, 1000
    try:
        with file_of(comm, npz_of(whole), "m.npz") as path:
            stored = stored_from(comm, path)
            check(comm, stored, whole, progress=lambda done, total: seen.append((done, total)))
    finally:
        store.PIECE_BYTES = before
    if comm.rank == 0:
        done = [read for read, _ in seen]
        assert done == sorted(done)
        assert len(set(done)) > 10
        assert done[0] == 0
        assert {total for _, total in seen} == {12 * whole.nnz}
        assert done[-1] > 0.8 * 12 * whole.nnz


def case_a_file_that_other_ranks_do_not_see(comm):
    """Each rank names a file of its own; only rank 0's exists."""
    data = b"%%MatrixMarket matrix coordinate real general\n3 3 2\n1 1 4\n3 2 5\n"
    with file_of(comm, data) as path:
        mine = path if comm.rank == 0 else Path(path.parent, "other.mtx")
        whole = sparse.csr_array(np.array([[4.0, 0, 0], [0, 0, 0], [0, 5, 0]]))
        check(comm, mine, whole)


MARKET = b"%%MatrixMarket matrix coordinate real general\n% words\n3 3 2\n1 1 2.5\n3 2 -1e3\n"
MARKET_WHOLE = sparse.csr_array(np.array([[2.5, 0, 0], [0, 0, 0], [0, -1e3, 0]]))
UNUSUAL = {
    "byte order mark": b"\xef\xbb\xbf" + MARKET,
    "long comment": MARKET.replace(b"words", b"w" * (3 << 20)),
    "long comment packed": gzip.compress(MARKET.replace(b"words", b"w" * (3 << 20))),
    "plus": MARKET.replace(b" 2.5", b" +2.5"),
}


@parameters(name=list(UNUSUAL))
def case_unusual_text(comm, name):
    with file_of(comm, UNUSUAL[name]) as path:
        check(comm, path, MARKET_WHOLE)


@parameters(named=[True, False])
def case_a_pipe_is_opened_once(comm, named):
    with file_of(comm, b"") as other:
        path = other.with_name("pipe.mtx" if named else "pipe")
        writer = None
        if comm.rank == 0:
            os.mkfifo(path)
            if named:
                writer = threading.Thread(target=path.write_bytes, args=(MARKET,))
                writer.start()
        comm.Barrier()
        if named:
            check(comm, path, MARKET_WHOLE)
            if writer is not None:
                writer.join()
        else:
            number = os.open(path, os.O_RDWR) if comm.rank == 0 else None  # so that none waits
            words = same_error(comm, lambda: read(comm, path), MatrixFileError)
            assert "its name must tell the format" in words
            if number is not None:
                os.close(number)


@parameters(dtype=["f2", "g"])
def case_npz_of_other_floats_is_an_error_of_the_file(comm, dtype):
    with file_of(comm, arrays_of({"data": np.arange(3).astype(dtype)}), "m.npz") as path:
        words = same_error(comm, lambda: read(comm, path), MatrixFileError)
        assert "which can be float32" in words


def archive_of(members):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def case_archives(comm):
    kept = {"m/m_b.mtx": b"%%MatrixMarket matrix array real general\n1 1\n7\n", "m/m.mtx": MARKET}
    with file_of(comm, archive_of(kept), "m.tar.gz") as path:
        check(comm, path, MARKET_WHOLE)
    whole = random_matrix((9, 9), "real")
    text = boeing_file(whole, "real", "u", True)
    with file_of(comm, archive_of({"m/m.rb": text}), "m.tar.gz") as path:
        check(comm, path, whole)
    with file_of(comm, archive_of({"m/readme": b"words"}), "m.tar.gz") as path:
        words = same_error(comm, lambda: read(comm, path), MatrixFileError)
        assert "holds no NAME/NAME.mtx" in words
    with file_of(comm, archive_of(kept)[:90], "m.tar.gz") as path:
        assert "damaged" in same_error(comm, lambda: read(comm, path), MatrixFileError)


def case_matlab(comm):
    whole = random_matrix((8, 5), "complex")
    for names in ({"first": np.ones(3), "B": whole}, {"Problem": {"A": whole, "title": "words"}}):
        buffer = io.BytesIO()
        scipy.io.savemat(buffer, names)
        with file_of(comm, buffer.getvalue(), "m.mat") as path:
            check(comm, path, whole)
    buffer = io.BytesIO()
    scipy.io.savemat(buffer, {"x": np.ones(3)})
    with file_of(comm, buffer.getvalue(), "m.mat") as path:
        assert "no sparse matrix" in same_error(comm, lambda: read(comm, path), MatrixFileError)
    with file_of(comm, b"MATLAB 7.3 MAT-file, Platform", "m.mat") as path:
        assert "7.3" in same_error(comm, lambda: read(comm, path), MatrixFileError)


def petsc_of(whole, index, values):
    """What PETSc's MatView writes of a sparse matrix."""
    rows = whole.tocsr()
    head = [1211216, *rows.shape, rows.nnz, *np.diff(rows.indptr)]
    return (
        np.array(head, index).tobytes()
        + rows.indices.astype(index).tobytes()
        + rows.data.astype(values).tobytes()
    )


@parameters(index=[">i4", ">i8"], values=[">f8", ">c16"], shape=[(40, 30), (1, 1), (0, 4)])
def case_petsc_binary(comm, index, values, shape):
    whole = random_matrix(shape, "complex" if values == ">c16" else "real", density=0.5)
    data = petsc_of(whole, index, values)
    for name in ("m.petsc", "m") if index == ">i4" else ("m.petsc",):
        with file_of(comm, data, name) as path:
            check(comm, path, whole)
    if whole.nnz > 2:
        for bad, words in ((data[:-9], "truncated"), (data[:20], "m.petsc")):
            with file_of(comm, bad, "m.petsc") as path:
                found = same_error(comm, lambda path=path: read(comm, path), MatrixFileError)
                assert words in found
        both = data + np.array([1211214, 2], ">i4").tobytes() + bytes(16)
        with file_of(comm, both, "m.petsc") as path:  # a vector behind it, as KSPView writes
            check(comm, path, whole)


@parameters(dtype=["f4", "c16", "i8"], k=[None, 3])
def case_vectors_in_files(comm, dtype, k):
    partition = Partition.balanced(np.arange(1, 24), comm.size)
    shape = (23,) if k is None else (23, k)
    whole = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    x = DistVector(comm, partition, whole[slice(*partition.range(comm.rank))])
    with file_of(comm, b"old", "x.npy") as path:
        write(x, path)
        assert np.array_equal(np.load(path), whole)
        assert np.load(path).dtype == whole.dtype
        for how in (None, partition):
            y = read_vector(comm, path, how)
            assert y.dtype == x.dtype
            parts = [part for part in comm.allgather(y.array) if len(part)]
            assert np.array_equal(np.concatenate(parts), whole)
        words = same_error(comm, lambda: read_vector(comm, path, Partition.even(7, comm.size)),
                           MatrixFileError)
        assert "23 entries, the partition has 7" in words
        comm.Barrier()
        if comm.rank == 0:
            path.write_bytes(b"no numbers")
        comm.Barrier()
        same_error(comm, lambda: read_vector(comm, path), MatrixFileError)


@parameters(kind=["pipe", "folder", "device"], what=["matrix", "market", "vector"])
def case_what_is_no_regular_file_is_not_replaced(comm, kind, what):
    whole = random_matrix((6, 6), "real")
    with file_of(comm, npz_of(whole), "m.npz") as path, read(comm, path, method="p2p") as matrix:
        target = {"device": Path("/dev/null")}.get(kind, path.with_name(kind))
        if comm.rank == 0 and kind != "device":
            os.mkfifo(target) if kind == "pipe" else target.mkdir()
        comm.Barrier()
        x = DistVector(comm, matrix.row_partition, np.ones(len(matrix.local_rows().indptr) - 1))
        calls = {
            "matrix": lambda: write(matrix, target),
            "vector": lambda: write(x, target),
            "market": lambda: write_matrixmarket(comm, target, matrix.local_rows()),
        }
        error = IsADirectoryError if kind == "folder" else OSError
        words = same_error(comm, calls[what], error)
        assert ("Is a directory" if kind == "folder" else "not a regular file") in words
        assert not target.is_file()
        link = path.with_name("link")
        if comm.rank == 0:
            link.symlink_to(path.with_name("behind"))
        comm.Barrier()
        write(x, link)
        assert link.is_symlink()
        assert np.array_equal(np.load(path.with_name("behind")), np.ones(6))
        assert "a DistMatrix or a DistVector" in same_error(comm, lambda: write("m", x), TypeError)


@parameters(name=["a.mtx.gz", "a.npz", "a.petsc", "a.mat", "a.npy", "a.rb", "A.MTX", "a.h5"])
def case_only_what_is_read_back_is_written(comm, name):
    whole = random_matrix((6, 6), "real")
    with file_of(comm, b"", "other") as path:
        path = path.with_name(name)
        with from_scipy(comm, whole if comm.rank == 0 else None, method="p2p") as matrix:
            if name in ("A.MTX", "a.h5"):
                write(matrix, path)
                check(comm, path, whole)
            else:
                words = same_error(comm, lambda: write(matrix, path), ValueError)
                assert "is written as .h5, .hdf5, .mtx" in words, words
                assert not path.exists()
