"""What a kernel does: it makes the neighbor lists of a rank, and computes forces from them.

Every pair of atoms is in one list of one rank (Newton's third law): pairs of own atoms once, and a
pair of an own atom and a ghost on the rank whose atom is the lower one, by z, then y, then x.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from onesided.apps.minimd.problem import Problem


@dataclass(frozen=True)
class Tally:
    """Sums over the pairs of a rank that are within the cutoff, and how many these are."""

    energy: float = 0.0
    virial: float = 0.0
    pairs: int = 0


class Kernel(ABC):
    """Local. Positions and forces are arrays of shape (3, room), own atoms first, then ghosts."""

    def __init__(self, problem: Problem) -> None:
        self.cutoff_squared = problem.cutoff**2
        self.reach = problem.reach
        self.sigma_squared = problem.sigma**2
        self.epsilon = problem.epsilon

    @abstractmethod
    def build(
        self, x: NDArray[Any], own: int, total: int, low: NDArray[Any], high: NDArray[Any]
    ) -> None:
        """Local. New lists; own atoms are between ``low`` and ``high``."""

    @abstractmethod
    def forces(
        self, x: NDArray[Any], f: NDArray[Any], own: int, total: int, tally: bool
    ) -> Tally:
        """Local. Write the forces on own atoms and on ghosts; the sums are zero if not wanted."""
