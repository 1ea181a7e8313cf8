"""Ghosts of a block of a Cartesian grid by persistent messages, written with mpi4py alone: what
grids are compared with.

A layer of ghosts on every side. What a rank would send to itself is copied. A phase begins when the
messages of the one before have come: one phase has a message to and from every neighbor, a phase
for each axis has two, whose faces have the ghosts that have come before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count, product
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives import Grid

#: A direction, with the box that is sent there, and the one that is received from the other side.
Way = tuple[tuple[int, ...], tuple[slice, ...], tuple[slice, ...]]

OUT = {-1: slice(1, 2), 0: slice(1, -1), 1: slice(-2, -1)}
INTO = {-1: slice(-1, None), 0: slice(1, -1), 1: slice(0, 1)}


def at_once(axes: int, most: int) -> list[list[Way]]:
    """Local. Everything in one phase, in directions along ``most`` axes at a time."""
    ways = [(steps, tuple(OUT[s] for s in steps), tuple(INTO[s] for s in steps))
            for steps in product((-1, 0, 1), repeat=axes) if 0 < sum(map(abs, steps)) <= most]
    return [ways]


def along_axes(axes: int) -> list[list[Way]]:
    """Local. Faces along one axis after the other; edges and corners come with them."""
    phases = []
    for axis in range(axes):
        ways = []
        for sign in (-1, 1):
            boxes = [[slice(None)] * axis + [side[sign]] + [slice(1, -1)] * (axes - axis - 1)
                     for side in (OUT, INTO)]
            steps = tuple(sign * (a == axis) for a in range(axes))
            ways.append((steps, tuple(boxes[0]), tuple(boxes[1])))
        phases.append(ways)
    return phases


def cart_of(grid: Grid) -> MPI.Cartcomm:
    """Collective. A Cartesian communicator that has the blocks of a grid in C order."""
    ordered = MPI.Intracomm(grid.comm.Split(0, int(np.ravel_multi_index(grid.coords, grid.dims))))
    cart: MPI.Cartcomm = ordered.Create_cart(grid.dims, grid.periodic, reorder=False)
    ordered.Free()
    return cart


@dataclass
class _Phase:
    """Copies are (to, from)."""

    sends: list[MPI.Prequest] = field(default_factory=list)
    recvs: list[MPI.Prequest] = field(default_factory=list)
    packs: list[tuple[Any, Any]] = field(default_factory=list)
    unpacks: list[tuple[Any, Any]] = field(default_factory=list)
    own: list[tuple[Any, Any]] = field(default_factory=list)


class ByHand:
    """Boxes are packed, but those that lie in one piece; the verbs are those of a request."""

    def __init__(
        self, cart: MPI.Cartcomm, array: NDArray[Any], phases: Sequence[Sequence[Way]]
    ) -> None:
        self.array, self._phases = array, [_Phase() for _ in phases]
        tags = count()
        for phase, ways in zip(self._phases, phases, strict=True):
            for (steps, out, into), tag in zip(ways, tags, strict=False):
                to, source = (self._rank(cart, steps, sign) for sign in (1, -1))
                if to == source == cart.rank:
                    phase.own.append((array[into], array[out]))
                    continue
                if to != MPI.PROC_NULL:
                    phase.sends.append(cart.Send_init(self._spec(out, phase.packs), to, tag))
                if source != MPI.PROC_NULL:
                    spec = self._spec(into, phase.unpacks)
                    phase.recvs.append(cart.Recv_init(spec, source, tag))
            phase.unpacks = [(view, packed) for packed, view in phase.unpacks]

    @staticmethod
    def _rank(cart: MPI.Cartcomm, steps: Sequence[int], sign: int) -> int:
        place = [c + sign * s for c, s in zip(cart.coords, steps, strict=True)]
        ends = zip(place, cart.dims, cart.periods, strict=True)
        inside = all(around or 0 <= at < extent for at, extent, around in ends)
        return int(cart.Get_cart_rank(place)) if inside else MPI.PROC_NULL

    def _spec(self, box: tuple[slice, ...], copies: list[Any]) -> Any:
        """Local. What MPI sends or receives for a box of the array."""
        view = self.array[box]
        if view.flags.c_contiguous:
            return view
        packed = np.empty(view.shape, view.dtype)
        copies.append((packed, view))
        return packed

    def Start(self) -> None:
        """Local. Post all receives, and send what the first phase sends."""
        for phase in self._phases:
            MPI.Prequest.Startall(phase.recvs)
        self._send(self._phases[0])

    def Wait(self) -> None:
        for number, phase in enumerate(self._phases):
            if number:
                self._send(phase)
            MPI.Request.Waitall(phase.recvs)
            for to, source in phase.unpacks:
                to[...] = source
        for phase in self._phases:
            MPI.Request.Waitall(phase.sends)

    @staticmethod
    def _send(phase: _Phase) -> None:
        for to, source in phase.packs:
            to[...] = source
        MPI.Prequest.Startall(phase.sends)
        for to, source in phase.own:
            to[...] = source

    def exchange(self) -> None:
        self.Start()
        self.Wait()

    def Free(self) -> None:
        for phase in self._phases:
            for request in (*phase.sends, *phase.recvs):
                request.Free()


class Typed(ByHand):
    """Messages of boxes of the array, which MPI packs."""

    def __init__(self, *given: Any) -> None:
        self._types: list[MPI.Datatype] = []
        super().__init__(*given)

    def _spec(self, box: tuple[slice, ...], copies: list[Any]) -> Any:
        ranges = [part.indices(n) for part, n in zip(box, self.array.shape, strict=True)]
        starts, extents = [start for start, _, _ in ranges], self.array[box].shape
        kind = MPI.DOUBLE.Create_subarray(self.array.shape, extents, starts)
        self._types.append(kind.Commit())
        return [self.array, 1, kind]

    def Free(self) -> None:
        super().Free()
        for kind in self._types:
            kind.Free()
