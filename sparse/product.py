"""Two ways to multiply the rows of one rank: all at once after the halo, or the rows that need no
ghosts while the halo is under way. Both take vectors and blocks of k of them. Where rows are
multiplied by what is compiled, the second is a script: one call. And the transpose: rows used the
other way round, what they add to ghosts sent to the owners by a halo backwards.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from onesided.collectives.scripts import Answer, Ends, Part, Place, Step, Work, script
from onesided.sparse.halo import Ghosts, Halo, ReverseHalo, shaped
from onesided.sparse.kernels.rows import Csr, address_of


class Kernel(Protocol):
    """y = A x with rows that were given before; they do not change as long as it lives."""

    def __call__(self, x: NDArray[Any], y: NDArray[Any], /) -> None:
        """Local. Both are contiguous, of the rows' dtype, (n,) or (n, k), and do not overlap.

        x is [owned | ghost].
        """


class Product(ABC):
    """y = A x for the rows of this rank."""

    def __init__(self, kernel: Any, rows: Csr) -> None:
        self.kernel, self.rows = kernel, rows

    @abstractmethod
    def __call__(self, halo: Ghosts, x: NDArray[Any], y: NDArray[Any]) -> None:
        """Multiply; x and y are contiguous, as the halo's dtype and k say, and do not overlap."""

    def steps(self, halo: Halo, x: Place, y: Place, end: int) -> list[Step] | None:
        """Local. The same as steps of a script, in which the ghosts are the end of this number;
        None where that is not possible."""
        return None


class FusedProduct(Product):
    """One product over [owned | ghost], once the ghosts have come.

    x is copied to such a vector, which is kept for each k, while they are coming; then they are.
    """

    def __init__(self, kernel: Kernel, rows: Csr) -> None:
        super().__init__(kernel, rows)
        self._local: dict[tuple[int, ...], NDArray[Any]] = {}

    def __call__(self, halo: Ghosts, x: NDArray[Any], y: NDArray[Any]) -> None:
        shape, n_own = (self.rows.n_cols, *x.shape[1:]), self.rows.n_own
        if shape not in self._local:
            self._local[shape] = np.empty(shape, self.rows.data.dtype)
        local = self._local[shape]
        halo.start(x)
        local[:n_own] = x
        local[n_own:] = halo.finish()
        self.kernel(local, y)


class SplitProduct(Product):
    """The interior rows while the halo is under way, then the boundary rows. x is not copied.

    The kernel has ``interior(x, y)``, of the rows that need no ghosts; x is what is owned. Of the
    others: ``boundary(x, ghosts, y)``. Both are Local.
    """

    def __call__(self, halo: Ghosts, x: NDArray[Any], y: NDArray[Any]) -> None:
        halo.start(x)
        self.kernel.interior(x, y)
        self.kernel.boundary(x, halo.finish(), y)


class CompiledProduct(SplitProduct):
    """The same by a kernel whose C functions can be steps: all of a product is one call."""

    def steps(self, halo: Halo, x: Place, y: Place, end: int) -> list[Step] | None:
        of: dict[str, Any] = {"number": halo.k, "handle": id(self.kernel), "keep": self.kernel}
        # 4 bytes an entry: as many as a product without steps has to have give up the lock
        nbytes = 4 * len(self.rows.data) * halo.k
        interior = Work((x, y), address_of("interior"), nbytes=nbytes, **of)
        boundary = Work((x, Part(end), y), address_of("boundary"), **of)
        return [*halo.sending(x), interior, Answer(halo.request.Wait, end), boundary]


def program(product: Product, halo: Halo) -> Callable[[Ends], object]:
    """Local. What is called with (x, y) for y = A x, with the ghosts of this halo."""
    steps = product.steps(halo, Part(0), Part(1), 2)
    if steps is None:
        return lambda ends: product(halo, *ends)
    rows = product.rows
    own, result = (np.empty(shaped(n, halo.k), rows.data.dtype) for n in (rows.n_own, len(rows)))
    return script(steps, (own, result, halo.request.recvbuf))


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
