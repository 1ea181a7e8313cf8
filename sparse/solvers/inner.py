"""A solver as the preconditioner of another one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from onesided.sparse.linear import Linear
from onesided.sparse.solvers.solution import Solution


class Inner:
    """M r by some iterations of a solver, from zero: another map for each r, so for ``fgmres``.

    Made by :func:`inner`.
    """

    hermitian = False

    def __init__(
        self, A: Linear, solver: Callable[..., Solution[Any]], how: dict[str, Any]
    ) -> None:
        """Local."""
        self._A, self._solver, self._how = A, solver, how

    def apply(self, r: NDArray[Any], out: NDArray[Any]) -> None:
        """Collective. out = M r."""
        out[:] = self._solver(self._A, r, **self._how).x


def inner(A: Linear, solver: Callable[..., Solution[Any]], **how: Any) -> Inner:
    """Local. A preconditioner that solves A x = r by ``solver(A, r, **how)``, as far as told.

    As in ``fgmres(A, b, M=inner(A, cg, maxiter=5))``. ``how`` is the same on every rank.

    Examples
    --------
    >>> A = diags(comm, [-1, 2, -1], [-1, 0, 1], shape=(8, 8))
    >>> b = A @ np.ones(A.col_range[1] - A.col_range[0])
    >>> found = fgmres(A, b, rtol=1e-8, M=inner(A, cg, rtol=0.1))
    >>> bool(np.allclose(found.x, 1, atol=1e-3))
    True
    >>> A.Free()
    """
    return Inner(A, solver, how)
