"""What a way of bringing ghost layers up to date has to do.

A block has two arrays, the state before a step and the state after it, which change places after
every step. All ways know both from the start and are told by 0 or 1 which of them is meant: array
1 in the first step, and both in turn from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives import (
    Grid,
    Neighbor_alltoallw_init,
    OnesidedError,
    Request,
    methods,
)
from onesided.collectives.halo.faces import Face, Place, directions, grid_faces

Arrays = tuple[NDArray[Any], NDArray[Any]]
Box = tuple[slice, ...]


def faces_of(grid: Grid) -> list[Face]:
    """Local. Those of the block with a neighbor, by axis, the lower side first.

    A block that has a periodic axis whole is its own neighbor.
    """
    shape = tuple(length + 2 for length in grid.local_shape)
    return grid_faces(shape, 1, Place(grid.dims, grid.periodic, grid.coords), "faces")


@dataclass(frozen=True)
class Sides:
    """What all halos of a block are made of.

    The arrays are fields of ``grid``; ``parts`` is the number of tiles at a face, ``info`` what
    the user told the methods.
    """

    grid: Grid
    faces: Sequence[Face]
    arrays: Arrays
    parts: int
    info: dict[str, str] = field(default_factory=dict)


class Halo:
    """The verbs of a step, in this order, called by the main thread; by default they do nothing.

    ``joint``: what is sent leaves in ``send``, after all threads have computed the faces; other
    halos send by marks, or in ``finish``, and no thread has to wait for another before.
    ``gradual``: tiles ask for the arrival of their ghosts, so that ``finish`` may come when they
    have been used; else it comes before.
    """

    joint = False
    gradual = False
    label = ""

    def marks(self, which: int) -> list[tuple[Box, Callable[[], object]]]:
        """Local. The parts of the faces of an array that leave one by one, and what any thread
        calls when they may."""
        return []

    def arrivals(self, which: int) -> list[tuple[Box, Callable[[], bool]]]:
        """Local. The parts of the ghosts of an array that come one by one, and what tells any
        thread that they are there."""
        return []

    def begin(self, which: int) -> None:
        """Local. The own points of an array are computed next."""

    def send(self, which: int) -> None:
        """Local. The points at the faces have been computed."""

    def used(self, which: int) -> None:
        """Local. The ghosts of an array are not needed any more; called by any thread.

        Of gradual halos only, and only where a step follows that computes this array.
        """

    def finish(self, which: int) -> None:
        """Local in the sense of MPI. All has been computed; returns when the ghosts are there."""

    def free(self) -> None:
        """Collective. Give everything back."""


class Strip:
    """A layer of an array and the contiguous memory that it is sent from or received into.

    This is the layer itself where its points follow each other in memory.
    """

    def __init__(self, layer: NDArray[Any]) -> None:
        self.layer = layer
        self.direct = bool(layer.flags.c_contiguous)
        self.memory = layer if self.direct else np.empty(layer.shape, layer.dtype)

    def pack(self) -> None:
        """Local. Before it is sent."""
        if not self.direct:
            np.copyto(self.memory, self.layer)

    def unpack(self) -> None:
        """Local. After it has been received."""
        if not self.direct:
            np.copyto(self.layer, self.memory)


# Faces exchanged by MPI_Sendrecv after all has been computed, one axis and side at a time.


class Blocking(Halo):
    """Local."""

    def __init__(self, sides: Sides) -> None:
        faces = {face.offset: face for face in sides.faces}
        offsets = directions(len(sides.grid.shape), 1)
        self._calls = [
            [
                call
                for out, into in zip(offsets, map(_opposite, offsets), strict=True)
                for call in _exchange(sides, array, faces.get(out), faces.get(into))
            ]
            for array in sides.arrays
        ]

    def finish(self, which: int) -> None:
        """Local in the sense of MPI."""
        for call in self._calls[which]:
            call()


def _opposite(offset: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(-step for step in offset)


def _exchange(
    sides: Sides, array: NDArray[Any], out: Face | None, into: Face | None
) -> list[Callable[[], object]]:
    """Local. Send over one face, and receive over the other side; either may be missing."""
    sent = Strip(np.empty(0) if out is None else array[out.send])
    received = Strip(np.empty(0) if into is None else array[into.recv])
    call = partial(
        sides.grid.comm.Sendrecv,
        sent.memory,
        MPI.PROC_NULL if out is None else out.rank,
        0 if out is None else out.send_key,
        received.memory,
        MPI.PROC_NULL if into is None else into.rank,
        0 if into is None else into.recv_key,
    )
    return [sent.pack, call, received.unpack]


class Exchange(Halo):
    """Collective. A persistent exchange with the neighbors, by any method of
    :func:`onesided.collectives.methods`; a request for each array."""

    joint = True

    def __init__(self, sides: Sides, method: str) -> None:
        out = sorted(sides.faces, key=lambda face: (face.rank, face.send_key))
        into = sorted(sides.faces, key=lambda face: (face.rank, face.recv_key))
        sources, targets = [face.rank for face in into], [face.rank for face in out]
        self._graph = sides.grid.comm.Create_dist_graph_adjacent(sources, targets)
        self._requests: list[Request] = []
        try:
            for array in sides.arrays:
                sent, received = (
                    [array, [face.send for face in out]], [array, [face.recv for face in into]]
                )  # fmt: skip
                self._requests.append(
                    Neighbor_alltoallw_init(
                        self._graph, sent, received, method=method, info=sides.info
                    )
                )
        except OnesidedError:  # the same on every rank
            self.free()
            raise
        used = self._requests[0].method
        self.label = "" if used == method else used

    def send(self, which: int) -> None:
        """Local (in strictly ordered methods it may wait for the other ranks)."""
        self._requests[which].Start()

    def finish(self, which: int) -> None:
        """Local in the sense of MPI (strictly ordered methods wait for all ranks)."""
        self._requests[which].Wait()

    def free(self) -> None:
        """Collective."""
        for request in reversed(self._requests):
            request.Free()
        self._graph.Free()


# The halo of a grid.


class Whole(Halo):
    """Collective. All faces leave when they have been computed; both arrays take turns."""

    joint = True

    def __init__(self, sides: Sides) -> None:
        old, new = sides.arrays
        self._exchange = sides.grid.halo((new, old), info=sides.info)
        self.label = self._exchange.method

    def send(self, which: int) -> None:
        """Local."""
        self._exchange.Start()

    def finish(self, which: int) -> None:
        """Local in the sense of MPI."""
        self._exchange.Wait()

    def free(self) -> None:
        """Collective."""
        self._exchange.Free()


# Persistent sends and receives, a pair for every face: the reference.
#
# All sends start together, by one thread, as soon as all faces have been computed; they travel
# while the other tiles are computed.


class Persistent(Halo):
    """Local."""

    joint = True

    def __init__(self, sides: Sides) -> None:
        comm, faces = sides.grid.comm, sides.faces
        self._out = [[Strip(array[face.send]) for face in faces] for array in sides.arrays]
        self._in = [[Strip(array[face.recv]) for face in faces] for array in sides.arrays]
        self._sends = [
            [
                comm.Send_init(strip.memory, face.rank, face.send_key)
                for face, strip in zip(faces, strips, strict=True)
            ]
            for strips in self._out
        ]
        self._receives = [
            [
                comm.Recv_init(strip.memory, face.rank, face.recv_key)
                for face, strip in zip(faces, strips, strict=True)
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


REFERENCE = "persistent"


def ways() -> Mapping[str, Callable[[Sides], Halo]]:
    """Local. What makes a halo, by name: the only place where one is chosen.

    A new one is a class and a line here. The methods of exchanges, each in one collective request,
    are at the end.
    """
    return {
        "blocking": Blocking,
        REFERENCE: Persistent,
        "halo": Whole,
        **{name: partial(Exchange, method=name) for name in methods()},
    }
