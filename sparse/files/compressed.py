"""Files of compressed rows, of which every rank reads the rows that it is to own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray
from scipy import sparse

from onesided.collectives import agreed
from onesided.sparse.alike import vector_dtype
from onesided.sparse.assembly import Choices, check_room, from_blocks
from onesided.sparse.errors import MatrixFileError, naming
from onesided.sparse.files.textfile import Advance
from onesided.sparse.matrix import DistMatrix
from onesided.sparse.moving import balanced, before
from onesided.sparse.partition import Partition, check_columns, index_dtype

PIECE_BYTES = 1 << 22  # that are read at a time


@dataclass(frozen=True, eq=False)
class RowFile:
    """An open file. ``lengths(start, stop)``: how many entries these rows have; ``indices`` and
    ``data`` of all entries, of which parts are taken as of an array."""

    shape: tuple[int, int]
    lengths: Callable[[int, int], NDArray[np.int64]]
    indices: Any
    data: Any


def read_rows(
    opened: Callable[[str], AbstractContextManager[RowFile]], comm: MPI.Intracomm, path: str,
    choices: Choices, progress: Advance,
) -> DistMatrix:  # fmt: skip
    """Collective. The matrix of a file; ``opened`` says what is wrong with it by ``ValueError``.

    ``progress(done, total)`` is called on rank 0 with bytes of the entries, taking it that the
    other ranks have read as many.

    Raises the same error on every rank: ``OSError`` where a rank cannot open the file,
    ``MatrixFileError`` where it holds no whole matrix.
    """
    with ExitStack() as stack:
        with agreed(comm):
            with naming(path):
                file = stack.enter_context(opened(path))
            target = vector_dtype(file.data.dtype.newbyteorder("="), choices.dtype)
        check_room(comm, file.shape)
        even = Partition.even(file.shape[0], comm.size)
        with agreed(comm), naming(path):
            lengths = file.lengths(*even.range(comm.rank))
        entries = before(comm, int(lengths.sum()))[1]
        with agreed(comm):  # another rank may have opened a file that has taken its place
            if entries != len(file.data):
                raise MatrixFileError(f"{path}: its rows do not have {len(file.data)} entries")
        rows = balanced(comm, lengths + 1) or even
        with agreed(comm), naming(path):
            lengths = file.lengths(*rows.range(comm.rank))
        first = before(comm, int(lengths.sum()))[0]
        last, n_cols = first + int(lengths.sum()), file.shape[1]
        kind = index_dtype(max(n_cols, last - first))
        total, done = int(file.indices.nbytes + file.data.nbytes), 0
        tell = progress if progress is not None and comm.rank == 0 else lambda done, total: None
        parts = []
        with agreed(comm):
            tell(0, total)
            for items, dtype in ((file.indices, kind), (file.data, target)):
                parts.append(np.empty(last - first, dtype))
                step = max(PIECE_BYTES // items.dtype.itemsize, 1)
                for start in range(first, last, step):
                    with naming(path):
                        piece = items[start : min(start + step, last)]
                        if len(piece) != min(start + step, last) - start:
                            raise ValueError("it was changed while it was read")
                        if items is file.indices:
                            check_columns(piece, n_cols)
                        parts[-1][start - first : start - first + len(piece)] = piece
                    done += piece.nbytes
                    tell(min(done * comm.size, total), total)
            tell(total, total)
            indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(kind)
            mine = sparse.csr_array((parts[1], parts[0], indptr), shape=(len(lengths), n_cols))
            mine.sum_duplicates()
    return from_blocks(comm, mine, rows, choices)
