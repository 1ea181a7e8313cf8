"""What a solver gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

CONVERGED = "converged"
LIMIT = "iteration limit"
BREAKDOWN = "breakdown"


@dataclass(frozen=True, eq=False)
class Solution:
    """How a run of a solver ended; the same on every rank but for ``x``, its block.

    ``x`` is what ``b`` was: a NumPy block, or a DistVector. ``residuals[k]`` is the norm of the
    residual after k iterations, ``residuals[0]`` that of the first guess. ``reason``: "converged",
    "iteration limit", or "breakdown: " and what broke down.
    """

    x: Any
    converged: bool
    iterations: int
    residuals: NDArray[np.float64]
    reason: str


@dataclass(frozen=True, eq=False)
class Eigenpair(Solution):
    """An eigenvector ``x`` of norm one and its eigenvalue; residuals are norms of A x - value x."""

    eigenvalue: complex | float
