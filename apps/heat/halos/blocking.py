"""Faces exchanged by MPI_Sendrecv after all has been computed, one axis and side at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from mpi4py import MPI

from onesided.apps.heat.decomposition import SIDES, Face
from onesided.apps.heat.halos.halo import Halo, Sides, Strip


class Blocking(Halo):
    """Local."""

    def __init__(self, sides: Sides) -> None:
        faces = {(face.axis, face.side): face for face in sides.faces}
        self._calls: list[list[Callable[[], object]]] = [[], []]
        for which in range(2):
            for axis in range(sides.comm.Get_dim()):
                for side in SIDES:
                    out, into = faces.get((axis, side)), faces.get((axis, 1 - side))
                    self._calls[which] += _exchange(sides, which, out, into)

    def finish(self, which: int) -> None:
        """Local in the sense of MPI."""
        for call in self._calls[which]:
            call()


def _exchange(
    sides: Sides, which: int, out: Face | None, into: Face | None
) -> list[Callable[[], object]]:
    """Local. Send over one face, and receive over the other side; either may be missing."""
    array, nothing = sides.arrays[which], Strip(np.empty(0))
    sent = nothing if out is None else Strip(array[out.send])
    received = nothing if into is None else Strip(array[into.recv])
    number = out.number if out is not None else into.opposite if into is not None else 0
    call = partial(
        sides.comm.Sendrecv,
        sent.memory,
        MPI.PROC_NULL if out is None else out.rank,
        number,
        received.memory,
        MPI.PROC_NULL if into is None else into.rank,
        number,
    )
    return [sent.pack, call, received.unpack]
