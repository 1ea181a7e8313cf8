"""What a solver gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from onesided.sparse.vector import DistVector

#: What a right-hand side is, and the solution then.
V = TypeVar("V", NDArray[Any], DistVector)

CONVERGED = "converged"
LEAST_SQUARES = f"{CONVERGED}: least squares"
LIMIT = "iteration limit"
BREAKDOWN = "breakdown"


@dataclass(frozen=True, eq=False)
class Solution(Generic[V]):
    """How a run of a solver ended; the same on every rank but for ``x``, its block.

    ``x`` is what ``b`` was: a NumPy block, or a DistVector. ``residuals[k]`` is the norm of the
    residual after k iterations as the method's recurrence has it, ``residuals[0]`` that of the
    first guess. ``true_residual`` is norm(b - A x) of this x, computed anew at the end: no run is
    called converged before that has been seen to be small enough; ``relative_residual`` is that
    divided by ``size``, which is norm(b); in both b is what is left where a null space is taken
    away. ``reason``: "converged", "iteration limit: " and what to try, or "breakdown: " and what
    broke down.

    Of several right-hand sides ``columns`` has a Solution each; then ``converged`` says whether all
    are, ``iterations`` is the largest number, ``reason`` that of the first that is not converged,
    and the residuals have one column for each, the last one repeated where a run ended early.

    Examples
    --------
    >>> with diags(comm, [-1, 2, -1], [-1, 0, 1], shape=(8, 8)) as A:
    ...     b = A @ np.ones(A.col_range[1] - A.col_range[0])
    ...     found = cg(A, b, rtol=1e-10)
    ...     found.converged, bool(found.relative_residual < 1e-10)
    (True, True)
    """

    x: V
    converged: bool
    iterations: int
    residuals: NDArray[np.float64]
    reason: str
    true_residual: Any
    size: Any = 0.0
    columns: tuple[Solution[V], ...] = ()

    @property
    def relative_residual(self) -> Any:
        """Local. norm(b - A x) / norm(b); zero where both are."""
        size = np.asarray(self.size)
        return (self.true_residual / np.where(size > 0, size, 1.0))[()]


@dataclass(frozen=True, eq=False)
class Eigenpairs:
    """Some eigenpairs; the same on every rank but for ``vectors``.

    ``values`` in the order that was asked for; ``vectors``: this rank's block, (n, k), of
    orthonormal vectors, or a DistVector; ``residuals``: norm(A x - value x) of each, computed with
    these vectors; ``reason`` as of :class:`Solution`.

    Examples
    --------
    >>> with diags(comm, [-1, 2, -1], [-1, 0, 1], shape=(8, 8)) as A:
    ...     found = lobpcg(A, 2, rtol=1e-6)
    ...     found.values.shape, found.converged
    ((2,), True)
    """

    values: NDArray[Any]
    vectors: Any
    converged: bool
    iterations: int
    residuals: NDArray[np.float64]
    reason: str
