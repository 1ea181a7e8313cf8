"""Lists by SciPy's trees, and forces by NumPy: a piece of the pairs at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from onesided.apps.miniapps.minimd_kernels import Kernel, Tally
from onesided.apps.miniapps.minimd_problem import AXES, Problem

PAIRS = 8192  # of a piece of the forces: what is computed of it stays in the cache


class Pairs(Kernel):
    """Local."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._pairs = np.zeros((2, 0), dtype=np.intp)
        self._apart = np.empty((AXES, 0))
        self._work = np.empty((4, PAIRS))
        self._near = np.empty(PAIRS, dtype=bool)

    def build(
        self, x: NDArray[Any], own: int, total: int, low: NDArray[Any], high: NDArray[Any]
    ) -> None:
        """Local."""
        tree = KDTree(x[:, :total].T)
        first, second = tree.query_pairs(self.reach, output_type="ndarray").T  # first < second
        order = np.argsort(first[first < own], kind="stable")
        first, second = first[first < own][order], second[first < own][order]
        dx, dy, dz = x[:, second] - x[:, first]
        above = (dz > 0) | ((dz == 0) & ((dy > 0) | ((dy == 0) & (dx > 0))))
        kept = (second < own) | above
        self._pairs = np.stack([first[kept], second[kept]])
        self._apart = np.empty((AXES, self._pairs.shape[1]))

    def forces(
        self, x: NDArray[Any], f: NDArray[Any], own: int, total: int, tally: bool
    ) -> Tally:
        """Local."""
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
            out[:total] = np.bincount(first, apart, total)
            out[:total] -= np.bincount(second, apart, total)
        return Tally(4.0 * self.epsilon * energy, virial, pairs)

    def _piece(self, x: NDArray[Any], start: int, stop: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Local. The forces of some pairs, into ``_apart``; squared distances, and (s/r)**6."""
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
        np.less(squares, self.cutoff_squared, out=near)
        np.divide(self.sigma_squared, squares, out=ratios)
        np.multiply(ratios, ratios, out=sixths)
        np.multiply(sixths, ratios, out=sixths)
        np.subtract(sixths, 0.5, out=weights)
        np.multiply(weights, sixths, out=weights)
        np.multiply(weights, ratios, out=weights)
        np.multiply(weights, 48.0 * self.epsilon / self.sigma_squared, out=weights)
        np.multiply(weights, near, out=weights)
        for axis in range(AXES):
            apart = self._apart[axis, start:stop]
            np.multiply(apart, weights, out=apart)
        return squares, sixths
