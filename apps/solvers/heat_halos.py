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

from onesided.apps.bench.selection import named
from onesided.apps.solvers.heat_problem import SIDES, Box, Face, extent
from onesided.collectives import Alltoallv_init, Grid, HaloExchange, methods

Arrays = tuple[NDArray[Any], NDArray[Any]]


@dataclass(frozen=True)
class Sides:
    """What all halos of a block are made of.

    ``comm`` has the process grid; the arrays are fields of ``grid``; ``parts`` is the number of
    tiles at a face, ``info`` what the user told the methods.
    """

    comm: MPI.Cartcomm
    grid: Grid
    faces: Sequence[Face]
    arrays: Arrays
    parts: int
    info: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Mark:
    """A part of a face that may leave by itself: its box, and what any thread calls then."""

    box: Box
    ready: Callable[[], object]


@dataclass(frozen=True)
class Arrival:
    """A part of the ghosts that may come by itself: its box, and what tells any thread."""

    box: Box
    arrived: Callable[[], bool]


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

    def marks(self, which: int) -> list[Mark]:
        """Local. The parts of the faces of an array that are marked one by one."""
        return []

    def arrivals(self, which: int) -> list[Arrival]:
        """Local. The parts of the ghosts of an array that can be asked for one by one."""
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


# A persistent exchange of packed faces, by any method of :func:`onesided.collectives.methods`.
#
# One request serves both arrays. Its send buffer holds the faces in the order of the ranks that get
# them; the receive slots are the request's own, and take turns.

Pair = tuple[NDArray[Any], NDArray[Any]]


class Exchange(Halo):
    """Collective."""

    joint = True

    def __init__(self, sides: Sides, method: str) -> None:
        self._arrays = sides.arrays
        leaving = sorted(sides.faces, key=lambda face: (face.rank, face.number))
        self._coming = sorted(sides.faces, key=lambda face: (face.rank, face.opposite))
        counts = np.zeros(sides.comm.size, dtype=int)
        for face in leaving:
            counts[face.rank] += np.prod(extent(face.send))
        buffer = np.empty(int(counts.sum()), sides.arrays[0].dtype)
        self._packing = [_parts(buffer, array, leaving, _sent) for array in sides.arrays]
        self._unpacking: dict[tuple[int, int], list[Pair]] = {}
        self._request = Alltoallv_init(
            sides.comm, [buffer, counts.tolist()], None, method=method, info=sides.info
        )
        used = self._request.method
        self.label = "" if used == method else used

    def send(self, which: int) -> None:
        """Local (in strictly ordered methods it may wait for the other ranks)."""
        for part, layer in self._packing[which]:
            np.copyto(part, layer)
        self._request.Start()

    def finish(self, which: int) -> None:
        """Local in the sense of MPI (strictly ordered methods wait for all ranks)."""
        received = self._request.Wait()
        key = which, id(received)
        if key not in self._unpacking:  # a slot that is filled for the first time
            array = self._arrays[which]
            self._unpacking[key] = _parts(received, array, self._coming, _received)
        for part, layer in self._unpacking[key]:
            np.copyto(layer, part)

    def free(self) -> None:
        """Collective."""
        self._unpacking.clear()
        self._request.Free()


def _sent(face: Face) -> Box:
    return face.send


def _received(face: Face) -> Box:
    return face.recv


def _parts(
    buffer: NDArray[Any], array: NDArray[Any], faces: list[Face], of: Callable[[Face], Box]
) -> list[Pair]:
    """Local. For every face its part of the buffer, shaped like its layer, and the layer."""
    pairs: list[Pair] = []
    start = 0
    for face in faces:
        layer = array[of(face)]
        pairs.append((buffer[start : start + layer.size].reshape(layer.shape), layer))
        start += layer.size
    return pairs


# The halo of a grid: faces that leave at once, or in pieces, as threads have computed them.


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


class Partitioned(Halo):
    """Collective. Tiles mark what they have computed, and ask for the ghosts that they need.

    There is an exchange for each array: a tile may mark a piece of the next state before all
    ghosts of the present one have come, when both rounds are active.
    """

    gradual = True

    def __init__(self, sides: Sides) -> None:
        self._exchanges = [
            sides.grid.halo(array, partitions=sides.parts, info=sides.info)
            for array in sides.arrays
        ]
        self._ahead = [False, False]  # which round has been started for the next step
        self.label = self._exchanges[0].method

    def marks(self, which: int) -> list[Mark]:
        """Local."""
        halo = self._exchanges[which]
        return [
            Mark(box, partial(halo.Pready, face, number))
            for face in range(len(halo.faces))
            for number, box in enumerate(halo.pieces(face))
        ]

    def arrivals(self, which: int) -> list[Arrival]:
        """Local."""
        halo = self._exchanges[which]
        return [
            Arrival(box, partial(_arrived, halo, face, number))
            for face in range(len(halo.faces))
            for number, box in enumerate(halo.arrivals(face))
        ]

    def begin(self, which: int) -> None:
        """Local."""
        if not self._ahead[which]:
            self._exchanges[which].Start()
        self._ahead[which] = False

    def used(self, which: int) -> None:
        """Local. Neighbors hear early that they may send, where the last step is over."""
        if self._exchanges[which].Test():
            self._exchanges[which].Start()
            self._ahead[which] = True

    def finish(self, which: int) -> None:
        """Local in the sense of MPI."""
        if not self._ahead[which]:
            self._exchanges[which].Wait()

    def free(self) -> None:
        """Collective."""
        for halo in reversed(self._exchanges):
            halo.Free()


def _arrived(halo: HaloExchange, face: int, number: int) -> bool:
    """Local. Whether a piece is there; mostly all are, and one question settles the round."""
    return halo.Test() or halo.Parrived(face, number)


# Persistent sends and receives, a pair for every face: the reference.
#
# All sends start together, by one thread, as soon as all faces have been computed; they travel
# while the other tiles are computed.


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


# The halos by name: the only place where one is chosen. A new one is a class and a line.

REFERENCE = "persistent"


@dataclass(frozen=True)
class Way:
    """A way of exchanging faces: its name, its class, and what else that is given."""

    name: str
    kind: Callable[..., Halo]
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def make(self, sides: Sides) -> Halo:
        """Collective."""
        return self.kind(sides, **self.arguments)


_WAYS = (
    Way("blocking", Blocking),
    Way("persistent", Persistent),
    Way("halo", Whole),
    Way("partitioned", Partitioned),
)


def ways() -> dict[str, Way]:
    """Local. By name; the methods of exchanges, each in one collective request, at the end."""
    exchanges = (Way(name, Exchange, {"method": name}) for name in methods())
    return {way.name: way for way in (*_WAYS, *exchanges)}


def chosen(text: str) -> list[Way]:
    """Local. Those that ``--comm`` means, and the reference in any case.

    :class:`CommandError` where a name is unknown; it lists the known ones.
    """
    known = ways()
    names = named(text, known)
    return [known[name] for name in ([] if REFERENCE in names else [REFERENCE]) + names]
