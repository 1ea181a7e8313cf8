"""A stream of text that rank 0 reads, parsed by all ranks.

Rank 0 alone opens the file, decompresses it, and deals blocks of whole lines to the ranks in
turn; each rank parses its blocks, itself among the parsers, while a thread of rank 0 reads the
next one. Rank 0 holds two blocks of text at a time, so that its memory is bounded by the size of a
block and by its share of what is parsed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, NoReturn, TypeVar

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.agreement import words_of_all

BLOCK_BYTES = 4 << 20

Advance = Callable[[int, int], object] | None  # called on rank 0: bytes read, bytes of the file
NextBlock = Callable[[], tuple[int, bytes]]
Parsed = TypeVar("Parsed", bound=Sized)


@dataclass(frozen=True, eq=False)
class Turn(Generic[Parsed]):
    """One block of lines on the rank that parses it.

    ``lines`` and ``counts``: by rank, on which line its block of this turn begins, and how much was
    parsed.
    """

    line: int
    parsed: Parsed | None
    lines: NDArray[np.int64]
    counts: NDArray[np.int64]


def turns(
    comm: MPI.Intracomm,
    next_block: NextBlock | None,
    parse: Callable[[bytes, int], Parsed],
    tell: Callable[[], object],
) -> Iterator[Turn[Parsed]]:
    """Collective. Deal the blocks of rank 0's ``next_block`` until it returns an empty one.

    ``next_block`` is called by a thread. ``parse(text, line)`` is Local; a text that begins on
    line ``line`` of the file. What it raises, or ``next_block``, is raised on all ranks: that of
    the lowest line. ``tell`` is called on rank 0 before each block; what it raises is raised, too.
    ``comm`` must be free of other messages.
    """
    if next_block is None:
        yield from _turns(comm, None, parse)
        return
    with ThreadPoolExecutor(1) as reader:
        yield from _turns(comm, _Ahead(reader, next_block, tell), parse)


class _Ahead:
    """Local. Blocks, of which a thread reads the next one before it is asked for."""

    def __init__(
        self, reader: ThreadPoolExecutor, next_block: NextBlock, tell: Callable[[], object]
    ) -> None:
        self._reader, self._next, self._tell = reader, next_block, tell
        self._found: Future[tuple[int, bytes]] = reader.submit(next_block)

    def __call__(self) -> tuple[int, bytes]:
        """The next block; raises what reading it raised, then and later."""
        self._tell()
        line, text = self._found.result()
        if text:
            self._found = self._reader.submit(self._next)
        return line, text


def _turns(
    comm: MPI.Intracomm,
    next_block: NextBlock | None,
    parse: Callable[[bytes, int], Parsed],
) -> Iterator[Turn[Parsed]]:
    while True:
        line, text, failure = _dealt(comm, next_block)
        parsed: Parsed | None = None
        if failure is None:
            try:
                parsed = parse(text, line)
            except Exception as error:
                failure = error
        count = 0 if parsed is None else len(parsed)
        mine = np.array([line, count, bool(text), failure is not None], np.int64)
        words = words_of_all(len(mine) * comm.size, np.int64)
        comm.Allgather(mine, words)
        lines, counts, texts, failed = words.reshape(comm.size, -1).T
        if failed.any():
            ranks = np.flatnonzero(failed)
            raise_of(comm, int(ranks[np.argmin(lines[ranks])]), failure)
        yield Turn(line, parsed, lines, counts)
        if not texts[0]:
            return  # rank 0 gets the last block of a turn


def _dealt(
    comm: MPI.Intracomm, next_block: NextBlock | None
) -> tuple[int, bytes, Exception | None]:
    """Rank 0 sends the next blocks to ranks 1, 2, ..., empty ones once reading fails, and keeps
    the last; the others receive theirs."""
    if next_block is None:
        head = np.empty(2, np.int64)
        comm.Recv(head, source=0, tag=0)
        block: Any = bytearray(int(head[1]))
        comm.Recv([block, MPI.BYTE], source=0, tag=0)
        return int(head[0]), block, None
    failure: Exception | None = None
    line, text = 0, b""
    for rank in range(1, comm.size + 1):
        if failure is None:
            try:
                line, text = next_block()
            except Exception as error:
                text, failure = b"", error
        if rank < comm.size:
            comm.Send(np.array([line, len(text)], np.int64), dest=rank)
            comm.Send([text, MPI.BYTE], dest=rank)
    return line, text, failure


def raise_of(comm: MPI.Intracomm, root: int, mine: Exception | None) -> NoReturn:
    """Collective. Raise on all ranks the error of one."""
    raise comm.bcast(mine, root=root) or RuntimeError(f"rank {root} had no error to raise")
