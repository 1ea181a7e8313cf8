"""What a solver gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

CONVERGED = "converged"
LEAST_SQUARES = f"{CONVERGED}: least squares"
LIMIT = "iteration limit"
BREAKDOWN = "breakdown"


@dataclass(frozen=True, eq=False)
class Solution:
    """How a run of a solver ended; the same on every rank but for ``x``, its block.

    ``x`` is what ``b`` was: a NumPy block, or a DistVector. ``residuals[k]`` is the norm of the
    residual after k iterations as the method's recurrence has it, ``residuals[0]`` that of the
    first guess. ``true_residual`` is norm(b - A x) of this x, computed anew at the end: no run is
    called converged before that has been seen to be small enough. ``reason``: "converged",
    "iteration limit", or "breakdown: " and what broke down.

    Of several right-hand sides ``columns`` has a Solution each; then ``converged`` says whether all
    are, ``iterations`` is the largest number, ``reason`` that of the first that is not converged,
    and the residuals have one column for each, the last one repeated where a run ended early.
    """

    x: Any
    converged: bool
    iterations: int
    residuals: NDArray[np.float64]
    reason: str
    true_residual: Any
    columns: tuple[Solution, ...] = ()


@dataclass(frozen=True, eq=False, kw_only=True)
class Eigenpair(Solution):
    """An eigenvector ``x`` of norm one and its eigenvalue; residuals are norms of A x - value x.

    ``true_residual`` is the last of them.
    """

    eigenvalue: complex | float
