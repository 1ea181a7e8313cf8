"""Ghosts by messages, as the mini-applications of the Mantevo suite exchange them.

Receives are posted first, then all entries are packed, then sent by one blocking send to every
neighbor, and the receives are waited for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.mini.halos.halo import Need, Packed, neighbors
from onesided.collectives import agreed

TAG = 99


class TwoSided(Packed):
    """Collective. ``label``: nothing is chosen here, so it is empty."""

    label = ""

    def __init__(self, need: Need) -> None:
        super().__init__(need)
        with agreed(need.comm):
            self._ghosts: NDArray[Any] = np.zeros(len(need.pattern.ghosts), need.dtype)
        self._comm = need.comm.Dup()
        near = neighbors(need.pattern)
        ghosts = [(self._ghosts[each.ghosts], each.rank) for each in near]
        sent = [(self._packed[each.sent], each.rank) for each in near]
        self._receives = [pair for pair in ghosts if len(pair[0])]
        self._sends = [pair for pair in sent if len(pair[0])]
        self._requests: list[MPI.Request] = []
        self._freed = False

    def start(self, x: NDArray[Any]) -> None:
        """Local in the sense of MPI: a send may wait for the receive of its neighbor."""
        comm = self._comm
        self._requests = [comm.Irecv(part, rank, TAG) for part, rank in self._receives]
        self._pack(x)
        for part, rank in self._sends:
            comm.Send(part, rank, TAG)

    def finish(self) -> NDArray[Any]:
        """Local in the sense of MPI. The ghosts, when they are there."""
        MPI.Request.Waitall(self._requests)
        return self._ghosts

    def Free(self) -> None:
        """Collective. A second time has no effect."""
        if not self._freed:
            self._comm.Free()
            self._freed = True
