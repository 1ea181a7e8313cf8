"""The atoms of one rank: own ones first, then the ghosts that it has of others."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.apps.minimd.problem import AXES

SPARE = 1.2  # room for so many times the atoms that there are
LEAST = 64
STATE = 2 * AXES + 1  # numbers of an atom that moves to another rank


class Atoms:
    """Positions, velocities and forces, arrays of shape (3, room), and the numbers of the atoms.

    Ghosts have positions and forces only.
    """

    def __init__(self) -> None:
        self.own = self.total = 0
        self.x, self.v, self.f = (np.zeros((AXES, LEAST)) for _ in range(3))
        self.numbers = np.zeros(LEAST)

    def reserve(self, total: int) -> None:
        """Local. Room for so many atoms, ghosts included; what is there is kept."""
        if total <= self.x.shape[1]:
            return
        room = int(SPARE * total) + LEAST
        kept = self.x.shape[1]
        for name in ("x", "v", "f"):
            array = np.zeros((AXES, room))
            array[:, :kept] = getattr(self, name)
            setattr(self, name, array)
        numbers = np.zeros(room)
        numbers[:kept] = self.numbers
        self.numbers = numbers

    def state(self) -> NDArray[Any]:
        """Local. A copy of what own atoms are: a column for each, with positions, velocities and
        its number."""
        own = slice(0, self.own)
        return np.concatenate([self.x[:, own], self.v[:, own], self.numbers[None, own]])

    def load(self, state: NDArray[Any]) -> None:
        """Local. Have these atoms, and no ghosts."""
        self.own = self.total = state.shape[1]
        self.reserve(self.own)
        own = slice(0, self.own)
        self.x[:, own] = state[:AXES]
        self.v[:, own] = state[AXES : 2 * AXES]
        self.numbers[own] = state[2 * AXES]

    def add_ghosts(self, positions: NDArray[Any]) -> slice:
        """Local. Append ghosts; where they are."""
        start, self.total = self.total, self.total + positions.shape[1]
        self.reserve(self.total)
        self.x[:, start : self.total] = positions
        return slice(start, self.total)

    def drop_ghosts(self) -> None:
        """Local."""
        self.total = self.own
