"""What solvers ask of a preconditioner."""

from __future__ import annotations

from typing import Any, Protocol

from numpy.typing import NDArray


class Preconditioner(Protocol):
    """An approximation M of the inverse of a matrix."""

    def apply(self, r: NDArray[Any], out: NDArray[Any]) -> None:
        """out = M r, for this rank's blocks, which do not overlap; says if it is Collective."""
