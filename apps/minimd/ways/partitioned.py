"""HaloExchange with listed neighbors.

As with persistent exchanges, all the room is sent; into memory of a window, where ghosts come to
the place where they are read.
"""

from __future__ import annotations

import numpy as np

from onesided.apps.minimd.sides import Counts, Pair
from onesided.apps.minimd.ways.link import Line, Link
from onesided.collectives import HaloExchange, empty, free


class Partitioned(Link):
    """Collective. One array has the parts that leave, and behind them those that come."""

    def __init__(self, line: Line) -> None:
        super().__init__(line)
        self._memory = array = empty(line.comm, 4 * line.room, links=0)
        array[:] = 0.0
        parts = [slice(n * line.room, (n + 1) * line.room) for n in range(4)]
        to_low, to_high, from_low, from_high = parts
        self.out, self._into = (array[to_low], array[to_high]), (array[from_low], array[from_high])
        low, high = line.neighbors
        if low == high:  # its n-th entry for this rank is matched with the n-th one here
            neighbors = [(low, (to_low,), (from_high,)), (low, (to_high,), (from_low,))]
        else:
            neighbors = [(low, (to_low,), (from_low,)), (high, (to_high,), (from_high,))]
        self._halo = HaloExchange(
            line.comm, array, None, neighbors=neighbors, info=dict(line.info)
        )
        self.label = self._halo.method

    def exchange(self, sent: Counts, received: Counts) -> Pair:
        """Collective over the line."""
        self._halo.exchange()
        return self._into

    def free(self) -> None:
        """Collective over the line."""
        self._halo.Free()
        self.out, self._into = (np.empty(0), np.empty(0)), (np.empty(0), np.empty(0))
        free(self._memory)
