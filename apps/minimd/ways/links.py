"""All links of a rank in one way: forward for positions and back for forces, along every axis.

The numbers of ghosts change with every new set of neighbor lists, persistent requests cannot. They
are therefore planned with some room, the same on all ranks, and planned anew where it does not
suffice, which all ranks find out together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.mini.way import Way
from onesided.apps.minimd.axis import Axis
from onesided.apps.minimd.problem import AXES
from onesided.apps.minimd.ways.link import Line, Link
from onesided.collectives import agree

SPARE = 1.15  # room for so many times the atoms that there are at first
LEAST = 32  # and so many more


class Links:
    """``plans``: how often the links have been made; ``rooms``: atoms of a side, by axis."""

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
