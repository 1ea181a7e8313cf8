"""What solvers ask of a preconditioner."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

from numpy.typing import NDArray

from onesided.sparse.matrix import DistMatrix


class Preconditioner(Protocol):
    """An approximation M of the inverse of a matrix."""

    def apply(self, r: NDArray[Any], out: NDArray[Any]) -> None:
        """out = M r, for this rank's blocks, which do not overlap; says if it is Collective."""


class OfMatrix(ABC):
    """A preconditioner made of a matrix, and made anew when the matrix has other values.

    Solvers call ``refresh`` when they begin.
    """

    def __init__(self, A: DistMatrix) -> None:
        """Collective. Errors as of ``_build``."""
        self.matrix = A
        self._build()
        self._version = A.version

    def refresh(self) -> None:
        """Collective. Build again if :meth:`.DistMatrix.set_values` or a scaling came between."""
        if self._version != self.matrix.version:
            self._build()
            self._version = self.matrix.version

    @abstractmethod
    def _build(self) -> None:
        """Collective. What ``apply`` needs of the matrix as it is."""

    @abstractmethod
    def apply(self, r: NDArray[Any], out: NDArray[Any]) -> None:
        """out = M r."""
