"""Matrices from files.

Who parses what: rank 0 alone opens the file, decompresses it, and deals blocks of whole lines
(4 MiB) to the ranks in turn; each rank parses its blocks, itself among the parsers. When the file
is done, row weights are counted over even blocks of rows, the rows are cut into parts of equal
weight, and every entry travels to the rank that owns its row. No rank ever holds more than its
share of the text's entries, its own rows, and one block of text.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from mpi4py import MPI
from numpy.typing import DTypeLike

from onesided.sparse.entries import NO_ENTRIES, Block, excess_line, parse_block
from onesided.sparse.errors import MatrixMarketError
from onesided.sparse.halo import Info
from onesided.sparse.matrix import DistMatrix, vector_dtype
from onesided.sparse.matrixmarket import Header, quoted, read_header
from onesided.sparse.partition import Partition, index_dtype
from onesided.sparse.textfile import TextFile
from onesided.sparse.triplets import Triplets, balanced_rows, route

BLOCK_BYTES = 4 << 20


def read(
    comm: MPI.Comm,
    path: str | os.PathLike[str],
    *,
    method: str = "auto",
    info: Info = None,
    dtype: DTypeLike | None = None,
) -> DistMatrix:
    """Collective. Read a Matrix Market file, plain or gzip'd, into a distributed matrix.

    Coordinate and array format, every field and symmetry; duplicate entries are summed as
    ``scipy.io.mmread(path).tocsr()`` does, zeros of an array file are left out. Only rank 0
    needs to see the file. Rows are in contiguous blocks balanced by nonzeros. ``dtype`` is that
    of the matrix and of the vectors it multiplies (:class:`DistMatrix`).

    Raises the same error on every rank: ``OSError`` (``FileNotFoundError`` and others) where the
    file cannot be read, :class:`MatrixMarketError` naming the line where it is not valid, not
    whole, or longer than it says, ``TypeError`` for a dtype that cannot hold the values.
    """
    deal = comm.Dup()
    try:
        header, triplets = read_triplets(deal, path, dtype, BLOCK_BYTES)
        rows = balanced_rows(deal, triplets.rows, header.shape[0])
        mine = route(deal, triplets, rows)
    finally:
        deal.Free()
    n_rows, n_cols = header.shape
    columns = rows if n_rows == n_cols else Partition.even(n_cols, comm.size)
    local = mine.to_rows(*rows.range(comm.rank), n_cols)
    return DistMatrix(comm, local, rows, columns, method=method, info=info)


def read_triplets(
    comm: MPI.Comm, path: str | os.PathLike[str], dtype: DTypeLike | None, block_bytes: int
) -> tuple[Header, Triplets]:
    """Collective. The header, and on each rank the entries of the blocks that it parsed.

    Symmetry is expanded. ``comm`` must be free of other messages.
    """
    file, header = _open(comm, path)
    try:
        target = vector_dtype(header.dtype, dtype)
        index = index_dtype(max(header.shape))
        pieces: list[Triplets] = []
        total = 0
        while True:
            turn = _parse_turn(comm, file, header, block_bytes)
            turns = comm.allgather(turn.outcome)
            _raise_failure(comm, turn, turns)
            first = total + sum(other.count for other in turns if other.line < turn.line)
            total += sum(other.count for other in turns)
            if total > header.entries:
                _raise_excess(comm, header, turn, first)
            if turn.count:
                pieces.append(_expanded(header, turn.block, first, index, target))
            if not turns[0].text:
                break  # rank 0 gets the last block of a turn
    finally:
        if file is not None:
            file.close()
    if total < header.entries:
        raise MatrixMarketError(
            f"{header.path} is truncated: it holds {total} entries, its line {header.size_line} "
            f"says {header.entries}"
        )
    return header, Triplets.joined(pieces, index, target)


@dataclass(frozen=True)
class _Outcome:
    """What every rank learns of a rank's turn."""

    line: int
    text: bool
    count: int
    failed: bool


@dataclass(frozen=True, eq=False)
class _Turn:
    """One block of lines on the rank that parses it, and what went wrong with it, if anything."""

    line: int
    text: bytes
    block: Block
    failure: Exception | None

    @property
    def count(self) -> int:
        return len(self.block)

    @property
    def outcome(self) -> _Outcome:
        return _Outcome(self.line, bool(self.text), self.count, self.failure is not None)


def _open(comm: MPI.Comm, path: str | os.PathLike[str]) -> tuple[TextFile | None, Header]:
    """Open the file on rank 0; all ranks get the header, or raise what went wrong."""
    file: TextFile | None = None
    found: Header | Exception | None = None
    if comm.rank == 0:
        try:
            file = TextFile(path)
            found = read_header(file)
        except Exception as error:
            found = error
            if file is not None:
                file.close()
    found = comm.bcast(found)
    if isinstance(found, Header):
        return file, found
    raise found or MatrixMarketError(f"{path}: rank 0 sent no header")


def _parse_turn(comm: MPI.Comm, file: TextFile | None, header: Header, block_bytes: int) -> _Turn:
    """Rank 0 sends the next blocks to ranks 1, 2, ... and keeps the last; each parses its own."""
    failure: Exception | None = None
    if file is not None:
        line, text, failure = _deal(comm, file, block_bytes)
    else:
        line, text = comm.recv(source=0)
    block = NO_ENTRIES
    if failure is None:
        try:
            block = parse_block(header, text, line)
        except Exception as error:
            failure = error
    return _Turn(line, text, block, failure)


def _deal(comm: MPI.Comm, file: TextFile, size: int) -> tuple[int, bytes, Exception | None]:
    """Send every other rank a block, an empty one once reading fails, and return one more."""
    failure: Exception | None = None
    for rank in range(1, comm.size + 1):
        line, text = file.line, b""
        if failure is None:
            try:
                line, text = file.block(size)
            except Exception as error:
                failure = error
        if rank < comm.size:
            comm.send((line, text), dest=rank)
    return line, text, failure


def _raise_failure(comm: MPI.Comm, turn: _Turn, turns: list[_Outcome]) -> None:
    """Collective. Raise on all ranks the failure of the lowest line, if any rank has one."""
    failed = [(other.line, rank) for rank, other in enumerate(turns) if other.failed]
    if failed:
        _raise_of(comm, min(failed)[1], turn.failure)


def _raise_excess(comm: MPI.Comm, header: Header, turn: _Turn, first: int) -> NoReturn:
    """Collective. Name the line after the last entry that the header announces."""
    mine: Exception | None = None
    if first <= header.entries < first + turn.count:
        line, text = excess_line(turn.text, turn.line, header.entries - first)
        mine = header.error(line, f"{quoted(text)} follows the last of {header.entries} entries")
    root = comm.allreduce(comm.rank if mine else 0, op=MPI.SUM)
    _raise_of(comm, root, mine)


def _raise_of(comm: MPI.Comm, root: int, mine: Exception | None) -> NoReturn:
    """Collective. Raise on all ranks the error of one."""
    raise comm.bcast(mine, root=root) or RuntimeError(f"rank {root} had no error to raise")


def _expanded(
    header: Header,
    block: Block,
    first: int,
    index: type[np.integer[Any]],
    dtype: np.dtype[Any],
) -> Triplets:
    """The block's entries and those that symmetry implies; its first entry has number ``first``."""
    rows, cols = block.rows, block.cols
    if header.is_array:
        rows, cols = header.positions(first, len(block))
    rows, cols, values = header.expand(rows, cols, block.values)
    return Triplets(rows.astype(index), cols.astype(index), values.astype(dtype))
