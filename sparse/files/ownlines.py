"""A plain Matrix Market file, each rank reading and parsing its own share of the bytes."""

from __future__ import annotations

from itertools import accumulate

from mpi4py import MPI

from onesided.sparse.errors import MatrixMarketError
from onesided.sparse.files.dealing import Advance, raise_of
from onesided.sparse.files.entries import Block, excess_line, parse_block
from onesided.sparse.files.matrixmarket import Header, quoted
from onesided.sparse.files.textfile import LineRange
from onesided.sparse.partition import Partition


def read_own_lines(
    comm: MPI.Comm, header: Header, body: tuple[int, int], block_bytes: int, progress: Advance
) -> tuple[list[int], list[Block]]:
    """Collective. Parse the lines that begin in this rank's share of the bytes ``body``.

    Returns the number of each block's first entry, and the blocks. Nobody waits for anybody
    until all have parsed theirs; then the line of a fault is counted, if there is one.
    """
    start, stop = Partition.even(body[1] - body[0], comm.size).range(comm.rank)
    share = _Share(header, body[0] + start, body[0] + stop, block_bytes)
    failure: Exception | None = None
    try:
        share.parse(comm.size, body[1], progress if comm.rank == 0 else None)
    except Exception as error:
        failure = error
    everyone = comm.allgather((share.entries, failure is not None))
    share.first = sum(entries for entries, _ in everyone[: comm.rank])
    total = sum(entries for entries, _ in everyone)
    failed = [rank for rank, (_, has) in enumerate(everyone) if has]
    if failed:
        share.before = header.size_line + sum(comm.allgather(share.lines())[: comm.rank])
        if comm.rank == failed[0] and failure is not None:
            failure = share.located(failure)
        raise_of(comm, failed[0], failure)
    if total > header.entries:
        share.before = header.size_line + sum(comm.allgather(share.lines())[: comm.rank])
        _raise_excess(comm, share)
    header.check_whole(total)
    firsts = accumulate((len(block) for block in share.blocks), initial=share.first)
    return list(firsts)[: len(share.blocks)], share.blocks


class _Share:
    """Local. One rank's lines, block by block.

    ``before`` and ``first``, the lines and entries ahead of the share, are not known before all
    ranks have parsed theirs; lines are counted, reading them again, where one has to be named.
    """

    def __init__(self, header: Header, start: int, stop: int, block_bytes: int) -> None:
        self.blocks: list[Block] = []
        self.entries = 0
        self.before = self.first = 0
        self._header, self._size = header, block_bytes
        self._start, self._stop = start, stop
        self._bad = b""

    def parse(self, ranks: int, size: int, progress: Advance) -> None:
        """Parse all blocks, or more than the file may have entries."""
        with LineRange(self._header.path, self._start, self._stop) as part:
            while (text := part.block(self._size)) and self.entries <= self._header.entries:
                self._bad = text
                self.blocks.append(parse_block(self._header, text, 1))
                self._bad = b""
                self.entries += len(self.blocks[-1])
                if progress is not None:
                    progress(min(self._start + (part.at - self._start) * ranks, size), size)

    def lines(self) -> int:
        """How many lines the blocks that were parsed have; 0 where they cannot be read again."""
        try:
            with LineRange(self._header.path, self._start, self._stop) as part:
                return sum(part.block(self._size).count(b"\n") for _ in self.blocks)
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
            for block in self.blocks:
                text = part.block(self._size)
                if entries <= last < entries + len(block):
                    line, words = excess_line(text, line, last - entries)
                    return self._header.error(
                        line, f"{quoted(words)} follows the last of {last} entries"
                    )
                entries += len(block)
                line += text.count(b"\n")
        return None


def _raise_excess(comm: MPI.Comm, share: _Share) -> None:
    """Collective. Name the line after the last entry that the header announces."""
    mine: Exception | None = None
    try:
        mine = share.excess()
    except Exception as error:
        mine = error
    found = comm.allgather(mine is not None)
    raise_of(comm, found.index(True), mine)
