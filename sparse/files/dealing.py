"""A stream of text that rank 0 reads, parsed by all ranks.

Rank 0 alone opens the file, decompresses it, and deals blocks of whole lines to the ranks in
turn; each rank parses its blocks, itself among the parsers. Rank 0 holds one block of text at a
time, so that its memory is bounded by the size of a block and by its share of what is parsed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sized
from dataclasses import dataclass
from typing import Generic, NoReturn, TypeVar

from mpi4py import MPI

BLOCK_BYTES = 4 << 20

Advance = Callable[[int, int], object] | None  # called on rank 0: bytes read, bytes of the file
NextBlock = Callable[[], tuple[int, bytes]]
Parsed = TypeVar("Parsed", bound=Sized)


@dataclass(frozen=True)
class Outcome:
    """What every rank learns of a rank's turn."""

    line: int
    text: bool
    count: int
    failed: bool


@dataclass(frozen=True, eq=False)
class Turn(Generic[Parsed]):
    """One block of lines on the rank that parses it, and what went wrong with it, if anything.

    ``everyone``: the outcome of each rank's block of this turn.
    """

    line: int
    text: bytes
    parsed: Parsed | None
    failure: Exception | None
    everyone: list[Outcome]


def turns(
    comm: MPI.Comm, next_block: NextBlock | None, parse: Callable[[bytes, int], Parsed]
) -> Iterator[Turn[Parsed]]:
    """Collective. Deal the blocks of rank 0's ``next_block`` until it returns an empty one.

    ``parse(text, line)`` is Local; a text that begins on line ``line`` of the file. What it
    raises, or ``next_block``, is raised on all ranks: that of the lowest line.  ``comm`` must be
    free of other messages.
    """
    while True:
        line, text, failure = _dealt(comm, next_block)
        parsed: Parsed | None = None
        if failure is None:
            try:
                parsed = parse(text, line)
            except Exception as error:
                failure = error
        count = 0 if parsed is None else len(parsed)
        everyone = comm.allgather(Outcome(line, bool(text), count, failure is not None))
        failed = [(other.line, rank) for rank, other in enumerate(everyone) if other.failed]
        if failed:
            raise_of(comm, min(failed)[1], failure)
        yield Turn(line, text, parsed, failure, everyone)
        if not everyone[0].text:
            return  # rank 0 gets the last block of a turn


def _dealt(comm: MPI.Comm, next_block: NextBlock | None) -> tuple[int, bytes, Exception | None]:
    """Rank 0 sends the next blocks to ranks 1, 2, ..., empty ones once reading fails, and keeps
    the last; the others receive theirs."""
    if next_block is None:
        line, text = comm.recv(source=0)
        return line, text, None
    failure: Exception | None = None
    line, text = 0, b""
    for rank in range(1, comm.size + 1):
        if failure is None:
            try:
                line, text = next_block()
            except Exception as error:
                text, failure = b"", error
        if rank < comm.size:
            comm.send((line, text), dest=rank)
    return line, text, failure


def raise_of(comm: MPI.Comm, root: int, mine: Exception | None) -> NoReturn:
    """Collective. Raise on all ranks the error of one."""
    raise comm.bcast(mine, root=root) or RuntimeError(f"rank {root} had no error to raise")
