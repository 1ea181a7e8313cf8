"""What solvers ask of a preconditioner, and what they take for one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from onesided.sparse.linear import Linear
from onesided.sparse.matrix import DistMatrix


class Preconditioner(Protocol):
    """An approximation M of the inverse of a matrix.

    Examples
    --------
    >>> A = diags(comm, [-1, 2, -1], [-1, 0, 1], shape=(8, 8))
    >>> class Half(Preconditioner):
    ...     def apply(self, r, out):
    ...         out[:] = r / 2
    >>> A.Free()
    """

    def apply(self, r: NDArray[Any], out: NDArray[Any]) -> None:
        """out = M r, for this rank's blocks, which do not overlap; says if it is Collective.

        A preconditioner that knows not to be Hermitian has an attribute ``hermitian`` that is
        False, and is refused by the methods that need one.
        """


def preconditioner(M: Any, A: Linear) -> Preconditioner | None:
    """Local. What a solver's ``M=`` stands for, for the square map A.

    None; what has ``apply(r, out)``; a function of this rank's block of r, which returns that of
    M r; a :class:`Linear`; a LinearOperator of SciPy's on this rank's blocks. A function and a
    Linear may be Collective. ``TypeError`` for anything else, ``ValueError`` for another shape.
    """
    if isinstance(M, type):
        raise TypeError(f"M is the class {M.__name__}; what it makes of a matrix is needed")
    if M is None or callable(getattr(M, "apply", None)):
        made_of = getattr(M, "matrix", None)
        if isinstance(made_of, DistMatrix) and made_of.row_range != A.row_range:
            raise ValueError(f"M is made of {made_of!r}, whose rows are not those of the matrix")
        return M  # type: ignore[no-any-return]
    if isinstance(M, Linear):
        if M.col_range != A.row_range or M.row_range != A.col_range:
            raise ValueError(f"M is {M!r}, whose rows and columns are not those of the matrix")
        return Function(M.dot, M)
    if callable(getattr(M, "matvec", None)):
        length = A.row_range[1] - A.row_range[0]
        if tuple(M.shape) != (length, length):
            raise ValueError(
                f"M has shape {M.shape}; an operator of SciPy's takes this rank's block of "
                f"{length} entries"
            )
        return Function(M.matvec) if length else Function(lambda r: r)
    if callable(M):
        return Function(M)
    raise TypeError(
        f"M is {M!r:.80}, which has no apply(r, out), and is no function, Linear or LinearOperator"
    )


class Function:
    """The preconditioner that a function is: it takes a block, and returns one. ``map``: whose
    product it is."""

    def __init__(self, function: Callable[[NDArray[Any]], Any], map: Linear | None = None) -> None:
        """Local."""
        self._function, self.map = function, map
        if map is not None:
            self.dtype = map.dtype

    def apply(self, r: NDArray[Any], out: NDArray[Any]) -> None:
        """As the function. out = M r. ``TypeError`` for a complex M r of a real r."""
        np.copyto(out, self._function(r), casting="same_kind")


class OfMatrix(ABC):
    """A preconditioner made of a matrix, and made anew when the matrix has other values.

    Solvers call ``refresh`` when they begin.
    """

    @property
    def dtype(self) -> np.dtype[Any]:
        """Local. That of M's entries: M r is complex where it is."""
        return self.matrix.dtype

    def __init__(self, A: DistMatrix) -> None:
        """Collective. Errors as of ``_build``."""
        self.matrix, self._version = A, -1
        self.refresh()

    def refresh(self) -> None:
        """Collective. Build again if :meth:`.DistMatrix.set_values` or a scaling came between."""
        if self._version != self.matrix.version:
            with np.errstate(all="ignore"):  # of the caller; else one rank might raise alone
                self._build()
            self._version = self.matrix.version

    @abstractmethod
    def _build(self) -> None:
        """Collective. What ``apply`` needs of the matrix as it is."""

    @abstractmethod
    def apply(self, r: NDArray[Any], out: NDArray[Any]) -> None:
        """out = M r."""


class OfOneKind(OfMatrix):
    """One that multiplies vectors of one dtype, which ``_build`` tells: others are cast to it, and
    a real M takes a complex r in two parts."""

    _kind: np.dtype[Any]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Local. That of the vectors it multiplies."""
        return self._kind

    def apply(self, r: NDArray[Any], out: NDArray[Any]) -> None:
        """out = M r, which is allocated before it is copied."""
        if r.dtype.kind == "c" and self._kind.kind != "c":
            out.real = self._times(np.ascontiguousarray(r.real, self._kind))
            out.imag = self._times(np.ascontiguousarray(r.imag, self._kind))
        else:
            out[:] = self._times(np.ascontiguousarray(r, self._kind))

    @abstractmethod
    def _times(self, r: NDArray[Any]) -> NDArray[Any]:
        """M r, for a contiguous r of that dtype; good until the next call."""
