"""What brings numbers to both neighbors of a rank along each axis, again and again.

The ways are those of :mod:`onesided.apps.miniapps.halos`: the numbers that leave along an axis are
the
own entries of a vector, those that come are its ghosts. The reference is that of MiniMD. The
numbers of ghosts change with every new set of neighbor lists, what is persistent cannot. Links are
therefore planned with some room, the same on all ranks, and planned anew where it does not
suffice, which all ranks find out together; all the room is sent, but by the reference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from mpi4py import MPI
from mpi4py.typing import BufSpec
from numpy.typing import NDArray

from onesided.apps.miniapps import halos
from onesided.apps.miniapps.halos import Need
from onesided.apps.miniapps.minimd_atoms import HIGH, LOW, SIDES, Axis, Border, Counts, Pair
from onesided.apps.miniapps.minimd_problem import AXES
from onesided.apps.miniapps.way import REFERENCE, Way, by_name
from onesided.collectives import agree
from onesided.sparse import HaloPattern

SPARE = 1.15  # room for so many times the atoms that there are at first
LEAST = 32  # and so many more
_HERE = "onesided.apps.miniapps.minimd_links"


def ways() -> dict[str, Way]:
    """Local. By name: messages of just as many numbers as there are, then all ways of a halo."""
    others = {name: way for name, way in halos.ways().items() if name != REFERENCE}
    return by_name([
        Way(REFERENCE, f"{_HERE}:TwoSided"),
        *(Way(name, f"{_HERE}:Ghosts", {"way": way}) for name, way in others.items()),
    ])  # fmt: skip


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


class TwoSided:
    """Nonblocking messages of just as many numbers as there are: the original."""

    label = ""

    def __init__(self, line: Line) -> None:
        """Local."""
        self.line = line
        self.out = line.sides(np.zeros(2 * line.room))
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


class Ghosts:
    """A halo of a vector whose own entries are ``out``, all of which neighbors need."""

    def __init__(self, line: Line, way: Way) -> None:
        """Collective over the line. Raises what the way raises."""
        self._vector = np.zeros(2 * line.room)
        self.out = line.sides(self._vector)
        ranks = line.neighbors
        leaving = sorted(SIDES, key=lambda side: (ranks[side], side))
        coming = sorted(SIDES, key=lambda side: (ranks[side], 1 - side))
        index = np.concatenate([np.arange(line.room) + side * line.room for side in leaving])
        counts = np.bincount(ranks, minlength=line.comm.size) * line.room
        pattern = HaloPattern(2 * line.room, np.zeros(2 * line.room, np.int64), index, counts,
                              counts)  # fmt: skip
        self._places = [line.room * coming.index(side) for side in SIDES]
        self._room = line.room
        self.halo = way.make(Need(line.comm, pattern, np.dtype(float), line.info))
        self.label: str = self.halo.label

    def exchange(self, sent: Counts, received: Counts) -> Pair:
        """Collective over the line."""
        self.halo.start(self._vector)
        ghosts, room, (low, high) = self.halo.finish(), self._room, self._places
        return ghosts[low : low + room], ghosts[high : high + room]

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
        way: Way,
        info: Mapping[str, str],
        needed: NDArray[np.int64],
    ) -> None:
        """Collective over ``comm``, which has all ranks; ``needed`` are atoms of a side, by axis.

        Raises what a way raises, on all ranks.
        """
        self._comm, self._axes, self._way, self._info = comm, axes, way, info
        self.forward: list[Link | None] = []
        self.back: list[Link | None] = []
        self.rooms = np.zeros(AXES, dtype=np.int64)
        self.plans = 0
        self._make(needed)

    @property
    def label(self) -> str:
        """Local. What the way has chosen itself."""
        used = {link.label for link in self.forward + self.back if link is not None}
        return ", ".join(sorted(used - {""}))

    @property
    def nbytes(self) -> int:
        """Local. Of the room that is planned, forward and back."""
        links = [link for link in self.forward + self.back if link is not None]
        return sum(part.nbytes for link in links for part in link.out)

    def fit(self, needed: NDArray[np.int64]) -> None:
        """Collective. Plan again where the room is too small; ``needed`` is the same on all."""
        if (needed > self.rooms).any():
            self.free()
            self._make(np.maximum(needed, self.rooms))

    def free(self) -> None:
        """Collective."""
        for links in (self.back, self.forward):
            while links:
                link = links.pop()
                if link is not None:
                    link.free()

    def _make(self, needed: NDArray[np.int64]) -> None:
        self.rooms = np.ceil(SPARE * needed).astype(np.int64) + LEAST
        self.plans += 1
        for axis in self._axes:
            for links in (self.forward, self.back):
                links.append(self._link(axis))

    def _link(self, axis: Axis) -> Link | None:
        """Collective. One of them; where a line cannot have it, the lines that can give it back."""
        link, failure = None, None
        if not axis.alone:
            room = AXES * int(self.rooms[axis.number])
            try:
                link = self._way.make(Line(axis.comm, axis.neighbors, room, self._info))
            except Exception as error:
                failure = error
        try:
            agree(self._comm, failure, "links of ghost atoms")
        except Exception:
            if link is not None:
                link.free()
            self.free()
            raise
        return link


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
