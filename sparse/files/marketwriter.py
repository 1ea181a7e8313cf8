"""Matrix Market files written by all ranks, each into its own range of bytes."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from mpi4py import MPI
from scipy import sparse

from onesided.collectives import agreed
from onesided.collectives.agreement import largest
from onesided.sparse.errors import check_comm
from onesided.sparse.files.draft import write_together
from onesided.sparse.moving import before

_ENTRIES_AT_ONCE = 1 << 20
#: Of the kinds of dtypes, in an order in which what ranks pass has the last of theirs.
_FIELDS = {"b": "pattern", "u": "integer", "i": "integer", "f": "real", "c": "complex"}
_CAST = {"integer": np.int64, "real": np.float64, "complex": np.complex128}


def write_matrixmarket(
    comm: MPI.Intracomm, path: str | os.PathLike[str], rows: Any, *,
    symmetric: bool = False, pattern: bool = False, comments: Sequence[str] = (),
) -> None:  # fmt: skip
    """Collective. Write a coordinate file of the rows, of which every rank has a block.

    ``rows`` is CSR with global columns, ``comments`` lines that follow the banner. ``symmetric``:
    the lower triangle only, which is not compared with the upper one. ``pattern``: places without
    values. All ranks see the same file. It holds the entries row by row, so the bytes do not depend
    on the number of ranks, and gets its name once it is whole. Values are written so that reading
    them gives the same numbers; of bools as a pattern, as integers where some that are stored are
    False. Raises ``OSError``, ``TypeError`` or ``ValueError`` on every rank.

    Examples
    --------
    >>> import tempfile
    >>> folder = comm.bcast(tempfile.mkdtemp())
    >>> import scipy.sparse
    >>> rows = scipy.sparse.csr_array(np.eye(2, 2 * comm.size, 2 * comm.rank))
    >>> write_matrixmarket(comm, f"{folder}/A.mtx", rows)
    >>> with read(comm, f"{folder}/A.mtx") as A:
    ...     A.nnz == 2 * comm.size
    True
    """
    check_comm("write_matrixmarket", comm)
    with agreed(comm, "write_matrixmarket"):
        if getattr(rows, "format", None) != "csr" or rows.ndim != 2:
            raise TypeError(f"rows in CSR expected, not {type(rows).__name__}")
        name, kind = os.fsdecode(path), rows.dtype.kind
        told = symmetric, pattern, tuple(comments), name, rows.shape[1]
        if kind not in _FIELDS:
            raise ValueError(f"values of {rows.dtype} in a Matrix Market file")
        if kind == "b" and not np.all(rows.data):
            kind = "u"
        place = list(_FIELDS).index(kind)
    # the kind of a rank without entries does not count, unless there are none at all
    numbers = [place if rows.nnz else -1, place]
    most, other = largest(comm, None, f"write_matrixmarket {told}", numbers)
    field = list(_FIELDS.values())[most if most >= 0 else other]
    first, n_rows = before(comm, rows.shape[0])
    shape = n_rows, rows.shape[1]
    with agreed(comm):
        if field != _FIELDS[kind] or rows.dtype.kind == "b":
            rows = rows.astype(_CAST.get(field, np.uint8))
        field = "pattern" if pattern else field
        if symmetric and shape[0] != shape[1]:
            raise ValueError(f"a symmetric matrix of shape {shape}")
        if any("\n" in comment for comment in comments):
            raise ValueError(f"comments have more than one line each: {list(comments)}")
        size = lines = 0
        for text in _texts(rows, first, shape, field, symmetric):
            size, lines = size + len(text), lines + text.count(b"\n")
    words = [field, "symmetric" if symmetric else "general"]
    head = [f"%%MatrixMarket matrix coordinate {' '.join(words)}"]
    head += [f"% {comment}".rstrip() for comment in comments]
    head += [f"{shape[0]} {shape[1]} {comm.allreduce(lines)}"]
    text = ("\n".join(head) + "\n").encode()
    start = len(text) + before(comm, size)[0]

    def fill(file: BinaryIO, _: object) -> None:
        file.seek(start)
        file.writelines(_texts(rows, first, shape, field, symmetric))

    write_together(comm, name, lambda draft: Path(draft).write_bytes(text), fill)


def _texts(
    rows: Any, first: int, shape: tuple[int, int], field: Any, symmetric: bool
) -> Iterator[bytes]:
    """Local. The lines of the entries, some rows at once, by SciPy's writer without its header."""
    import scipy.io  # slow to import

    indptr = rows.indptr
    start = 0
    while start < rows.shape[0]:
        stop = int(np.searchsorted(indptr, indptr[start] + _ENTRIES_AT_ONCE, side="right")) - 1
        stop = max(stop, start + 1)
        part = slice(indptr[start], indptr[stop])
        row = np.repeat(np.arange(first + start, first + stop), np.diff(indptr[start : stop + 1]))
        col, data = rows.indices[part].astype(row.dtype), rows.data[part]
        if symmetric:
            lower = row >= col
            row, col, data = row[lower], col[lower], data[lower]
        stream = io.BytesIO()
        entries = sparse.coo_array((data, (row, col)), shape=shape)
        scipy.io.mmwrite(stream, entries, field=field, symmetry="general")
        whole = stream.getvalue()
        begin = 0
        while whole.startswith(b"%", begin):
            begin = whole.index(b"\n", begin) + 1
        yield whole[whole.index(b"\n", begin) + 1 :] if len(data) else b""
        start = stop
