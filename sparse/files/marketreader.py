"""Matrix Market files, read by all ranks together.

Who parses what: of a plain file that all ranks see, each rank reads and parses the lines that
begin in its own share of the bytes, in blocks of 4 MiB. A gzip'd file, or one that only rank 0
sees, is read by rank 0 and dealt in such blocks. No rank ever holds more than its share of the
text's entries and one block of text.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial

from mpi4py import MPI
from numpy.typing import DTypeLike

from onesided.sparse.alike import vector_dtype
from onesided.sparse.errors import MatrixMarketError
from onesided.sparse.files.dealing import Advance, Turn, raise_of, turns
from onesided.sparse.files.entries import Block, excess_line, parse_block
from onesided.sparse.files.matrixmarket import Header, quoted, read_header
from onesided.sparse.files.ownlines import read_own_lines
from onesided.sparse.files.textfile import TextFile
from onesided.sparse.partition import index_dtype
from onesided.sparse.triplets import Triplets


def read_triplets(
    comm: MPI.Intracomm,
    path: str | os.PathLike[str],
    dtype: DTypeLike | None,
    block_bytes: int,
    progress: Advance = None,
) -> tuple[tuple[int, int], Triplets]:
    """Collective. The shape, and on each rank the entries of the lines that it parsed.

    Symmetry is expanded. ``comm`` must be free of other messages.
    """
    file, header, body = _open(comm, path)
    try:
        target = vector_dtype(header.dtype, dtype)
        if body is not None and _all_see(comm, path, body):
            span = body.begin, body.end
            first, block = read_own_lines(comm, header, span, block_bytes, progress)
            numbers, blocks = [first], [block]
        else:
            numbers, blocks = _read_dealt_lines(comm, file, header, block_bytes, progress)
    finally:
        if file is not None:
            file.close()
    index = index_dtype(max(header.shape))
    pieces: list[Triplets] = []
    blocks.reverse()
    for first in numbers:
        block = blocks.pop()
        rows, cols = block.rows, block.cols
        if header.is_array:
            rows, cols = header.positions(first, len(block))
        rows, cols, values = header.expand(rows, cols, block.values)
        del block
        pieces.append(
            Triplets(
                rows.astype(index, copy=False),
                cols.astype(index, copy=False),
                values.astype(target, copy=False),
            )
        )
        del rows, cols, values
    return header.shape, Triplets.joined(pieces, index, target)


@dataclass(frozen=True)
class _Body:
    """The bytes of a plain file that are behind its header, and when it was changed."""

    begin: int
    end: int
    changed: int


def _open(
    comm: MPI.Intracomm, path: str | os.PathLike[str]
) -> tuple[TextFile | None, Header, _Body | None]:
    """Open the file on rank 0; all ranks get the header, or raise what went wrong."""
    file: TextFile | None = None
    found: tuple[Header, _Body | None] | Exception | None = None
    if comm.rank == 0:
        try:
            file = TextFile(path)
            header = read_header(file)
            changed = os.stat(file.path).st_mtime_ns
            found = header, None if file.packed else _Body(file.offset, file.size, changed)
        except Exception as error:
            found = error
            if file is not None:
                file.close()
    found = comm.bcast(found)
    if isinstance(found, tuple):
        return file, *found
    raise found or MatrixMarketError(f"{path}: rank 0 sent no header")


def _all_see(comm: MPI.Intracomm, path: str | os.PathLike[str], body: _Body) -> bool:
    """Collective. Whether every rank finds the same plain file under this name."""
    try:
        status = os.stat(path)
        same = (status.st_size, status.st_mtime_ns) == (body.end, body.changed)
        same = same and os.access(path, os.R_OK)
    except OSError:
        same = False
    return bool(comm.allreduce(same, op=MPI.LAND))


def _read_dealt_lines(
    comm: MPI.Intracomm,
    file: TextFile | None,
    header: Header,
    block_bytes: int,
    progress: Advance,
) -> tuple[list[int], list[Block]]:
    """Collective. Parse the blocks that rank 0 deals; the numbers of their first entries."""

    def parse(text: bytes, line: int) -> Block:
        return parse_block(header, text, line)

    def next_block() -> tuple[int, bytes]:
        return file.block(block_bytes) if file else (0, b"")

    numbers: list[int] = []
    blocks: list[Block] = []
    total = 0
    tell = partial(file.tell, progress) if file else int
    for turn in turns(comm, next_block if file else None, parse, tell):
        first = total + int(turn.counts[turn.lines < turn.line].sum())
        total += int(turn.counts.sum())
        if total > header.entries:
            _raise_excess(comm, header, turn, first)
        if turn.parsed:
            numbers.append(first)
            blocks.append(turn.parsed)
    header.check_whole(total)
    return numbers, blocks


def _raise_excess(comm: MPI.Intracomm, header: Header, turn: Turn[Block], first: int) -> None:
    """Collective. Name the line after the last entry that the header announces."""
    mine: Exception | None = None
    if turn.parsed and first <= header.entries < first + len(turn.parsed):
        line, text = excess_line(turn.text, turn.line, header.entries - first)
        mine = header.error(line, f"{quoted(text)} follows the last of {header.entries} entries")
    raise_of(comm, comm.allreduce(comm.rank if mine else 0, op=MPI.SUM), mine)
