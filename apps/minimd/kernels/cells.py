"""Atoms sorted into cells, so that those near an atom are found in a few runs of the order.

Cells are half as long as the lists reach, or a little longer, and two layers of them around a
rank's part hold its ghosts: what is near an atom is in 25 runs of five cells.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
