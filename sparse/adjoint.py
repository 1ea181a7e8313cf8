"""The transpose and the adjoint of a distributed matrix: its own rows used the other way round.

What a rank's rows add to its ghosts is sent to the owners, by a halo backwards, while what they
add to its own columns is computed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from onesided.sparse.halo import ReverseHalo
from onesided.sparse.kernels.rows import Csr
from onesided.sparse.linear import Linear
from onesided.sparse.product import Kernel


class TransposedProduct:
    """y = A.T x: first what goes to ghosts, which leaves at once, then what stays. Copies the rows.

    The copy is sorted by columns, so that every entry of the result is written once.
    """

    def __init__(self, rows: Csr, make: Callable[[Csr], Kernel]) -> None:
        n_own, n_rows = rows.n_own, len(rows)
        by_column = rows.as_scipy().tocsc()
        indptr, indices, data = by_column.indptr, by_column.indices, by_column.data
        cut = int(indptr[n_own])
        self._own = make(Csr(n_rows, n_rows, indptr[: n_own + 1], indices[:cut], data[:cut]))
        beyond = indptr[n_own:] - indptr.dtype.type(cut)
        self._ghost = make(Csr(n_rows, n_rows, beyond, indices[cut:], data[cut:]))

    def __call__(self, halo: ReverseHalo, x: NDArray[Any], y: NDArray[Any]) -> None:
        """Multiply; x and y are contiguous, as the halo's dtype and k say, and do not overlap."""
        halo.request.check_start()  # before what is on its way is overwritten
        self._ghost(x, halo.ghosts)
        halo.start()
        self._own(x, y)
        halo.finish(y)


class Adjoint(Linear):
    """A.T, A.H, or the conjugate of A (``A.T.H``), without entries of its own.

    ``x`` of ``A.T @ x`` has the partition of A's rows, the result that of its columns. The first
    transposed product copies the local rows and plans the way back of the ghosts: it takes longer.
    Freed with the matrix.
    """

    def __init__(self, matrix: Any, transposed: bool, conjugated: bool) -> None:
        """Local. Of a DistMatrix, whose module imports this one."""
        self.matrix, self.transposed, self.conjugated = matrix, transposed, conjugated
        rows, columns = matrix.row_partition, matrix.col_partition
        self.dtype = matrix.dtype
        self._view: Callable[[bool, bool], Linear] = matrix.view
        self._lay_out(matrix.comm, *((columns, rows) if transposed else (rows, columns)))
        self._conjugate: NDArray[Any] = np.empty(0, self.dtype)

    @property
    def T(self) -> Linear:
        """Local. The transpose of this."""
        return self._view(not self.transposed, self.conjugated)

    @property
    def H(self) -> Linear:
        """Local. The adjoint of this."""
        return self._view(not self.transposed, not self.conjugated)

    def promoted(self, dtype: np.dtype[Any]) -> Linear:
        """Collective. The same view of the promoted matrix."""
        wide: Any = self.matrix.promoted(dtype)
        return self if wide is self.matrix else wide.view(self.transposed, self.conjugated)

    def _times(self, other: Linear) -> Any:
        return self.matrix.times(other, self.transposed, self.conjugated)

    def local_rows(self) -> sparse.csr_array:
        """Collective. This rank's rows with global columns; they are brought for the purpose."""
        whose = self.matrix
        rows: sparse.csr_array = whose.transposed_rows() if self.transposed else whose.local_rows()
        if self.conjugated:
            np.conjugate(rows.data, out=rows.data)
        return rows

    def copy(self) -> Any:
        """Collective. A :class:`DistMatrix` with these entries."""
        return self.matrix.derived(self.local_rows(), self.row_partition, self.col_partition)

    def __repr__(self) -> str:
        kind = {(True, False): "transpose", (True, True): "adjoint"}
        name = kind.get((self.transposed, self.conjugated), "conjugate")
        return f"<the {name} of {self.matrix!r}>"

    @property
    def freed(self) -> bool:
        """Local. True after ``Free`` of the matrix."""
        return bool(self.matrix.freed)

    def multiply(self, x: NDArray[Any], y: NDArray[Any]) -> None:
        """Collective. y = A.T x, conj(A.T conj(x)) or conj(A conj(x)); nothing is checked."""
        product = self.matrix.multiply_transposed if self.transposed else self.matrix.multiply
        if not self.conjugated:
            product(x, y)
            return
        if self._conjugate.shape != x.shape:
            self._conjugate = np.empty(x.shape, self.dtype)
        product(np.conjugate(x, out=self._conjugate), y)
        np.conjugate(y, out=y)
