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
from onesided.sparse.files.dealing import Advance, raise_of, turns
from onesided.sparse.files.entries import (
    Block,
    Entries,
    most_entries,
    parse_block,
)
from onesided.sparse.files.matrixmarket import Header, read_header
from onesided.sparse.files.textfile import LineRange, TextFile
from onesided.sparse.moving import before
from onesided.sparse.partition import Partition, index_dtype
from onesided.sparse.triplets import Triplets

_CACHED_BYTES = 1 << 19  # of text that is still in the cache when it is parsed


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
            break
        if turn.parsed:
            numbers.append(first)
            blocks.append(turn.parsed)
    header.check_whole(total)
    return numbers, blocks


def read_own_lines(
    comm: MPI.Intracomm, header: Header, body: tuple[int, int], block_bytes: int, progress: Advance
) -> tuple[int, Block]:
    """Collective. Parse the lines that begin in this rank's share of the bytes ``body``.

    Returns the number of the first entry, and the entries. Nobody waits for anybody until all
    have parsed theirs; then the line of a fault is counted, if there is one.
    """
    start, stop = Partition.even(body[1] - body[0], comm.size).range(comm.rank)
    share = _Share(header, body[0] + start, body[0] + stop, block_bytes)
    failure: Exception | None = None
    try:
        share.expect(header.entries, body[1] - body[0])
        share.parse(comm.size, body[1], progress if comm.rank == 0 else None)
    except Exception as error:
        failure = error
    first, total = before(comm, len(share.entries))
    failed = int(comm.allreduce(comm.size if failure is None else comm.rank, op=MPI.MIN))
    if failed < comm.size:
        share.before = header.size_line + before(comm, share.lines())[0]
        if comm.rank == failed and failure is not None:
            failure = share.located(failure)
        raise_of(comm, failed, failure)
    header.check_whole(total)
    return first, share.entries.block()


class _Share:
    """Local. One rank's lines, block by block.

    ``before``, the lines ahead of the share, is not known before all ranks have parsed theirs;
    lines are counted, reading them again, where one has to be named.
    """

    def __init__(self, header: Header, start: int, stop: int, block_bytes: int) -> None:
        self.entries = Entries(header, 0)
        self.before = self._blocks = 0
        self._header, self._size = header, min(block_bytes, _CACHED_BYTES)
        self._start, self._stop = start, stop
        self._bad = b""

    def expect(self, entries: int, size: int) -> None:
        """Make room for this share of so many entries in so many bytes, if they are even."""
        length = self._stop - self._start
        block = min(self._size, length)
        most = most_entries(self._header, length)
        even = int(1.05 * entries * (length / max(size, 1))) + most_entries(self._header, block)
        self.entries = Entries(self._header, min(even, most))

    def parse(self, ranks: int, size: int, progress: Advance) -> None:
        """Parse all blocks, or more than the file may have entries."""
        with LineRange(self._header.path, self._start, self._stop) as part:
            while (text := part.block(self._size)) and self._fits():
                self._bad = text
                self.entries.add(text, 1)
                self._bad = b""
                self._blocks += 1
                if progress is not None:
                    progress(min(self._start + (part.at - self._start) * ranks, size), size)

    def _fits(self) -> bool:
        return len(self.entries) <= self._header.entries

    def lines(self) -> int:
        """How many lines the blocks that were parsed have; 0 where they cannot be read again."""
        try:
            with LineRange(self._header.path, self._start, self._stop) as part:
                return sum(part.block(self._size).count(b"\n") for _ in range(self._blocks))
        except (OSError, MatrixMarketError):
            return 0

    def located(self, failure: Exception) -> Exception:
        """The failure, with the line's number in the file where it came from parsing."""
        if not self._bad or not isinstance(failure, MatrixMarketError):
            return failure
        try:
            parse_block(self._header, self._bad, self.before + self.lines() + 1)
        except MatrixMarketError as error:
            return error
        return failure
