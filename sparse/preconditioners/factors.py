"""Factors on one rank, solved by SuperLU."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array


class Factors:
    """SuperLU's factors of a matrix of a certain dtype."""

    def __init__(self, lu: Any, dtype: np.dtype[Any]) -> None:
        self.lu = lu  # a SuperLU
        self._real = dtype.kind != "c"

    @classmethod
    def of_triangle(cls, matrix: Any) -> Factors:
        """Local. Of a triangular matrix: no fill, and a solution is one substitution."""
        from scipy.sparse.linalg import splu  # slow to import

        whole = csc_array(matrix)
        lu = splu(
            whole,
            permc_spec="NATURAL",
            diag_pivot_thresh=0.0,
            relax=1,
            options={"Equil": False},
        )
        return cls(lu, whole.dtype)

    def solve(self, r: NDArray[Any], trans: Literal["N", "T", "H"] = "N") -> NDArray[Any]:
        """Local. A new array; real factors take a complex r in two parts."""
        if self._real and r.dtype.kind == "c":
            real, imaginary = (self.lu.solve(part.copy(), trans) for part in (r.real, r.imag))
            joined: NDArray[Any] = real + 1j * imaginary
            return joined
        solution: NDArray[Any] = self.lu.solve(r, trans)
        return solution
