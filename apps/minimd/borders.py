"""Which atoms are ghosts of which rank: six swaps, along one axis after the other.

Along the second axis a rank sends on what it has got along the first one, and so on, so that edges
and corners need no messages of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.apps.minimd.atoms import Atoms
from onesided.apps.minimd.axis import HIGH, LOW, SIDES, Axis, Counts


@dataclass(frozen=True)
class Border:
    """The swaps along one axis: for each side the atoms that are sent, and where ghosts come."""

    axis: Axis
    leaving: tuple[NDArray[np.int64], NDArray[np.int64]]
    ghosts: tuple[slice, slice]

    @property
    def sent(self) -> Counts:
        """Local. Atoms that leave, to the lower and the higher neighbor."""
        return self.leaving[LOW].size, self.leaving[HIGH].size

    @property
    def received(self) -> Counts:
        """Local. Ghosts that come from them."""
        low, high = self.ghosts
        return low.stop - low.start, high.stop - high.start


def find_borders(
    atoms: Atoms, axes: Sequence[Axis], low: NDArray[Any], high: NDArray[Any], reach: float
) -> list[Border]:
    """Collective. Give all ranks the ghosts within ``reach`` of their part, and remember whose
    they are."""
    atoms.drop_ghosts()
    borders = []
    for axis in axes:
        at = atoms.x[axis.number, : atoms.total]
        leaving = (
            np.flatnonzero(at < low[axis.number] + reach),
            np.flatnonzero(at >= high[axis.number] - reach),
        )
        positions = [atoms.x[:, which] for which in leaving]
        for side in SIDES:
            positions[side][axis.number] += axis.shifts[side]
        coming = axis.swap((positions[LOW], positions[HIGH]))
        ghosts = atoms.add_ghosts(coming[LOW]), atoms.add_ghosts(coming[HIGH])
        borders.append(Border(axis, leaving, ghosts))
    return borders
