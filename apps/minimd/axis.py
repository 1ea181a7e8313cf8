"""The two neighbors of a rank along one axis of the process grid, and what is sent to them.

What is set up from time to time has another size every time. It travels by messages, whatever way
of exchanging is chosen for the rest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.minimd.decomposition import Domain

LOW, HIGH = SIDES = (0, 1)
#: For the lower and the higher neighbor, or from them.
Counts = tuple[int, int]
Pair = tuple[NDArray[Any], NDArray[Any]]


class Axis:
    """The ranks that have the same place along the other axes, as a periodic line.

    ``comm`` has these ranks, ``neighbors`` are the next lower and the next higher one in it;
    ``shifts`` is what positions sent to these are shifted by, because the box is periodic.
    """

    def __init__(self, cart: MPI.Cartcomm, number: int, domain: Domain) -> None:
        """Collective."""
        self.number = number
        self.comm = cart.Sub([axis == number for axis in range(cart.Get_dim())])
        size, rank = self.comm.size, self.comm.rank
        self.neighbors = ((rank - 1) % size, (rank + 1) % size)
        self.edges = domain.edges(number)
        length = float(self.edges[-1])
        self.shifts = (length if rank == 0 else 0.0, -length if rank == size - 1 else 0.0)

    @property
    def alone(self) -> bool:
        """Local. Whether this rank is its own neighbor: nothing is sent."""
        return self.comm.size == 1

    def steps(self, x: NDArray[Any]) -> NDArray[np.int64]:
        """Local. How many ranks higher atoms belong that are in the box, around the end of it."""
        place = np.searchsorted(self.edges, x, side="right") - 1
        steps: NDArray[np.int64] = (place - self.comm.rank) % self.comm.size
        return steps

    def counts(self, leaving: Counts) -> Counts:
        """Collective over the line. Tell both neighbors a number; those that they tell."""
        if self.alone:
            return leaving[HIGH], leaving[LOW]
        out, into = np.array(leaving, dtype=np.int64), np.empty(2, dtype=np.int64)
        for side in SIDES:
            self.comm.Sendrecv(
                out[side : side + 1], self.neighbors[side], side,
                into[1 - side : 2 - side], self.neighbors[1 - side], side,
            )  # fmt: skip
        return int(into[LOW]), int(into[HIGH])

    def swap(self, leaving: Pair) -> Pair:
        """Collective over the line. Columns for both neighbors; the columns that come from them."""
        if self.alone:
            return leaving[HIGH], leaving[LOW]
        counts = self.counts((leaving[LOW].shape[1], leaving[HIGH].shape[1]))
        rows = leaving[LOW].shape[0]
        coming = np.empty((rows, counts[LOW])), np.empty((rows, counts[HIGH]))
        for side in SIDES:
            self.comm.Sendrecv(
                np.ascontiguousarray(leaving[side]), self.neighbors[side], side,
                coming[1 - side], self.neighbors[1 - side], side,
            )  # fmt: skip
        return coming

    def free(self) -> None:
        """Collective over the line."""
        self.comm.Free()
