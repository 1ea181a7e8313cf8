"""Persistent sends and receives, a pair for every face: the reference.

All sends start together, by one thread, as soon as all faces have been computed; they travel while
the other tiles are computed.
"""

from __future__ import annotations

from mpi4py import MPI

from onesided.apps.heat.halos.halo import Halo, Sides, Strip


class Persistent(Halo):
    """Local."""

    joint = True

    def __init__(self, sides: Sides) -> None:
        self._out = [[Strip(array[face.send]) for face in sides.faces] for array in sides.arrays]
        self._in = [[Strip(array[face.recv]) for face in sides.faces] for array in sides.arrays]
        comm = sides.comm
        self._sends = [
            [
                comm.Send_init(strip.memory, face.rank, face.number)
                for face, strip in zip(sides.faces, strips, strict=True)
            ]
            for strips in self._out
        ]
        self._receives = [
            [
                comm.Recv_init(strip.memory, face.rank, face.opposite)
                for face, strip in zip(sides.faces, strips, strict=True)
            ]
            for strips in self._in
        ]
        self._requests = [a + b for a, b in zip(self._receives, self._sends, strict=True)]

    def begin(self, which: int) -> None:
        """Local."""
        MPI.Prequest.Startall(self._receives[which])

    def send(self, which: int) -> None:
        """Local."""
        for strip in self._out[which]:
            strip.pack()
        MPI.Prequest.Startall(self._sends[which])

    def finish(self, which: int) -> None:
        """Local in the sense of MPI."""
        MPI.Request.Waitall(self._requests[which])
        for strip in self._in[which]:
            strip.unpack()

    def free(self) -> None:
        """Local."""
        for requests in self._requests:
            for request in requests:
                request.Free()
