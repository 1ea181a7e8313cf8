"""A contestant that is ready to run, on one side of the transfer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives import UnsupportedError

SENDER, RECEIVER = 0, 1
RANKS = 2


def nothing() -> None:
    """Local. A step that a contestant does not have."""


@dataclass(frozen=True)
class Lane:
    """What all contestants have in common: two ranks, a buffer on each, and its partitions.

    ``tag``: of the contestant's own messages, where it sends one for all partitions.
    """

    comm: MPI.Intracomm
    message: NDArray[np.uint8]
    partitions: int
    tag: int = 0

    @property
    def is_sender(self) -> bool:
        """Local."""
        return self.comm.rank == SENDER

    @property
    def peer(self) -> int:
        """Local. The other rank."""
        return RECEIVER if self.is_sender else SENDER

    def pieces(self) -> list[NDArray[np.uint8]]:
        """Local. The partitions of this side."""
        return list(self.message.reshape(self.partitions, -1))

    def check_tags(self) -> None:
        """Local, alike on both ranks. Whether every partition can have a tag of its own."""
        bound = self.comm.Get_attr(MPI.TAG_UB)
        if isinstance(bound, int) and self.partitions - 1 > bound:
            raise UnsupportedError(f"{self.partitions} message tags, this MPI has {bound + 1}")


@dataclass
class Runner:
    """The steps of one side: Listing 1's start, loop over partitions, and wait.

    ``mark`` sends or receives one partition, ``mark_range`` those from the first to the last, both
    included; None where this side, or this contestant, does nothing of the kind. ``pace``: seconds
    of a round, roughly, by the slower side.
    """

    start: Callable[[], object] = nothing
    mark: Callable[[int], object] | None = None
    mark_range: Callable[[int, int], object] | None = None
    wait: Callable[[], object] = nothing
    free: Callable[[], object] = nothing
    pace: float = field(default=0.0, init=False)

    def release(self) -> None:
        """Local."""
        self.free()
