"""A plain Matrix Market file, each rank reading and parsing its own share of the bytes."""

from __future__ import annotations

from mpi4py import MPI

from onesided.sparse.errors import MatrixMarketError
from onesided.sparse.files.dealing import Advance, raise_of
from onesided.sparse.files.entries import (
    Block,
    Entries,
    excess_line,
    most_entries,
    parse_block,
)
from onesided.sparse.files.matrixmarket import Header, quoted
from onesided.sparse.files.textfile import LineRange
from onesided.sparse.moving import before
from onesided.sparse.partition import Partition

_CACHED_BYTES = 1 << 19  # of text that is still in the cache when it is parsed


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
    share.first, total = before(comm, len(share.entries))
    failed = int(comm.allreduce(comm.size if failure is None else comm.rank, op=MPI.MIN))
    if failed < comm.size:
        share.before = header.size_line + before(comm, share.lines())[0]
        if comm.rank == failed and failure is not None:
            failure = share.located(failure)
        raise_of(comm, failed, failure)
    if total > header.entries:
        share.before = header.size_line + before(comm, share.lines())[0]
        _raise_excess(comm, share)
    header.check_whole(total)
    return share.first, share.entries.block()


class _Share:
    """Local. One rank's lines, block by block.

    ``before`` and ``first``, the lines and entries ahead of the share, are not known before all
    ranks have parsed theirs; lines are counted, reading them again, where one has to be named.
    """

    def __init__(self, header: Header, start: int, stop: int, block_bytes: int) -> None:
        self.entries = Entries(header, 0)
        self.counts: list[int] = []  # of the entries of each block
        self.before = self.first = 0
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
                self._bad, first = text, len(self.entries)
                self.entries.add(text, 1)
                self._bad = b""
                self.counts.append(len(self.entries) - first)
                if progress is not None:
                    progress(min(self._start + (part.at - self._start) * ranks, size), size)

    def _fits(self) -> bool:
        return len(self.entries) <= self._header.entries

    def lines(self) -> int:
        """How many lines the blocks that were parsed have; 0 where they cannot be read again."""
        try:
            with LineRange(self._header.path, self._start, self._stop) as part:
                return sum(part.block(self._size).count(b"\n") for _ in self.counts)
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

    def excess(self) -> Exception | None:
        """The error that names the first line too many, if it lies in this share."""
        entries, line = self.first, self.before + 1
        last = self._header.entries
        with LineRange(self._header.path, self._start, self._stop) as part:
            for count in self.counts:
                text = part.block(self._size)
                if entries <= last < entries + count:
                    line, words = excess_line(text, line, last - entries)
                    return self._header.error(
                        line, f"{quoted(words)} follows the last of {last} entries"
                    )
                entries += count
                line += text.count(b"\n")
        return None


def _raise_excess(comm: MPI.Intracomm, share: _Share) -> None:
    """Collective. Name the line after the last entry that the header announces."""
    mine: Exception | None = None
    try:
        mine = share.excess()
    except Exception as error:
        mine = error
    raise_of(comm, int(comm.allreduce(comm.rank if mine else comm.size, op=MPI.MIN)), mine)
