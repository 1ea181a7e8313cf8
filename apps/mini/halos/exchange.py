"""Ghosts by :class:`~onesided.collectives.HaloExchange`, with a list of the neighbors.

One array has the ghosts, to which neighbors write, and behind them the packed entries.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from onesided.apps.mini.halos.halo import Need, Packed, neighbors
from onesided.collectives import HaloExchange, OnesidedError, empty, free


class Exchange(Packed):
    """Collective. ``label``: the ways in which entries come and leave."""

    def __init__(self, need: Need) -> None:
        super().__init__(need)
        ghosts, packed = len(need.pattern.ghosts), len(self._packed)
        self._memory = empty(need.comm, ghosts + packed, need.dtype, links=0)
        self._memory[...] = 0
        self._ghosts, self._packed = self._memory[:ghosts], self._memory[ghosts:]
        table = [
            (each.rank, [(ghosts + each.sent.start, ghosts + each.sent.stop)], (each.ghosts,))
            for each in neighbors(need.pattern)
        ]
        try:
            self._halo = HaloExchange(
                need.comm, self._memory, None, neighbors=table, info=dict(need.info)
            )
        except OnesidedError:  # the same on every rank
            free(self._memory)
            raise
        self.label = self._halo.method
        self._freed = False

    def start(self, x: NDArray[Any]) -> None:
        """Local."""
        self._pack(x)
        self._halo.Start()

    def finish(self) -> NDArray[Any]:
        """Local in the sense of MPI. The ghosts, when they are there."""
        self._halo.Wait()
        return self._ghosts

    def Free(self) -> None:
        """Collective. A second time has no effect."""
        if self._freed:
            return
        self._freed = True
        self._halo.Free()
        self._ghosts = self._packed = self._ghosts[:0].copy()
        free(self._memory)
