"""Nonblocking messages of just as many numbers as there are: the original, and the reference."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI
from mpi4py.typing import BufSpec

from onesided.apps.minimd.sides import HIGH, LOW, Counts, Pair
from onesided.apps.minimd.ways.link import Line, Link


class TwoSided(Link):
    """Collective."""

    def __init__(self, line: Line) -> None:
        super().__init__(line)
        self._into = line.sides(np.zeros(2 * line.room))
        self._counts = (0, 0), (0, 0)
        self._specs: list[BufSpec] = []

    def exchange(self, sent: Counts, received: Counts) -> Pair:
        """Collective over the line."""
        comm, (low, high) = self.line.comm, self.line.neighbors
        if (sent, received) != self._counts or not self._specs:
            self._plan(sent, received)
        from_low, from_high, to_low, to_high = self._specs
        MPI.Request.Waitall(
            [
                comm.Irecv(from_low, low, HIGH),
                comm.Irecv(from_high, high, LOW),
                comm.Isend(to_low, low, LOW),
                comm.Isend(to_high, high, HIGH),
            ]
        )
        return self._into

    def _plan(self, sent: Counts, received: Counts) -> None:
        """Local. What is received from and sent to the lower and the higher neighbor."""
        arrays, counts = (*self._into, *self.out), (*received, *sent)
        self._counts = sent, received
        self._specs = [
            [array, count, MPI.DOUBLE] for array, count in zip(arrays, counts, strict=True)
        ]

    def free(self) -> None:
        """Local."""
