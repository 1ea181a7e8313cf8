"""Harwell-Boeing, npz and HDF5 files on several ranks, and entries from any rank, against SciPy."""

import contextlib
import gzip
import io
import os
import re
import resource
import tarfile
import threading
from pathlib import Path
from unittest import mock

import h5py
import numpy as np
import pytest
import scipy.io
from cases import parameters, ranks
from cases_sparse_reading import SHIPPED, file_of
from errors import agreed, raises
from mpi4py import MPI
from scipy import sparse

from onesided.collectives import MismatchError, OnesidedError
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
from onesided.sparse.files import compressed
from onesided.sparse.files.store import write
from onesided.sparse.files.textfile import TextFile

pytestmark = pytest.mark.one_mpi


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


def market_of(whole, **how):
    buffer = io.BytesIO()
    scipy.io.mmwrite(buffer, whole, **how)
    return buffer.getvalue()


def npz_of(whole, packed=True):
    buffer = io.BytesIO()
    sparse.save_npz(buffer, whole, compressed=packed)
    return buffer.getvalue()


ARRAYS = {
    "format": np.array(b"csr"),
    "shape": np.array([2, 3]),
    "data": np.arange(3.0),
    "indices": np.array([0, 2, 1]),
    "indptr": np.array([0, 2, 3]),
}


def arrays_of(**change):
    """An archive of SciPy with some arrays other than they should be; None leaves them out."""
    buffer = io.BytesIO()
    arrays = ARRAYS | change
    np.savez(buffer, **{key: value for key, value in arrays.items() if value is not None})
    return buffer.getvalue()


def archive_of(members):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def matlab_of(names):
    buffer = io.BytesIO()
    scipy.io.savemat(buffer, names)
    return buffer.getvalue()


def petsc_of(whole, index, values):
    """What PETSc's MatView writes of a sparse matrix."""
    rows = sparse.csr_array(whole)
    head = [1211216, *rows.shape, rows.nnz, *np.diff(rows.indptr)]
    return (
        np.array(head, index).tobytes()
        + rows.indices.astype(index).tobytes()
        + rows.data.astype(values).tobytes()
    )


MARKET = b"%%MatrixMarket matrix coordinate real general\n% words\n3 3 2\n1 1 2.5\n3 2 -1e3\n"

def _section(items, repeat):
    """Lines of so many fields each."""
    rows = range(0, len(items), repeat)
    return ["".join(items[start : start + repeat]) for start in rows]


def _repeat(form):
    """How many fields a line has, from its Fortran format."""
    return int(re.search(r"(\d*)[DEFI]\d", form)[1] or 1)


def boeing_file(csc, kind, symmetry, rutherford, form="(3E25.16)", written="{:25.16E}".format):
    """The bytes of a file that holds what ``csc`` stores; ``written`` makes a field of a value."""
    n_rows, n_cols = csc.shape
    if kind == "integer":
        form, written = "(5I12)", lambda value: f"{int(value):12d}"
    values = csc.data.astype(complex)
    numbers = values.view(float) if kind == "complex" else values.real
    sections = [
        _section([f"{pointer + 1:9d}" for pointer in csc.indptr], 8),
        _section([f"{index + 1:8d}" for index in csc.indices], 10),
    ]
    if kind != "pattern":
        sections.append(_section([written(float(number)) for number in numbers], _repeat(form)))
    counts = [len(section) for section in sections] + [0] * (kind == "pattern")
    counts = [sum(counts), *counts, *([] if rutherford else [0])]
    letters = kind[0] + symmetry + "a"
    sizes = "".join(f"{size:14d}" for size in (n_rows, n_cols, csc.nnz, 0))
    lines = [
        f"{'a matrix for tests':<72}{'key':<8}",
        "".join(f"{count:14d}" for count in counts),
        f"{letters.lower() if rutherford else letters.upper():<14}{sizes}",
        f"{'(8I9)':<16}{'(10I8)':<16}{'' if kind == 'pattern' else form:<20}",
        *(line for section in sections for line in section),
    ]
    return ("\n".join(lines) + "\n").encode()


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


@parameters(kind=KINDS, symmetry=SYMMETRIES, rutherford=[False, True])
def case_boeing(comm, kind, symmetry, rutherford):
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


@parameters(
    form=["csr", "csc", "coo", "bsr", "dia"], kind=["complex", "integer"], packed=[False, True]
)
def case_npz(comm, form, kind, packed):
    whole = random_matrix((31, 19), kind).asformat(form)
    assert whole.nnz
    with file_of(comm, npz_of(whole, packed), "m.npz") as path:
        assert check(comm, path, whole) == whole.tocsr().nnz


@contextlib.contextmanager
def store_of(comm, whole, **how):
    """Collective. An HDF5 file that all ranks have written, and what they wrote."""
    with (
        file_of(comm, b"") as path,
        from_scipy(comm, whole if comm.rank == 0 else None, method="p2p", **how) as matrix,
    ):
        stored = path.with_name("m.h5")
        write(matrix, stored)
        assert not list(path.parent.glob("*.new"))
        yield stored, matrix


@parameters(kind=["real", "complex"], shape=[(7, 30), (30, 7)], double=[False, True])
def case_store(comm, kind, shape, double):
    whole = random_matrix(shape, kind)
    dtype = None if double else {"real": "f4", "complex": "c8"}[kind]
    with store_of(comm, whole, dtype=dtype) as (path, _):
        assert check(comm, path, whole) == whole.nnz
        with h5py.File(path) as file:
            parts = file["data"][:], file["indices"][:], file["indptr"][:]
            assert file.attrs["encoding-type"] == "csr_matrix"
            other = sparse.csr_array(parts, shape=file.attrs["shape"])
        assert np.array_equal(other.toarray(), whole.toarray())


@ranks(at_least=2)
def case_a_store_of_other_ranks(comm):
    whole = random_matrix((50, 50), "real")
    fewer = comm.Split(comm.rank == 0)
    with store_of(comm, whole) as (path, _):
        check(fewer, path, whole)
        one = path.with_name("one.h5")
        if comm.rank == 0:
            with from_scipy(fewer, whole, method="p2p") as matrix:
                write(matrix, one)
        comm.Barrier()
        check(comm, one, whole)
    fewer.Free()


def case_a_failed_write_leaves_the_old_file(comm):
    whole = random_matrix((20, 20), "real")
    with store_of(comm, whole) as (path, matrix):
        missing = path.with_name("no folder") / "m.h5"
        agreed(comm, FileNotFoundError, lambda: write(matrix, missing), "no folder")
        assert not list(path.parent.glob("*.new"))
        check(comm, path, whole)


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
    with store_of(comm, whole) as (path, matrix):
        with largest_file(size) if limited else contextlib.nullcontext():
            agreed(comm, OSError, lambda: write(matrix, path), "File too large", str(path))
        assert not list(path.parent.glob("*.new"))
        check(comm, path, whole)


@ranks(at_least=2)
def case_a_store_that_a_rank_does_not_see(comm):
    with store_of(comm, random_matrix((9, 9), "real")) as (path, _):
        mine = path.with_name("other.h5") if comm.rank == comm.size - 1 else path
        agreed(comm, FileNotFoundError, lambda: read(comm, mine), "other.h5")


# -- files that are wrong ------------------------------------------------------------------------


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


def shrink(lines):
    words = lines[2][14:].split()
    lines[2] = lines[2][:14] + f"{2:14d}" + "".join(f"{int(word):14d}" for word in words[1:])


BOEING = {
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
    "value cut": (lambda lines: lines.__setitem__(slice(7, None), [lines[7][:-1]]),
                  "its last line has 49 of 50 columns"),
    "value missing": (lambda lines: lines.__delitem__(slice(7, None)), "is truncated: of 5 fields"),
}
#: What is found in the arrays of a file, of whatever format, not in its lines.
IN_ARRAYS = ["pointer falls", "pointer ends", "index zero", "index large"]
#: In npz and in HDF5 alike; words of the error of HDF5.
BAD_ARRAYS = {
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
    "large": ({"indices": np.array([0, 3, 1])}, "columns 0 to 3 in a matrix of 3 columns"),
}
BAD_NPZ = {
    **{name: arrays_of(**change) for name, (change, _) in BAD_ARRAYS.items()
       if name != "short"},  # which SciPy reads: what is behind the last row does not count
    "no archive": b"PK\x03\x04 and nothing",
    "format": arrays_of(format=np.array(b"lil")),
    "no format": arrays_of(format=None),
    "unicode": arrays_of(data=np.array(["a", "b", "c"])),
    "objects": arrays_of(data=np.array([None] * 3, object)),
    "few pointers": arrays_of(indptr=np.array([0, 3])),
    "cut": npz_of(sparse.eye_array(300, format="csr"))[:-200],
}  # fmt: skip


def stored_arrays(**change):
    """A store with some datasets, or its shape, other than they should be; None leaves them out."""
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        for name, items in (ARRAYS | change).items():
            if items is not None and name == "shape":
                file.attrs["shape"] = items
            elif items is not None and name != "format":
                file[name] = items
    return buffer.getvalue()


#: A matrix of more bytes than a block of a tar file.
LONG = b"%%MatrixMarket matrix coordinate real general\n9 9 9000\n" + 9000 * b"1 1 2.5\n"
KEPT = {"m/m_b.mtx": b"%%MatrixMarket matrix array real general\n1 1\n7\n", "m/m.mtx": MARKET}
NONE = "is no file of Matrix Market, Harwell-Boeing, npz, HDF5"
#: The name of a file, what it holds, and words of the error.
BAD = {f"boeing, {name}": ("m.rua", broken(change), words)
       for name, (change, words) in BOEING.items()}  # fmt: skip
BAD |= {f"{name}, packed": (ending, gzip.compress(data), words)
        for name, (ending, data, words) in BAD.items()}  # fmt: skip
BAD |= {f"npz, {name}": ("m.npz", data, "m.npz") for name, data in BAD_NPZ.items()}
BAD |= {f"npz, {kind}": ("m.npz", arrays_of(data=np.ones(3, kind)), "which can be float32")
        for kind in ("f2", "g")}  # fmt: skip
BAD |= {f"store, {name}": ("m.h5", stored_arrays(**change), words)
        for name, (change, words) in BAD_ARRAYS.items()}  # fmt: skip
BAD |= {f"store, cut at {cut}": ("m.h5", stored_arrays()[: int(cut * len(stored_arrays()))], "m.h5")
        for cut in (0.1, 0.6, 0.95)}  # fmt: skip
BAD |= {
    "empty": ("matrix", b"", NONE),
    "hello": ("matrix", b"hello\n", NONE),
    "zeros": ("matrix", b"\0\0", NONE),
    "archive without": ("m.tar.gz", archive_of({"m/readme": b"words"}), "holds no NAME/NAME.mtx"),
    "archive, empty member": ("m.tar.gz", archive_of({"m/m.mtx": b""}), "it is empty"),
    "archive, cut inside": (
        "m.tar.gz", gzip.compress(gzip.decompress(archive_of({"m/m.mtx": LONG}))[:-20000]),
        "damaged archive somewhere after"),
    "archive, cut": ("m.tar.gz", archive_of(KEPT)[:90], "damaged"),
    "MATLAB without": ("m.mat", matlab_of({"x": np.ones(3)}), "no sparse matrix"),
    "MATLAB 7.3": ("m.mat", b"MATLAB 7.3 MAT-file, Platform", "7.3"),
    "PETSc, cut": ("m.petsc", petsc_of(np.eye(3), ">i4", ">f8")[:-9], "truncated"),
    "PETSc, head": ("m.petsc", petsc_of(np.eye(3), ">i4", ">f8")[:20], "m.petsc"),
}


@parameters(name=list(BAD))
def case_bad_files(comm, name):
    ending, data, words = BAD[name]
    boeing = name.startswith("boeing") and not any(fault in name for fault in IN_ARRAYS)
    kind = HarwellBoeingError if boeing else MatrixFileError
    with file_of(comm, data, ending) as path:
        agreed(comm, kind, lambda: read(comm, path), f"{kind.__name__}: ", words, str(path))
        if comm.rank == 0 and name == "archive without":
            error = raises(MatrixFileError, lambda: TextFile(path))  # nothing is left open by it
            opened = {os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")}
            assert str(path) not in opened, error


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
    agreed(comm, kind, lambda: from_triplets(comm, *mine, (2, 3)), words)


def case_wrong_shapes(comm):
    shapes = [((2, -3), ValueError), ((2.5, 3), TypeError), ((2, 3 + comm.rank), MismatchError)]
    for shape, kind in shapes[: 2 if comm.size == 1 else 3]:
        agreed(comm, kind, lambda shape=shape: from_triplets(comm, [], [], [], shape))


def case_too_many_rows_for_the_memory(comm):
    text = "%%MatrixMarket matrix coordinate real general\n900000000000000000 5 1\n1 1 1\n"
    with file_of(comm, text.encode()) as path:
        agreed(comm, MemoryError, lambda: read(comm, path), "900000000000000000 rows")


@parameters(packed=[False, True])
def case_formats_are_told_by_content(comm, packed):
    whole = random_matrix((12, 12), "real")
    files = [market_of(whole), boeing_file(whole, "real", "u", False)]
    files = [gzip.compress(data) for data in files] if packed else [*files, npz_of(whole)]
    for data in files:
        with file_of(comm, data, "matrix") as path:
            check(comm, path, whole)


@parameters(name=["m.mtx", "m.mtx.gz", "m.rua", "m.npz"])
def case_progress(comm, name):
    whole = random_matrix((60, 60), "real")
    data = {
        "m.mtx": market_of(whole),
        "m.mtx.gz": gzip.compress(market_of(whole)),
        "m.rua": boeing_file(whole, "real", "u", False),
        "m.npz": npz_of(whole),
    }[name]
    seen = []
    with file_of(comm, data, name) as path:
        check(comm, path, whole, progress=lambda done, total: seen.append((done, total)))
    assert bool(seen) == (comm.rank == 0)
    assert all(0 <= done <= total for done, total in seen)


@parameters(name=["west0067.mtx.gz", "m.mtx", "m.h5"], known=[True, False])
def case_a_failing_progress_is_an_error_on_every_rank(comm, name, known):
    class Unknown(RuntimeError):  # to other ranks
        pass

    def progress(done, total):
        raise (RuntimeError if known else Unknown)("no terminal")

    with store_of(comm, random_matrix((9, 9), "real")) as (path, matrix):
        path = SHIPPED / name if name.endswith(".gz") else path.with_name(name)
        if name == "m.mtx":
            write(matrix, path)
        error = RuntimeError if known else OnesidedError
        agreed(comm, error, lambda: read(comm, path, progress=progress), "no terminal")


def case_progress_of_a_store_goes_to_its_end(comm):
    whole, seen = random_matrix((300, 300), "real"), []
    with mock.patch.object(compressed, "PIECE_BYTES", 1000), store_of(comm, whole) as (path, _):
        check(comm, path, whole, progress=lambda done, total: seen.append((done, total)))
    assert bool(seen) == (comm.rank == 0)
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
            agreed(comm, MatrixFileError, lambda: read(comm, path), "its name must tell the format")
            if number is not None:
                os.close(number)


def case_archives(comm):
    whole = random_matrix((9, 9), "real")
    for members, expected in (
        (KEPT, MARKET_WHOLE), ({"m/m.rb": boeing_file(whole, "real", "u", True)}, whole)
    ):  # fmt: skip
        with file_of(comm, archive_of(members), "m.tar.gz") as path:
            check(comm, path, expected)


def case_matlab(comm):
    whole = random_matrix((8, 5), "complex")
    cell = np.array([np.ones(2), whole, 2 * whole], dtype=object)
    structs = np.array([("a", 2 * whole), ("b", whole)], [("name", object), ("A", object)])
    for names in (
        {"first": np.ones(3), "B": whole}, {"Problem": {"A": whole, "title": "words"}},
        {"S": {"Z": 2 * whole, "A": whole}}, {"S": {"title": "words", "inner": {"M": whole}}},
        {"cell": cell}, {"S": structs[::-1]},
    ):  # fmt: skip
        with file_of(comm, matlab_of(names), "m.mat") as path:
            check(comm, path, whole)


@parameters(index=[">i4", ">i8"], values=[">f8", ">c16"], shape=[(40, 30), (1, 1), (0, 4)])
def case_petsc_binary(comm, index, values, shape):
    whole = random_matrix(shape, "complex" if values == ">c16" else "real", density=0.5)
    data = petsc_of(whole, index, values)
    for name in ("m.petsc", "m"):
        with file_of(comm, data, name) as path:
            check(comm, path, whole)
    for behind in (1211214, 1211218):  # a vector behind it, as KSPView writes; an index set
        both = data + np.array([behind, 2], index).tobytes() + bytes(16)
        with file_of(comm, both, "m.petsc") as path:
            check(comm, path, whole)


@parameters(dtype=["f4", "i8"])
def case_files_of_vectors(comm, dtype):
    """Of another number of entries than the partition, or of none, are refused."""
    even, other = Partition.even(23, comm.size), Partition.even(7, comm.size)
    x = DistVector(comm, even, np.arange(*even.range(comm.rank)).astype(dtype))
    with file_of(comm, b"old", "x.npy") as path:
        write(x, path)
        found = read_vector(comm, path)
        assert found.dtype == x.dtype == np.load(path).dtype
        assert np.array_equal(found.array, x.array)
        agreed(comm, MatrixFileError, lambda: read_vector(comm, path, other),
               "23 entries, the partition has 7")
        comm.Barrier()
        if comm.rank == 0:
            path.write_bytes(b"no numbers")
        comm.Barrier()
        agreed(comm, MatrixFileError, lambda: read_vector(comm, path))


REFUSED = {
    "pipe": (OSError, "not a regular file"),
    "device": (OSError, "not a regular file"),
    "folder": (IsADirectoryError, "Is a directory"),
    "number on one rank": (TypeError, "not int"),
}


@parameters(kind=list(REFUSED), what=["matrix", "market", "vector"])
def case_what_is_no_regular_file_is_not_replaced(comm, kind, what):
    with store_of(comm, random_matrix((6, 6), "real")) as (path, matrix):
        target = {"device": Path("/dev/null")}.get(kind, path.with_name(kind))
        if comm.rank == comm.size - 1 and kind == "number on one rank":
            target = 5
        if comm.rank == 0 and kind in ("pipe", "folder"):
            os.mkfifo(target) if kind == "pipe" else target.mkdir()
        comm.Barrier()
        x = DistVector(comm, matrix.row_partition, np.ones(len(matrix.local_rows().indptr) - 1))
        calls = {
            "matrix": lambda: write(matrix, target),
            "vector": lambda: write(x, target),
            "market": lambda: write_matrixmarket(comm, target, matrix.local_rows()),
        }
        error, words = REFUSED[kind]
        agreed(comm, error, calls[what], words)
        assert target == 5 or not target.is_file()
        link = path.with_name("link")
        if comm.rank == 0:
            link.symlink_to(path.with_name("behind"))
        comm.Barrier()
        write(x, link)
        assert link.is_symlink()
        assert np.array_equal(np.load(path.with_name("behind")), np.ones(6))
        agreed(comm, TypeError, lambda: write("m", x), "a DistMatrix or a DistVector")


WRITTEN = ["A.MTX", "a.h5", "no ending"]


@parameters(name=["a.mtx.gz", "a.npz", "a.petsc", "a.mat", "a.npy", "a.rb", "a.psa", *WRITTEN])
def case_only_what_is_read_back_is_written(comm, name):
    whole = random_matrix((6, 6), "real")
    with file_of(comm, b"", "other") as path:
        path = path.with_name(name)
        with from_scipy(comm, whole if comm.rank == 0 else None, method="p2p") as matrix:
            if name in WRITTEN:
                write(matrix, path)
                check(comm, path, whole)
            else:
                words = "is written as .h5, .hdf5, .mtx"
                agreed(comm, ValueError, lambda: write(matrix, path), words)
                assert not path.exists()
