"""Nonblocking messages of just as many numbers as there are: the original, and the reference."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from onesided.apps.minimd.ways.link import Counts, Line, Link, Pair


class TwoSided(Link):
    """Collective."""

    def __init__(self, line: Line) -> None:
        super().__init__(line)
        self._into = line.sides(np.zeros(2 * line.room))

    def exchange(self, sent: Counts, received: Counts) -> Pair:
        """Collective over the line."""
        comm, (low, high) = self.line.comm, self.line.neighbors
        (to_low, to_high), (from_low, from_high) = self.out, self._into
        MPI.Request.Waitall(
            [
                comm.Irecv([from_low, received[0], MPI.DOUBLE], low, 1),
                comm.Irecv([from_high, received[1], MPI.DOUBLE], high, 0),
                comm.Isend([to_low, sent[0], MPI.DOUBLE], low, 0),
                comm.Isend([to_high, sent[1], MPI.DOUBLE], high, 1),
            ]
        )
        return self._into

    def free(self) -> None:
        """Local."""
