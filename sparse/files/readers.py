"""Matrices from files of several formats, told by their name or by their first bytes."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from mpi4py import MPI
from numpy.typing import DTypeLike

from onesided.collectives import agreed
from onesided.sparse.alike import spelled
from onesided.sparse.assembly import Choices, from_any_rank
from onesided.sparse.errors import MatrixFileError, check_comm
from onesided.sparse.files.compressed import read_rows
from onesided.sparse.files.harwell import load_boeing, looks_like_boeing
from onesided.sparse.files.marketreader import read_triplets
from onesided.sparse.files.matrixmarket import quoted
from onesided.sparse.files.packages import by_rank_0, load_matlab, load_npz, open_petsc
from onesided.sparse.files.store import open_store
from onesided.sparse.files.textfile import BLOCK_BYTES, Advance, TextFile
from onesided.sparse.halo import Info
from onesided.sparse.matrix import DistMatrix
from onesided.sparse.ordering import How


def read(
    comm: MPI.Intracomm, path: str | os.PathLike[str], *, method: str = "auto", info: Info = None,
    dtype: DTypeLike | None = None, partition: How = "rows", kernel: str = "auto",
    progress: Advance = None,
) -> DistMatrix:  # fmt: skip
    """Collective. Read a matrix from a file into a distributed matrix.

    Formats: Matrix Market (coordinate and array, every field and symmetry), Harwell-Boeing and
    Rutherford-Boeing, each plain or gzip'd; SuiteSparse's ``.tar.gz``; SciPy's ``.npz``; the HDF5
    files of :func:`write` and AnnData's X; PETSc's binary files (``.petsc``); MATLAB's ``.mat``,
    the first sparse matrix in it. Told by the name's ending, else by the first bytes.
    Duplicate entries are summed as SciPy's ``tocsr()`` does, zeros of an array file are left
    out, NaN is kept.

    A plain Matrix Market file, an HDF5 file and PETSc's are read by all ranks at once; a Matrix
    Market file that only rank 0 sees, or that is packed, is read by rank 0 and dealt in blocks of
    4 MiB. No rank holds more than its share of the entries, its rows, and such a block. The other
    formats are read whole by rank 0. HDF5 and PETSc's files must be seen by all.

    ``partition`` says who owns which rows, see :func:`~onesided.sparse.partitioned`; "rows": in
    contiguous blocks balanced by nonzeros. ``dtype`` is that of the matrix and of the vectors it
    multiplies; ``kernel`` says how (:class:`DistMatrix`).
    ``progress(done, total)`` is called on rank 0 now and then, with bytes.

    Raises the same error on every rank: ``OSError`` (``FileNotFoundError`` and others) where the
    file cannot be read, :class:`MatrixFileError` (:class:`MatrixMarketError`,
    :class:`HarwellBoeingError`) naming the line where it is not valid, not whole, or longer than
    it says, ``TypeError`` for a dtype that cannot hold the values. What a file does not tell is not
    found: that a Matrix Market file ends inside its last number, or a complex one of PETSc's where
    real values of as many entries would.

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
    check_comm("read", comm)
    choices = Choices(method, info, dtype, partition, None, kernel)
    found = ""
    with agreed(comm, f"read with dtype={spelled(dtype)}, kernel={kernel}"):
        path = os.fsdecode(path)
        if comm.rank == 0:
            found = _format_of(path)
    return FORMATS[comm.bcast(found)].read(comm, path, choices, progress)


@dataclass(frozen=True)
class Format:
    """How files of a format are told by their names, and how one is read (Collective)."""

    names: str
    read: Callable[[MPI.Intracomm, str, Choices, Advance], DistMatrix]


def read_market(comm: MPI.Intracomm, path: str, choices: Choices, progress: Advance) -> DistMatrix:
    """Collective. The matrix of the entries that the ranks parse, wherever they belong."""
    shape, entries = read_triplets(comm, path, choices.dtype, BLOCK_BYTES, progress)
    held = [entries]
    del entries
    return from_any_rank(comm, shape, held, choices)


FORMATS = {
    "Matrix Market": Format(r"\.(mtx|mm)(\.gz)?\Z", read_market),
    "Harwell-Boeing": Format(r"\.(rb|hb|[rcpi][suhzr]a)(\.gz)?\Z", partial(by_rank_0, load_boeing)),
    "npz": Format(r"\.npz\Z", partial(by_rank_0, load_npz)),
    "HDF5": Format(r"\.(h5|hdf5|h5ad)\Z", partial(read_rows, open_store)),
    "PETSc binary": Format(r"\.petsc\Z", partial(read_rows, open_petsc)),
    "MATLAB": Format(r"\.mat\Z", partial(by_rank_0, load_matlab)),
}
_MAGIC = {
    b"PK\x03\x04": "npz",
    b"\x89HDF\r\n\x1a\n": "HDF5",
    b"%%Matrix": "Matrix Market",
    b"\x00\x12\x7b\x50": "PETSc binary",
    b"\x00\x00\x00\x00\x00\x12\x7b\x50": "PETSc binary",  # indices of 64 bits
    b"MATLAB 5.0": "MATLAB",
}


def _format_of(path: str) -> str:
    """Local. The key of ``FORMATS`` for a file, which must be there."""
    for key, form in FORMATS.items():
        if re.search(form.names, path, re.IGNORECASE):
            return key
    with open(path, "rb") as known:
        if not stat.S_ISREG(os.fstat(known.fileno()).st_mode):
            raise MatrixFileError(
                f"{path} is no regular file, which is read once: its name must tell the format, "
                "as .mtx does"
            )
    with closing(TextFile(path, MatrixFileError)) as file:
        return _told(file)


def _told(file: TextFile) -> str:
    """Local. The format of a file by its first lines."""
    lines: list[bytes] = []
    try:
        while len(lines) < 3:
            lines.append(file.readline())
            for magic, key in _MAGIC.items():
                if b"\n".join(lines).lower().startswith(magic.lower()):
                    return key
    except EOFError:
        pass
    if looks_like_boeing(lines):
        return "Harwell-Boeing"
    what = f"it begins with {quoted(lines[0])}" if lines else "it is empty"
    raise MatrixFileError(f"{file.path} is no file of {', '.join(FORMATS)}: {what}")
