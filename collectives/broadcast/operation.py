"""One broadcast on one rank: its buffer and its root, agreed on by all ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from onesided.collectives.agreement import agree
from onesided.collectives.context import Context, Node
from onesided.collectives.copies import LARGEST_PIECE, as_bytes
from onesided.collectives.errors import PatternError
from onesided.collectives.hints import Hints
from onesided.collectives.memory import find_region


@dataclass
class Broadcast:
    """All that a transport needs to know.

    ``array`` is the part of the caller's memory that is sent or written, in one dimension,
    ``given`` what the caller passed as data.
    """

    method: str
    context: Context
    root: int
    array: NDArray[Any]
    given: Any
    hints: Hints
    number: int

    @property
    def rank(self) -> int:
        """This rank."""
        return self.context.comm.rank

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return self.context.comm.size

    @property
    def sends(self) -> bool:
        """True on the root."""
        return self.rank == self.root

    @property
    def nbytes(self) -> int:
        """Bytes that every rank has in the end."""
        return self.array.nbytes

    @property
    def node(self) -> Node:
        """The node of this rank, real or emulated."""
        return self.context.node(self.hints.ranks_per_node)

    @property
    def in_window_memory(self) -> bool:
        """True where the buffer comes from :func:`~onesided.collectives.empty`."""
        return find_region(self.array) is not None

    def memory(self) -> memoryview:
        """Local. The buffer as bytes."""
        return as_bytes(self.array) if self.nbytes else memoryview(bytearray(0))

    def pieces(self) -> list[memoryview]:
        """Local. The buffer in pieces that one MPI call can carry."""
        memory = self.memory()
        return [memory[i : i + LARGEST_PIECE] for i in range(0, len(memory), LARGEST_PIECE)]


def compare(context: Context, call: object, root: int, array: NDArray[Any]) -> None:
    """Collective. Every rank must name the same root, number of elements and dtype.

    Raises :class:`PatternError` on every rank, naming the first rank that differs.
    """
    everyone = agree(context.comm, None, call, (root, array.size, array.dtype))
    for rank, (theirs, _, _) in enumerate(everyone):
        if theirs != everyone[0][0]:
            raise PatternError(f"rank 0 names root {everyone[0][0]}, rank {rank} root {theirs}")
    _, size, dtype = everyone[root]
    for rank, (_, count, kind) in enumerate(everyone):
        if (count, kind) != (size, dtype):
            raise PatternError(
                f"the root, rank {root}, sends {size} elements of {dtype}, "
                f"rank {rank} expects {count} of {kind}"
            )
