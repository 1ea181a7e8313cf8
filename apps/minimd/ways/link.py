"""What a way of exchanging has to do: bring numbers to both neighbors along one axis, again and
again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.minimd.sides import Counts, Pair


@dataclass(frozen=True)
class Line:
    """What a link is made of: a line of at least two ranks, and room for so many numbers per side.

    ``neighbors``: the lower and the higher one, which may be the same rank. ``room`` is the same
    on all ranks. ``info``: what the user told the methods.
    """

    comm: MPI.Intracomm
    neighbors: tuple[int, int]
    room: int
    info: Mapping[str, str] = field(default_factory=dict)

    def sides(self, array: NDArray[Any]) -> Pair:
        """Local. Two parts of an array of twice the room."""
        return array[: self.room], array[self.room : 2 * self.room]


class Link(ABC):
    """Numbers for the lower and the higher neighbor: ``out``, written by the caller."""

    label = ""

    def __init__(self, line: Line) -> None:
        """Collective over the line."""
        self.line = line
        self.out: Pair = line.sides(np.zeros(2 * line.room))

    @abstractmethod
    def exchange(self, sent: Counts, received: Counts) -> Pair:
        """Collective over the line. What came from the lower and the higher neighbor.

        ``sent``: how many numbers of ``out`` are meant, ``received``: how many come. The arrays
        may be longer, and are valid until the next exchange.
        """

    @abstractmethod
    def free(self) -> None:
        """Collective over the line. Give everything back."""
