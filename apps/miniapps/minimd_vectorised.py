"""Lists and forces by NumPy: a piece of the atoms, and of the pairs, at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.apps.miniapps.minimd_kernels import RUN, Cells, Kernel, Tally
from onesided.apps.miniapps.minimd_problem import AXES, Problem

ATOMS = 128  # of a piece of the lists, some 300 candidates each
PAIRS = 8192  # of a piece of the forces: what is computed of it stays in the cache
SPARE = 1.1  # room for so many times the pairs that there are


class Vectorised(Kernel):
    """Local."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._pairs = np.zeros((2, 0), dtype=np.intp)
        self._count = 0
        self._apart = np.empty((AXES, 0))
        self._firsts = np.zeros(0, dtype=np.intp)
        self._rows = np.zeros(0, dtype=np.intp)
        self._work = np.empty((4, PAIRS))
        self._near = np.empty(PAIRS, dtype=bool)

    def build(
        self, x: NDArray[Any], own: int, total: int, low: NDArray[Any], high: NDArray[Any]
    ) -> None:
        """Local."""
        cells = Cells.of(x, total, low, high, self.reach)
        ordered = np.ascontiguousarray(x[:, cells.order])
        self._count = 0
        for start in range(0, own, ATOMS):
            first, second = self._near_pairs(
                x, ordered, cells, own, np.arange(start, min(start + ATOMS, own))
            )
            self._reserve(self._count + first.size, start / own)
            self._pairs[0, self._count : self._count + first.size] = first
            self._pairs[1, self._count : self._count + first.size] = second
            self._count += first.size
        lower = self._pairs[0, : self._count]
        self._firsts = np.flatnonzero(np.diff(lower, prepend=-1))
        self._rows = lower[self._firsts]

    def _near_pairs(
        self,
        x: NDArray[Any],
        ordered: NDArray[Any],
        cells: Cells,
        own: int,
        atoms: NDArray[np.int64],
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Local. The lists of some own atoms: pairs, by the first of the two."""
        begin = cells.cell[atoms][:, None] + cells.runs
        starts = cells.starts[begin].ravel()
        counts = cells.starts[begin + RUN].ravel() - starts
        stops = np.cumsum(counts)
        where = np.arange(int(stops[-1])) + np.repeat(starts - stops + counts, counts)
        first = np.repeat(atoms, counts.reshape(atoms.size, -1).sum(axis=1))
        apart = ordered[:, where] - x[:, first]
        near = np.flatnonzero(np.einsum("an,an->n", apart, apart) <= self.reach**2)
        first, second, apart = first[near], cells.order[where[near]], apart[:, near]
        dx, dy, dz = apart
        above = (dz > 0) | ((dz == 0) & ((dy > 0) | ((dy == 0) & (dx > 0))))
        kept = np.where(second < own, second > first, above)
        return first[kept], second[kept]

    def _reserve(self, count: int, done: float) -> None:
        """Local. Room for so many pairs; ``done``: the part of the atoms that have lists."""
        if count <= self._pairs.shape[1]:
            return
        room = int(SPARE * count / max(done, 0.1)) + PAIRS
        pairs = np.zeros((2, room), dtype=np.intp)
        pairs[:, : self._count] = self._pairs[:, : self._count]
        self._pairs, self._apart = pairs, np.empty((AXES, room))

    def forces(
        self, x: NDArray[Any], f: NDArray[Any], own: int, total: int, tally: bool
    ) -> Tally:
        """Local."""
        energy, virial, pairs = 0.0, 0.0, 0
        for start in range(0, self._count, PAIRS):
            stop = min(start + PAIRS, self._count)
            squares, sixths = self._piece(x, start, stop)
            if tally:
                near = self._near[: stop - start]
                energy += float(np.sum(sixths * (sixths - 1.0), where=near))
                pairs += int(np.count_nonzero(near))
                weights = self._work[0, : stop - start]
                virial += float(np.sum(weights * squares, where=near))
        second = self._pairs[1, : self._count]
        for axis in range(AXES):
            apart = self._apart[axis, : self._count]
            np.negative(np.bincount(second, apart, minlength=total), out=f[axis, :total])
            if self._rows.size:
                f[axis, self._rows] += np.add.reduceat(apart, self._firsts)
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
