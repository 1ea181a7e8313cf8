"""The heat equation u_t = alpha laplace(u) and its explicit difference scheme, without MPI.

A grid of the same spacing h along all axes; its longest edge has the length 1. Along a periodic
axis n points have n spacings, between walls n + 1: the walls are points of temperature 0 that are
not counted. The Euler step with second-order differences

    u' = u + r (sum of the 2 d neighbors - 2 d u),    r = alpha dt / h**2,

is computed as r ((1/r - 2 d) u + neighbors), added axis by axis, the lower neighbor first: in this
order at every point, however the grid is cut, so that all cuts give the same bytes. It is stable
for r <= 1 / (2 d).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

PERIODIC = "periodic"
FRACTION = 0.9  # of the largest stable time step
#: Hot spots: the place as a part of every edge, the width, and the temperature of the middle. The
#: wide one keeps all others from numbers so small that processors are slow with them.
SPOTS = (
    ((0.50, 0.50, 0.50), 0.300, 0.15),
    ((0.25, 0.30, 0.50), 0.050, 1.00),
    ((0.70, 0.65, 0.45), 0.080, 0.85),
    ((0.30, 0.75, 0.60), 0.030, 0.95),
    ((0.75, 0.20, 0.35), 0.040, 0.70),
    ((0.02, 0.50, 0.50), 0.060, 0.60),
    ((0.52, 0.98, 0.52), 0.055, 0.90),
)


@dataclass(frozen=True)
class Problem:
    """A grid with its boundaries, the numbers of the scheme, and the state at the start.

    ``periodic`` has an entry per axis. ``dt`` None: nine tenths of the largest stable one.
    """

    shape: tuple[int, ...]
    periodic: tuple[bool, ...]
    dtype: np.dtype[Any]
    alpha: float = 1.0
    peak: float = 1.0
    dt: float | None = None

    @property
    def spacing(self) -> float:
        """Local. Between two points."""
        pairs = zip(self.shape, self.periodic, strict=True)
        return 1.0 / max(count if around else count + 1 for count, around in pairs)

    @property
    def stable_dt(self) -> float:
        """Local. The largest stable time step."""
        return self.spacing**2 / (2 * len(self.shape) * self.alpha)

    @property
    def step(self) -> float:
        """Local. The time step."""
        return FRACTION * self.stable_dt if self.dt is None else self.dt

    @property
    def weights(self) -> tuple[Any, Any]:
        """Local. 1/r - 2 d and r, as numbers of the dtype."""
        r = self.alpha * self.step / self.spacing**2
        return self.dtype.type(1.0 / r - 2 * len(self.shape)), self.dtype.type(r)

    @property
    def lengths(self) -> tuple[float, ...]:
        """Local. Of the edges."""
        pairs = zip(self.shape, self.periodic, strict=True)
        return tuple((n if around else n + 1) * self.spacing for n, around in pairs)

    def initial(self, box: Sequence[slice]) -> NDArray[Any]:
        """Local. The state at the start of the points in ``box``, with a layer of ghosts around.

        ``box`` counts the points without ghosts. Ghosts are the points across a periodic
        boundary, or 0.
        """
        state = np.zeros([part.stop - part.start + 2 for part in box], self.dtype)
        for place, width, height in SPOTS:
            factors = [
                self._bell(axis, place[axis], width)[part.start : part.stop + 2]
                for axis, part in enumerate(box)
            ]
            factors[0] = factors[0] * (height * self.peak)
            with np.errstate(over="ignore", under="ignore"):
                state += reduce(np.multiply.outer, factors).astype(self.dtype)
        return state

    def _bell(self, axis: int, place: float, width: float) -> NDArray[Any]:
        """A spot along one axis, for all its points and a ghost at both ends."""
        count, length = self.shape[axis], self.lengths[axis]
        if self.periodic[axis]:
            x = np.arange(count) * self.spacing - place * length
            x -= length * np.round(x / length)
            bell: NDArray[Any] = np.exp(-((x / width) ** 2))
            return bell.take(range(-1, count + 1), mode="wrap")
        x = np.arange(1, count + 1) * self.spacing - place * length
        return np.pad(np.exp(-((x / width) ** 2)), 1)
