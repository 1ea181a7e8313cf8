"""What a kernel does: it makes the neighbor lists of a rank, and computes forces from them.

Every pair of atoms is in one list of one rank (Newton's third law): pairs of own atoms once, and a
pair of an own atom and a ghost on the rank whose atom is the lower one, by z, then y, then x.
There is one kernel of NumPy, here, and one that Numba compiles.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from onesided.apps.miniapps.minimd_atoms import AXES, Problem

# Atoms sorted into cells, so that those near an atom are found in a few runs of the order.
#
# Cells are half as long as the lists reach, or a little longer, and two layers of them around a
# rank's part hold its ghosts: what is near an atom is in 25 runs of five cells.

LAYERS = 2  # of cells that the reach spans


@dataclass(frozen=True)
class Cells:
    """``cell``: of every atom; ``order``: the atoms by cell; ``starts``: of the cells in it;
    ``runs``: from the cell of an atom to the first cells of the runs around it."""

    cell: NDArray[np.int64]
    order: NDArray[np.int64]
    starts: NDArray[np.int64]
    runs: NDArray[np.int64]

    @classmethod
    def of(cls, x: NDArray[Any], low: NDArray[Any], high: NDArray[Any], reach: float) -> Cells:
        """Local. Sort atoms; own ones are between ``low`` and ``high``."""
        inside = np.maximum(1, np.floor((high - low) * (LAYERS / reach)).astype(np.int64))
        shape = tuple(int(count) + 2 * LAYERS for count in inside)
        edge = (high - low) / inside
        cell = np.zeros(x.shape[1], dtype=np.int64)
        for axis, count in enumerate(shape):
            at = np.floor((x[axis] - low[axis]) / edge[axis]).astype(np.int64) + LAYERS
            cell *= count
            cell += np.clip(at, 0, count - 1)
        order = np.argsort(cell, kind="stable")
        starts = np.zeros(prod(shape) + 1, dtype=np.int64)
        np.cumsum(np.bincount(cell, minlength=prod(shape)), out=starts[1:])
        _, wide, deep = shape
        steps = product(range(-LAYERS, LAYERS + 1), repeat=2)
        runs = np.array([(dx * wide + dy) * deep - LAYERS for dx, dy in steps])
        return cls(cell, order, starts, runs)


RUN = 2 * LAYERS + 1  # cells of a run


@dataclass(frozen=True)
class Tally:
    """Sums over the pairs of a rank that are within the cutoff, and how many these are."""

    energy: float = 0.0
    virial: float = 0.0
    pairs: int = 0


PAIRS = 8192  # of a piece of the forces: what is computed of it stays in the cache


class Kernel:
    """Local. Lists by SciPy's trees, and forces by NumPy, a piece of the pairs at a time. Positions
    and forces are arrays of shape (3, n), own atoms first, then ghosts."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._work = np.empty((4, PAIRS))
        self._near = np.empty(PAIRS, dtype=bool)

    def build(self, x: NDArray[Any], own: int, low: NDArray[Any], high: NDArray[Any]) -> None:
        """Local. New lists; own atoms are between ``low`` and ``high``."""
        tree = KDTree(x.T)
        pairs = tree.query_pairs(self.problem.reach, output_type="ndarray")
        first, second = pairs.T  # first < second
        order = np.argsort(first[first < own], kind="stable")
        first, second = first[first < own][order], second[first < own][order]
        dx, dy, dz = x[:, second] - x[:, first]
        above = (dz > 0) | ((dz == 0) & ((dy > 0) | ((dy == 0) & (dx > 0))))
        kept = (second < own) | above
        self._pairs = np.stack([first[kept], second[kept]])
        self._apart = np.empty((AXES, self._pairs.shape[1]))

    def forces(self, x: NDArray[Any], f: NDArray[Any], own: int, tally: bool) -> Tally:
        """Local. Write the forces on own atoms and on ghosts; the sums are zero if not wanted."""
        energy, virial, pairs = 0.0, 0.0, 0
        count = self._pairs.shape[1]
        for start in range(0, count, PAIRS):
            stop = min(start + PAIRS, count)
            squares, sixths = self._piece(x, start, stop)
            if tally:
                near = self._near[: stop - start]
                energy += float(np.sum(sixths * (sixths - 1.0), where=near))
                pairs += int(np.count_nonzero(near))
                weights = self._work[0, : stop - start]
                virial += float(np.sum(weights * squares, where=near))
        first, second = self._pairs
        for out, apart in zip(f, self._apart, strict=True):
            out[:] = np.bincount(first, apart, len(out))
            out -= np.bincount(second, apart, len(out))
        return Tally(4.0 * self.problem.epsilon * energy, virial, pairs)

    def _piece(self, x: NDArray[Any], start: int, stop: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Local. The forces of some pairs, into ``_apart``; squared distances, and (s/r)**6."""
        sigma_squared = self.problem.sigma**2
        first, second = self._pairs[0, start:stop], self._pairs[1, start:stop]
        weights, squares, sixths, ratios = self._work[:, : stop - start]
        for axis in range(AXES):
            apart = self._apart[axis, start:stop]
            np.take(x[axis], first, out=apart, mode="clip")
            np.take(x[axis], second, out=weights, mode="clip")
            np.subtract(apart, weights, out=apart)
            if axis == 0:
                np.multiply(apart, apart, out=squares)
            else:
                np.multiply(apart, apart, out=weights)
                np.add(squares, weights, out=squares)
        near = self._near[: stop - start]
        np.less(squares, self.problem.cutoff**2, out=near)
        np.divide(sigma_squared, squares, out=ratios)
        np.multiply(ratios, ratios, out=sixths)
        np.multiply(sixths, ratios, out=sixths)
        np.subtract(sixths, 0.5, out=weights)
        np.multiply(weights, sixths, out=weights)
        np.multiply(weights, ratios, out=weights)
        np.multiply(weights, 48.0 * self.problem.epsilon / sigma_squared, out=weights)
        np.multiply(weights, near, out=weights)
        for axis in range(AXES):
            apart = self._apart[axis, start:stop]
            np.multiply(apart, weights, out=apart)
        return squares, sixths


def load(problem: Problem) -> Kernel:
    """Local. The loops that Numba compiles where it is installed, else NumPy's."""
    if find_spec("numba") is None:
        return Kernel(problem)
    made: Kernel = import_module("onesided.apps.miniapps.minimd_compiled").Compiled(problem)
    return made
