"""What a kernel does: it makes the neighbor lists of a rank, and computes forces from them.

Every pair of atoms is in one list of one rank (Newton's third law): pairs of own atoms once, and a
pair of an own atom and a ghost on the rank whose atom is the lower one, by z, then y, then x.
There is one kernel of NumPy, and one that Numba compiles (the extra ``md``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
    def of(
        cls, x: NDArray[Any], own: int, low: NDArray[Any], high: NDArray[Any], reach: float
    ) -> Cells:
        """Local. Sort atoms; own ones are between ``low`` and ``high``, but for rounding, and never
        in the layers of ghosts: the runs around them stay inside."""
        inside = np.maximum(1, np.floor((high - low) * (LAYERS / reach)).astype(np.int64))
        shape = tuple(int(count) + 2 * LAYERS for count in inside)
        edge = (high - low) / inside
        cell = np.zeros(x.shape[1], dtype=np.int64)
        for axis, count in enumerate(shape):
            at = np.floor((x[axis] - low[axis]) / edge[axis]).astype(np.int64) + LAYERS
            np.clip(at[:own], LAYERS, count - LAYERS - 1, out=at[:own])
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


SPARE = 1.2  # room for so many times the pairs that there are


class Compiled(Kernel):
    """Local. Lists and forces by compiled loops."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._second = np.zeros(0, dtype=np.int64)
        self._starts = np.zeros(1, dtype=np.int64)
        self._sums = np.zeros(3)

    def build(self, x: NDArray[Any], own: int, low: NDArray[Any], high: NDArray[Any]) -> None:
        cells = Cells.of(x, own, low, high, self.problem.reach)
        if self._starts.size != own + 1:
            self._starts = np.zeros(own + 1, dtype=np.int64)
        parts = (cells.cell, cells.order, cells.starts, cells.runs, self.problem.reach**2)
        count = _lists(x, own, *parts, self._starts, self._second)
        if count > self._second.size:
            self._second = np.zeros(int(SPARE * count), dtype=np.int64)
            _lists(x, own, *parts, self._starts, self._second)

    def forces(self, x: NDArray[Any], f: NDArray[Any], own: int, tally: bool) -> Tally:
        f[:] = 0.0
        cutoff, sigma, epsilon = self.problem.cutoff, self.problem.sigma, self.problem.epsilon
        _forces(
            x, f, own, self._starts, self._second, cutoff**2, sigma**2, epsilon, tally, self._sums
        )
        energy, virial, pairs = self._sums.tolist()
        return Tally(4.0 * epsilon * energy, virial, int(pairs))


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Local. The function, compiled when it is first called where Numba is installed; kept on disk
    where there is a place for it."""
    if find_spec("numba") is None:
        return function
    import numba

    options = {"nogil": True, "error_model": "numpy"}
    try:
        made: Callable[..., Any] = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no folder that can be written
        made = numba.njit(**options)(function)
    return made


@_compiled
def _lists(
    x: Any, own: int, cell: Any, order: Any, cells: Any, runs: Any, reach_squared: float,
    starts: Any, second: Any,
) -> int:  # fmt: skip
    """The pairs of own atoms by the first; those for which there is no room are only counted."""
    count = 0
    room = second.size
    for i in range(own):
        starts[i] = count
        for run in runs:
            begin = cell[i] + run
            for place in range(cells[begin], cells[begin + RUN]):
                j = order[place]
                if j < own and j <= i:
                    continue
                dx = x[0, j] - x[0, i]
                dy = x[1, j] - x[1, i]
                dz = x[2, j] - x[2, i]
                if j >= own and not (dz > 0 or (dz == 0 and (dy > 0 or (dy == 0 and dx > 0)))):
                    continue
                if dx * dx + dy * dy + dz * dz <= reach_squared:
                    if count < room:
                        second[count] = j
                    count += 1
    starts[own] = count
    return count


@_compiled
def _forces(
    x: Any, f: Any, own: int, starts: Any, second: Any, cutoff_squared: float,
    sigma_squared: float, epsilon: float, tally: bool, sums: Any,
) -> None:  # fmt: skip
    energy, virial, pairs = 0.0, 0.0, 0
    scale = 48.0 * epsilon / sigma_squared
    for i in range(own):
        xi, yi, zi = x[0, i], x[1, i], x[2, i]
        fx, fy, fz = 0.0, 0.0, 0.0
        for place in range(starts[i], starts[i + 1]):
            j = second[place]
            dx, dy, dz = xi - x[0, j], yi - x[1, j], zi - x[2, j]
            square = dx * dx + dy * dy + dz * dz
            if square < cutoff_squared:
                ratio = sigma_squared / square
                sixth = ratio * ratio * ratio
                weight = scale * sixth * (sixth - 0.5) * ratio
                fx += weight * dx
                fy += weight * dy
                fz += weight * dz
                f[0, j] -= weight * dx
                f[1, j] -= weight * dy
                f[2, j] -= weight * dz
                if tally:
                    energy += sixth * (sixth - 1.0)
                    virial += weight * square
                    pairs += 1
        f[0, i] += fx
        f[1, i] += fy
        f[2, i] += fz
    sums[0], sums[1], sums[2] = energy, virial, pairs


def load(problem: Problem) -> Kernel:
    """Local. The loops that Numba compiles where it is installed, else NumPy's."""
    return Kernel(problem) if find_spec("numba") is None else Compiled(problem)
