"""Lists and forces by loops that Numba compiles (the extra ``md``)."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from onesided.apps.miniapps.minimd_atoms import Problem
from onesided.apps.miniapps.minimd_kernels import RUN, Cells, Kernel, Tally

SPARE = 1.2  # room for so many times the pairs that there are


class Compiled(Kernel):
    """Local. The loops are compiled when they are first called, and kept on disk."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._second = np.zeros(0, dtype=np.int64)
        self._starts = np.zeros(1, dtype=np.int64)
        self._sums = np.zeros(3)

    def build(self, x: NDArray[Any], own: int, low: NDArray[Any], high: NDArray[Any]) -> None:
        cells = Cells.of(x, low, high, self.problem.reach)
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


def _list_loops(
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


def _force_loops(
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


def _compiled(function: Any) -> Any:
    """Local. The function when it is called; kept on disk where there is a place for it."""
    options = {"nogil": True, "error_model": "numpy"}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no folder that can be written
        return numba.njit(**options)(function)


_lists = _compiled(_list_loops)
_forces = _compiled(_force_loops)
