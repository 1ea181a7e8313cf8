"""The whole field, computed on one rank from the start."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.apps.heat.problem import Problem
from onesided.apps.heat.stencil import settings


def serial(problem: Problem, steps: int) -> NDArray[Any]:
    """Local. The state after so many steps, without blocks, tiles and halos."""
    whole = tuple(slice(0, length) for length in problem.shape)
    old = problem.initial(whole)
    new = old.copy()
    center, factor = problem.weights
    own = (slice(1, -1),) * len(whole)
    with settings():
        for _ in range(steps):
            target = new[own]
            np.multiply(old[own], center, out=target)
            for axis in range(len(whole)):
                for part in (slice(None, -2), slice(2, None)):
                    target += old[(*own[:axis], part, *own[axis + 1 :])]
            target *= factor
            for axis, around in enumerate(problem.periodic):
                if around:
                    layers = np.moveaxis(new, axis, 0)
                    layers[0], layers[-1] = layers[-2], layers[1]
            old, new = new, old
    return old[own]
