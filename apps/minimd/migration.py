"""Atoms that have left the part of their rank move to the rank that they have come to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.apps.minimd.axis import Axis
from onesided.apps.minimd.decomposition import Domain
from onesided.apps.minimd.problem import AXES
from onesided.collectives import Grid


def wrap(x: NDArray[Any], domain: Domain) -> None:
    """Local. Bring positions back into the periodic box."""
    for row, length in zip(x, domain.lengths, strict=True):
        row -= length * np.floor(row / length)
        row[(row < 0.0) | (row >= length)] = 0.0  # tiny negative numbers, or what became of them


def lost(x: NDArray[Any], axes: Sequence[Axis]) -> int:
    """Local. Atoms in the box that belong to no neighbor of this rank, or nowhere."""
    astray = ~np.isfinite(x).all(axis=0)
    for axis in axes:
        steps = axis.steps(np.where(astray, 0.0, x[axis.number]))
        astray |= (steps > 1) & (steps < axis.comm.size - 1)
    return int(np.count_nonzero(astray))


def migrate(state: NDArray[Any], grid: Grid) -> NDArray[Any]:
    """Collective. Columns of atoms in the box; those that belong to this rank."""
    (rest,), x = grid.migrate([state[AXES:].T], state[:AXES].T)
    return np.concatenate([x.T, rest.T])
