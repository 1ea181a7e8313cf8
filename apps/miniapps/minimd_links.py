"""What brings numbers to both neighbors of a rank along each axis, again and again.

The ways are those of :mod:`onesided.apps.miniapps.halos`: the numbers that leave along an axis are
the own entries of a vector, those that come are its ghosts. The reference is that of MiniMD. The
numbers of ghosts change with every new set of neighbor lists, what is persistent cannot. Links are
therefore planned with some room, the same on all ranks, and planned anew where it does not
suffice, which all ranks find out together; all the room is sent, but by the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.miniapps import halos
from onesided.apps.miniapps.halos import REFERENCE, Need, Ways
from onesided.apps.miniapps.minimd_atoms import HIGH, LOW, SIDES, Axis, Border, Counts, Pair
from onesided.apps.miniapps.minimd_problem import AXES
from onesided.collectives import agree
from onesided.sparse import HaloPattern

SPARE = 1.15  # room for so many times the atoms that there are at first
LEAST = 32  # and so many more


def ways() -> Ways:
    """Local. What makes a link of a :class:`Line`, by name: all ways of a halo, but the reference
    sends just as many numbers as there are."""
    found = {name: partial(Ghosts, make=make) for name, make in halos.ways().items()}
    return {**found, REFERENCE: TwoSided}


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


class Link(Protocol):
    """Numbers for the lower and the higher neighbor: ``out``, written by the caller."""

    label: str
    out: Pair

    def exchange(self, sent: Counts, received: Counts) -> Pair:
        """Collective over the line. What came from the lower and the higher neighbor.

        ``sent``: how many numbers of ``out`` are meant, ``received``: how many come. The arrays
        may be longer, and are valid until the next exchange.
        """

    def free(self) -> None:
        """Collective over the line. Give everything back."""


class TwoSided(Link):
    """Nonblocking messages of just as many numbers as there are: the original."""

    label = ""

    def __init__(self, line: Line) -> None:
        """Local."""
        self._comm, self._neighbors = line.comm, line.neighbors
        self.out = np.zeros(line.room), np.zeros(line.room)
        self._into = np.zeros(line.room), np.zeros(line.room)

    def exchange(self, sent: Counts, received: Counts) -> Pair:
        """Collective over the line."""
        comm, requests = self._comm, []
        for side, rank in enumerate(self._neighbors):
            coming = [self._into[side], received[side], MPI.DOUBLE]
            requests.append(comm.Irecv(coming, rank, 1 - side))
        for side, rank in enumerate(self._neighbors):
            requests.append(comm.Isend([self.out[side], sent[side], MPI.DOUBLE], rank, side))
        MPI.Request.Waitall(requests)
        return self._into


class Ghosts(Link):
    """A halo of a vector whose own entries are ``out``, all of which neighbors need."""

    def __init__(self, line: Line, make: Callable[[Need], Any]) -> None:
        """Collective over the line. Raises what the way raises."""
        room, ranks = line.room, line.neighbors
        self._vector = np.zeros(2 * room)
        self.out = self._vector[:room], self._vector[room:]
        leaving = sorted(SIDES, key=lambda side: (ranks[side], side))
        coming = sorted(SIDES, key=lambda side: (ranks[side], 1 - side))
        index = np.concatenate([np.arange(room) + side * room for side in leaving])
        counts = np.bincount(ranks, minlength=line.comm.size) * room
        pattern = HaloPattern(2 * room, np.zeros(2 * room, np.int64), index, counts, counts)
        low, high = (room * coming.index(side) for side in SIDES)
        self._places = slice(low, low + room), slice(high, high + room)
        self.halo = make(Need(line.comm, pattern, np.dtype(float), line.info))
        self.label = self.halo.label

    def exchange(self, sent: Counts, received: Counts) -> Pair:
        """Collective over the line."""
        self.halo.start(self._vector)
        ghosts, (low, high) = self.halo.finish(), self._places
        return ghosts[low], ghosts[high]

    def free(self) -> None:
        """Collective over the line."""
        self.halo.Free()


class Links:
    """All links of a rank in one way: forward for positions and back for forces, by axis.

    ``plans``: how often the links have been made; ``rooms``: atoms of a side, by axis.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        axes: Sequence[Axis],
        make: Callable[[Line], Link],
        info: Mapping[str, str],
        needed: NDArray[np.int64],
    ) -> None:
        """Collective over ``comm``, which has all ranks; ``needed`` are atoms of a side, by axis.

        Raises what a way raises, on all ranks.
        """
        self._comm, self._axes, self._make, self._info = comm, axes, make, info
        self.forward: list[Link | None] = []
        self.back: list[Link | None] = []
        self.rooms = np.zeros(AXES, dtype=np.int64)
        self.plans = 0
        self._plan(needed)

    @property
    def _links(self) -> list[Link]:
        return [link for link in self.forward + self.back if link is not None]

    @property
    def label(self) -> str:
        """Local. What the way has chosen itself."""
        return ", ".join(sorted({link.label for link in self._links} - {""}))

    @property
    def nbytes(self) -> int:
        """Local. Of the room that is planned, forward and back."""
        return sum(part.nbytes for link in self._links for part in link.out)

    def fit(self, needed: NDArray[np.int64]) -> None:
        """Collective. Plan again where the room is too small; ``needed`` is the same on all."""
        if (needed > self.rooms).any():
            self.free()
            self._plan(np.maximum(needed, self.rooms))

    def free(self) -> None:
        """Collective."""
        for links in (self.back, self.forward):
            while links:
                link = links.pop()
                if link is not None:
                    link.free()

    def _plan(self, needed: NDArray[np.int64]) -> None:
        """Collective. Where one line cannot have a link, all that there are go back."""
        self.rooms = np.ceil(SPARE * needed).astype(np.int64) + LEAST
        self.plans += 1
        for axis in self._axes:
            room = AXES * int(self.rooms[axis.number])
            for links in (self.forward, self.back):
                link, failure = None, None
                try:
                    if not axis.alone:
                        link = self._make(Line(axis.comm, axis.neighbors, room, self._info))
                except Exception as error:
                    failure = error
                links.append(link)
                try:
                    agree(self._comm, failure, "links of ghost atoms")
                except Exception:
                    self.free()
                    raise


# Forward and reverse communication: positions to the ghosts, and the forces on them back.


def forward(x: NDArray[Any], borders: Sequence[Border], links: Sequence[Link | None]) -> None:
    """Collective. Bring the positions of all ghosts up to date, along one axis after the other."""
    for border, link in zip(borders, links, strict=True):
        axis = border.axis
        if link is None:
            for side in SIDES:
                start, stop = border.ghosts[side].start, border.ghosts[side].stop
                for row in range(AXES):
                    np.take(x[row], border.leaving[1 - side], out=x[row, start:stop], mode="clip")
                x[axis.number, start:stop] += axis.shifts[1 - side]
            continue
        for side in SIDES:
            part = columns(link.out[side], border.sent[side])
            np.take(x, border.leaving[side], axis=1, out=part, mode="clip")
            if axis.shifts[side]:
                part[axis.number] += axis.shifts[side]
        coming = _swap(link, border.sent, border.received)
        for side in SIDES:
            x[:, border.ghosts[side]] = coming[side]


def reverse(f: NDArray[Any], borders: Sequence[Border], links: Sequence[Link | None]) -> None:
    """Collective. Add the forces on ghosts to those on the atoms, along the last axis first."""
    for border, link in zip(reversed(borders), reversed(links), strict=True):
        if link is None:
            coming = f[:, border.ghosts[HIGH]], f[:, border.ghosts[LOW]]
        else:
            for side in SIDES:
                part = columns(link.out[side], border.received[side])
                np.copyto(part, f[:, border.ghosts[side]])
            coming = _swap(link, border.received, border.sent)
        for side in SIDES:
            for row, part in zip(f, coming[side], strict=True):  # rows: four times as fast
                row[border.leaving[side]] += part


def columns(array: NDArray[Any], count: int) -> NDArray[Any]:
    """Local. The first numbers of an array as a vector for each of so many atoms."""
    return array[: AXES * count].reshape(AXES, count)


def _swap(link: Link, sent: Counts, received: Counts) -> Pair:
    """Collective over the line."""
    low, high = link.exchange(
        (AXES * sent[LOW], AXES * sent[HIGH]), (AXES * received[LOW], AXES * received[HIGH])
    )
    return columns(low, received[LOW]), columns(high, received[HIGH])
