"""What a kernel does: it makes the neighbor lists of a rank, and computes forces from them.

Every pair of atoms is in one list of one rank (Newton's third law): pairs of own atoms once, and a
pair of an own atom and a ghost on the rank whose atom is the lower one, by z, then y, then x.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.apps.miniapps.minimd_problem import Problem

# Atoms sorted into cells, so that those near an atom are found in a few runs of the order.
#
# Cells are half as long as the lists reach, or a little longer, and two layers of them around a
# rank's part hold its ghosts: what is near an atom is in 25 runs of five cells.

LAYERS = 2  # of cells that the reach spans


@dataclass(frozen=True)
class Cells:
    """``cell``: of every atom; ``order``: the atoms by cell; ``starts``: of the cells in it."""

    shape: tuple[int, ...]
    cell: NDArray[np.int64]
    order: NDArray[np.int64]
    starts: NDArray[np.int64]

    @classmethod
    def of(
        cls, x: NDArray[Any], total: int, low: NDArray[Any], high: NDArray[Any], reach: float
    ) -> Cells:
        """Local. Sort the first ``total`` atoms; own ones are between ``low`` and ``high``."""
        inside = np.maximum(1, np.floor((high - low) * (LAYERS / reach)).astype(np.int64))
        shape = tuple(int(count) + 2 * LAYERS for count in inside)
        edge = (high - low) / inside
        cell = np.zeros(total, dtype=np.int64)
        for axis, count in enumerate(shape):
            at = np.floor((x[axis, :total] - low[axis]) / edge[axis]).astype(np.int64) + LAYERS
            cell *= count
            cell += np.clip(at, 0, count - 1)
        order = np.argsort(cell, kind="stable")
        starts = np.zeros(prod(shape) + 1, dtype=np.int64)
        np.cumsum(np.bincount(cell, minlength=prod(shape)), out=starts[1:])
        return cls(shape, cell, order, starts)

    @property
    def runs(self) -> NDArray[np.int64]:
        """Local. From the cell of an atom to the first cells of the runs around it."""
        _, wide, deep = self.shape
        steps = range(-LAYERS, LAYERS + 1)
        return np.array([(dx * wide + dy) * deep - LAYERS for dx, dy in product(steps, steps)])


RUN = 2 * LAYERS + 1  # cells of a run


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


def load(problem: Problem, *, compiled: bool | None = None) -> Kernel:
    """Local. The loops that Numba compiles where it is installed, else NumPy's."""
    if compiled is None:
        compiled = find_spec("numba") is not None
    module = "minimd_compiled" if compiled else "minimd_vectorised"
    made: Kernel = import_module(f"onesided.apps.miniapps.{module}").Pairs(problem)
    return made
