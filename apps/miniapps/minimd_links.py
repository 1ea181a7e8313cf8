"""What brings positions to ghosts, and the forces on them back, again and again.

The ways are those of :mod:`onesided.apps.miniapps.halos`. The numbers of ghosts change with every
new set of neighbor lists, what is persistent cannot. It is therefore planned with some room, and
planned anew where that does not suffice on a rank; all the room is sent. The reference, whose
messages need no plan, sends just as many numbers as there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.miniapps.halos import Need
from onesided.apps.miniapps.minimd_atoms import AXES, Border
from onesided.collectives import OnesidedError
from onesided.sparse import HaloPattern

SPARE = 1.15  # room for so many times the atoms that there are at first
LEAST = 32  # and so many more


class Link:
    """A vector for each of so many atoms to every other rank, and from it."""

    def __init__(
        self, comm: MPI.Intracomm, make: Callable[[Need], Any], info: Mapping[str, str],
        leaving: NDArray[np.int64], coming: NDArray[np.int64],
    ) -> None:  # fmt: skip
        """Collective. ``leaving`` and ``coming``: room, by rank. Raises what the way raises."""
        numbers = np.arange(AXES * leaving.sum())
        ghosts = np.zeros(AXES * coming.sum(), np.int64)
        pattern = HaloPattern(len(numbers), ghosts, numbers, AXES * leaving, AXES * coming)
        self._vector = np.zeros(len(numbers))
        self._out, self._into = (np.cumsum(room) - room for room in (leaving, coming))
        self.halo = make(Need(comm, pattern, np.dtype(float), info))

    def out(self, rank: int, count: int) -> NDArray[Any]:
        """Local. What goes to a rank, (3, count), to be written before ``exchange``."""
        return _vectors(self._vector, self._out[rank], count)

    def exchange(self) -> Callable[[int, int], NDArray[Any]]:
        """Collective. Tells what has come from a rank, (3, count), until the next exchange."""
        self.halo.start(self._vector)
        came = self.halo.finish()
        return lambda rank, count: _vectors(came, self._into[rank], count)


def _vectors(array: NDArray[Any], start: int, count: int) -> NDArray[Any]:
    return array[AXES * start : AXES * (start + count)].reshape(AXES, count)


class Links:
    """Forward for positions and back for forces, in one way.

    ``plans``: how often they have been made.
    """

    def __init__(
        self, comm: MPI.Intracomm, make: Callable[[Need], Any], info: Mapping[str, str],
        border: Border, *, exact: bool = False,
    ) -> None:  # fmt: skip
        """Collective. ``exact``: without room to spare. Raises what the way raises."""
        self._comm, self._make, self._info, self._exact = comm, make, info, exact
        self._counts = np.zeros((2, comm.size), np.int64)
        self.plans = 0
        self._plan(border)

    @property
    def label(self) -> str:
        """What the way has chosen itself."""
        return ", ".join(sorted({self._forward.halo.label, self._back.halo.label} - {""}))

    def fit(self, border: Border) -> None:
        """Collective. Plan again where the room does not suffice."""
        if self._comm.allreduce(bool((_counts(border) > self.rooms).any()), MPI.LOR) or self._exact:
            self.free()
            self._plan(border)

    def free(self) -> None:
        """Collective."""
        self._back.halo.Free()
        self._forward.halo.Free()

    def _plan(self, border: Border) -> None:
        """Collective. Both ranks of a pair have had the same numbers, and so the same room."""
        self.plans += 1
        counts = _counts(border)
        if not self._exact:
            self._counts = counts = np.maximum(self._counts, counts)
            counts = np.where(counts, np.ceil(SPARE * counts).astype(np.int64) + LEAST, 0)
        self.rooms = counts
        sent, received = counts
        self._forward = Link(self._comm, self._make, self._info, sent, received)
        try:
            self._back = Link(self._comm, self._make, self._info, received, sent)
        except OnesidedError:  # the same on every rank
            self._forward.halo.Free()
            raise

    def forward(self, x: NDArray[Any], own: int, border: Border) -> None:
        """Collective. Bring the positions of all ghosts up to date."""
        ghosts, link = x[:, own : own + len(border.shifts.T)], self._forward
        for rank, part in _parts(border.sent):
            if rank != border.rank:
                out = link.out(rank, part.stop - part.start)
                np.take(x, border.leaving[part], axis=1, out=out, mode="clip")
        came = link.exchange()
        images = border.leaving[dict(_parts(border.sent)).get(border.rank, slice(0))]
        for rank, part in _parts(border.received):
            here = rank == border.rank
            of = x[:, images] if here else came(rank, part.stop - part.start)
            np.add(of, border.shifts[:, part], out=ghosts[:, part])

    def reverse(self, f: NDArray[Any], own: int, border: Border) -> None:
        """Collective. Add the forces on ghosts to those on the atoms, by ascending rank."""
        ghosts, link = f[:, own : own + len(border.shifts.T)], self._back
        for rank, part in _parts(border.received):
            if rank != border.rank:
                link.out(rank, part.stop - part.start)[...] = ghosts[:, part]
        images = ghosts[:, dict(_parts(border.received)).get(border.rank, slice(0))]
        came = link.exchange()
        parts = [
            images if rank == border.rank else came(rank, part.stop - part.start)
            for rank, part in _parts(border.sent)
        ]
        if parts:
            for row, forces in zip(f, np.concatenate(parts, axis=1), strict=True):
                row[:own] += np.bincount(border.leaving, forces, own)


def _counts(border: Border) -> NDArray[np.int64]:
    """Local. To and from the other ranks."""
    found = np.stack([border.sent, border.received])
    found[:, border.rank] = 0
    return found


def _parts(counts: NDArray[np.int64]) -> list[tuple[int, slice]]:
    """Local. Ranks of which there is something, and where it is."""
    ends = accumulate(counts.tolist())
    return [(rank, slice(end - count, end))
            for rank, (count, end) in enumerate(zip(counts.tolist(), ends, strict=True)) if count]
