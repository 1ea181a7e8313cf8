"""A persistent exchange by any method of :func:`onesided.collectives.methods`.

Its counts are fixed, those of the ghosts are not: all the room is sent, see
:data:`onesided.apps.minimd.ways.links.SPARE` how much more that is.
"""

from __future__ import annotations

import numpy as np

from onesided.apps.minimd.sides import Counts, Pair
from onesided.apps.minimd.ways.link import Line, Link
from onesided.collectives import Alltoallv_init


class Exchange(Link):
    """Collective."""

    def __init__(self, line: Line, method: str) -> None:
        super().__init__(line)
        buffer = np.zeros(2 * line.room)
        counts = np.zeros(line.comm.size, dtype=int)
        places: dict[tuple[int, int], int] = {}
        for number, (rank, side) in enumerate(sorted(zip(line.neighbors, range(2), strict=True))):
            counts[rank] += line.room
            places[rank, side] = number * line.room
        leaving = [places[rank, side] for side, rank in enumerate(line.neighbors)]
        self.out = (
            buffer[leaving[0] : leaving[0] + line.room],
            buffer[leaving[1] : leaving[1] + line.room],
        )
        self._coming = self._arrivals(line)
        self._request = Alltoallv_init(
            line.comm, [buffer, counts.tolist()], None, method=method, info=dict(line.info)
        )
        used = self._request.method
        self.label = "" if used == method else used

    @staticmethod
    def _arrivals(line: Line) -> tuple[slice, slice]:
        """Where what comes from either side begins: blocks are in the order of the ranks, and of
        one rank in the order in which it has written them."""
        order = sorted((rank, 1 - side) for side, rank in enumerate(line.neighbors))
        starts = [
            order.index((rank, 1 - side)) * line.room for side, rank in enumerate(line.neighbors)
        ]
        low, high = (slice(start, start + line.room) for start in starts)
        return low, high

    def exchange(self, sent: Counts, received: Counts) -> Pair:
        """Collective over the line."""
        self._request.Start()
        array = self._request.Wait()
        low, high = self._coming
        return array[low], array[high]

    def free(self) -> None:
        """Collective over the line."""
        self._request.Free()
