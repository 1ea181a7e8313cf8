"""What a way of bringing ghost layers up to date has to do.

A block has two arrays, the state before a step and the state after it, which change places after
every step. All ways know both from the start and are told by 0 or 1 which of them is meant: array
1 in the first step, and both in turn from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.heat.decomposition import Box, Face
from onesided.collectives import Grid

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
