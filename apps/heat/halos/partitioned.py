"""The halo of a grid: faces that leave at once, or in pieces, as threads have computed them."""

from __future__ import annotations

from functools import partial

from onesided.apps.heat.halos.halo import Arrival, Halo, Mark, Sides
from onesided.collectives import HaloExchange


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
