"""The distributed matrix: rows in contiguous blocks, halos for x, and the products."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

from onesided.collectives import RequestError, agreed
from onesided.collectives.scope import Scoped
from onesided.sparse import stored
from onesided.sparse.adjoint import Adjoint, Transposable, TransposedProduct
from onesided.sparse.contest import Contest, candidates
from onesided.sparse.halo import Halo, HaloPattern, Info, ReverseHalo
from onesided.sparse.kernels.registry import KERNELS
from onesided.sparse.kernels.scipy_calls import Csr, add_product
from onesided.sparse.linear import Linear
from onesided.sparse.operator import BlockOperator, WholeOperator
from onesided.sparse.orderings.ordering import Ordering
from onesided.sparse.partition import Partition, split_columns
from onesided.sparse.product import Product
from onesided.sparse.report import MatrixReport, report

_DTYPES = tuple(np.dtype(kind) for kind in ("f4", "f8", "c8", "c16"))


def vector_dtype(values: np.dtype[Any], wanted: DTypeLike | None) -> np.dtype[Any]:
    """Local. The dtype of a matrix with such values: the wanted one, or theirs, or float64.

    float32, float64, complex64 and complex128 stay; integers and bools become float64. Raises
    ``TypeError`` for other dtypes, and where complex values would have to become real.
    """
    given = np.dtype(wanted) if wanted is not None else values
    if wanted is None and given.kind in "biu":
        given = np.dtype(np.float64)
    if given not in _DTYPES or (values.kind == "c" and given.kind != "c"):
        names = ", ".join(kind.name for kind in _DTYPES)
        raise TypeError(f"values of {values} in a matrix of {given}, which can be {names}")
    return given


class DistMatrix(Transposable, Scoped):
    """A sparse matrix in contiguous blocks of rows, one block a rank.

    ``A @ x`` takes this rank's block of x (``A.col_range``), (n,) or (n, k), and returns its block
    of the result (``A.row_range``). Row and column ranges of a square matrix made by this package
    are equal. ``A.T`` and ``A.H`` multiply in the same way.

    The dtype of matrix, halos and vectors is fixed at creation. An x that can be cast safely is
    cast. A complex x with a real matrix is multiplied as a block of its real and imaginary parts:
    then x must be complex on every rank. Any other x raises ``TypeError``; ``dtype=`` at creation
    avoids that.

    ``comm`` is borrowed and must outlive the matrix. Attributes: ``comm``, ``shape`` (global),
    ``nnz`` (global, entries stored), ``dtype``, ``row_range``, ``col_range``, ``row_partition``,
    ``col_partition``, ``pattern`` (who needs which entries of x), ``halo`` (that of one vector),
    ``method`` (of its request), ``product_name`` ("fused" or "split"), ``kernel_name`` (the local
    product that it uses), ``checked`` (whether products compare their operands on all ranks; may
    be set, to the same value on every rank),
    ``ordering`` (how the caller's numbering was permuted, or None).
    """

    checked = True

    def __init__(
        self,
        comm: MPI.Comm,
        rows: sparse.csr_array,
        row_partition: Partition,
        col_partition: Partition,
        *,
        method: str = "auto",
        info: Info = None,
        dtype: DTypeLike | None = None,
        product: str = "auto",
        kernel: str = "auto",
    ) -> None:
        """Collective. Build from the rows of each rank, CSR with global columns.

        ``product`` names the way to multiply: "fused" waits for the ghosts first, "split"
        multiplies own columns meanwhile. ``kernel`` names the local product: "scipy", "mkl" or
        "mkl-tuned" (where MKL is installed), and on rows sorted by length "scipy-sorted" or
        "mkl-sorted". "auto" measures, in some tenths of a second for a large matrix; results may
        then differ by rounding from run to run. All but "scipy" and "mkl" with "fused" keep
        another copy of the entries.

        Raises the same error on every rank: ``ValueError`` where rows and partitions do not
        fit, ``TypeError`` for the dtype, and the errors of ``Alltoallw_init``.
        """
        with agreed(comm, f"DistMatrix with dtype={dtype}, product={product}, kernel={kernel}"):
            self.dtype = vector_dtype(rows.dtype, dtype)
            _check_rows(comm, rows, row_partition, col_partition)
            products, kernels = candidates(product, kernel)
            columns = split_columns(rows.indices, col_partition, comm.rank)
            data = np.ascontiguousarray(rows.data, self.dtype)
            indptr = rows.indptr.astype(columns.indices.dtype, copy=False)
            local = Csr(columns.n_local, indptr, columns.indices, data)
        self._lay_out(comm, row_partition, col_partition)
        self.nnz = int(comm.allreduce(len(data)))
        self.ordering: Ordering | None = None
        self._freed = False
        self._rows, self._shares = local, False
        self._transposed: TransposedProduct | None = None
        self.pattern = HaloPattern.of(comm, columns, col_partition)
        self._plan(method, info)
        choice = Contest(comm, local, columns.n_own).choose(self.halo, products, kernels)
        self.product_name, self.kernel_name = choice.product, choice.kernel
        self._product = choice.run

    def _plan(self, method: str, info: Info) -> None:
        """Collective. The halo of one vector; those of blocks and of transposes come later."""
        self._method, self._info = method, info
        self._views: dict[tuple[bool, bool], Adjoint] = {}
        self._halos: dict[int, Halo] = {}
        self._reverse_halos: dict[int, ReverseHalo] = {}
        self.halo = self._halo(1)
        self.method = self.halo.request.method

    def with_method(self, method: str = "auto", *, info: Info = None) -> DistMatrix:
        """Collective. This matrix with halos of another method.

        Entries, local products and the ordering are shared, in the same memory: only requests are
        made. Each of the two has its own ``Free``; the ordering goes with this one. Scaling either
        leaves the other as it is. Errors as of ``Alltoallw_init``, and ``RequestError`` where this
        matrix has been freed, on every rank.
        """
        with agreed(self.comm, f"with_method({method!r})"):
            self._check_alive()
        made = copy(self)
        made._shares = True
        made._plan(method, info)
        return made

    # -- products --------------------------------------------------------------------------------

    @property
    def freed(self) -> bool:
        """Local. True after ``Free``."""
        return self._freed

    @property
    def T(self) -> Linear:
        """Local. The transpose; its first product is planned when it is called."""
        return self.view(True, False)

    @property
    def H(self) -> Linear:
        """Local. The adjoint: the transpose of the complex conjugate."""
        return self.view(True, True)

    def view(self, transposed: bool, conjugated: bool) -> Linear:
        """Local. This matrix transposed, conjugated, both, or itself, with the same entries."""
        key = transposed, conjugated and self.dtype.kind == "c"
        if not any(key):
            return self
        if key not in self._views:
            self._views[key] = Adjoint(self, *key)
        return self._views[key]

    def multiply(self, x: NDArray[Any], y: NDArray[Any]) -> None:
        """Collective. y = A x for operands that are known to be right; nothing is checked.

        See :meth:`.Linear.multiply`. A real matrix takes real blocks only.
        """
        k = 1 if x.ndim == 1 else x.shape[1]
        if k == 1:
            x, y = x.reshape(-1), y.reshape(-1)
        self._product(self._halos.get(k) or self._halo(k), x, y)

    @property
    def product(self) -> Product:
        """Local. What multiplies one vector, its ghosts brought by any halo of ``pattern``.

        The entries are shared with this matrix; all ranks call it with halos of the same kind.
        """
        return self._product

    def multiply_transposed(self, x: NDArray[Any], y: NDArray[Any]) -> None:
        """Collective. y = A.T x as :meth:`multiply` does y = A x."""
        k = 1 if x.ndim == 1 else x.shape[1]
        if k == 1:
            x, y = x.reshape(-1), y.reshape(-1)
        if self._transposed is None:
            make = KERNELS[self.kernel_name].make
            self._transposed = TransposedProduct(self._rows, self.pattern.n_own, make)
        self._transposed(self._reverse_halos.get(k) or self._reverse_halo(k), x, y)

    def _halo(self, k: int) -> Halo:
        """Collective. The halo of k vectors, planned now and kept."""
        how: dict[str, Any] = {"method": self._method, "info": self._info}
        self._halos[k] = Halo(self.comm, self.pattern, self.dtype, k, **how)
        return self._halos[k]

    def _reverse_halo(self, k: int) -> ReverseHalo:
        """Collective. The way back of the ghosts of k vectors, planned now and kept."""
        how: dict[str, Any] = {"method": self._method, "info": self._info}
        self._reverse_halos[k] = ReverseHalo(self.comm, self.pattern, self.dtype, k, **how)
        return self._reverse_halos[k]

    def as_linear_operator(self, blocks: bool = False) -> WholeOperator | BlockOperator:
        """Local. A ``scipy.sparse.linalg.LinearOperator``; every use of it is Collective.

        Of whole vectors, the same on every rank, unless ``blocks``: see :class:`.WholeOperator`,
        which is right with SciPy's solvers, and :class:`.BlockOperator`, which is not.
        """
        return BlockOperator(self) if blocks else WholeOperator(self)

    # -- entries ---------------------------------------------------------------------------------

    def local_rows(self) -> sparse.csr_array:
        """Local. This rank's rows with global columns, a copy."""
        self._check_alive()
        return stored.global_rows(self._rows, self.pattern, self.col_partition, self.comm.rank)

    def own_block(self) -> sparse.csr_array:
        """Local. This rank's rows by its own columns, a copy; what ghosts add is left out."""
        self._check_alive()
        return stored.own_columns(self._rows, self.pattern.n_own)

    def diagonal(self) -> NDArray[Any]:
        """Local. The diagonal entries of this rank's rows, zero where none is stored.

        Rows beyond the last column have none: the ranks' blocks together are SciPy's diagonal.
        """
        return stored.diagonal(self.local_rows(), self.row_range[0])

    def report(self) -> MatrixReport:
        """Collective. Rows, nonzeros, ghosts, neighbors, bytes of a product on each rank."""
        product = f"{self.product_name}, {self.kernel_name}"
        return report(self, self.pattern, self.local_rows().nnz, self.method, product)

    def gather(self, root: int = 0) -> sparse.csr_array | None:
        """Collective. The whole matrix on ``root``, None on the other ranks."""
        with agreed(self.comm, f"gather to root={root}"):
            rows = self.local_rows()
            if not 0 <= root < self.comm.size:
                raise ValueError(f"root {root} on {self.comm.size} ranks")
        return stored.gathered(self.comm, rows, root)

    def sum(self, axis: int | None = None) -> Any:
        """Collective. The sum of all entries, or this rank's block of the sums along an axis.

        ``axis=0``: one sum per column (``col_range``), ``axis=1``: one per row (``row_range``).
        The sum of all has the same bits on every rank.
        """
        with agreed(self.comm, f"sum with axis={axis}"):
            self._check_alive()
            if axis not in (None, 0, 1, -1, -2):
                raise ValueError(f"no axis {axis} in a matrix")
        if axis is None:
            parts = self.comm.allgather(self._rows.data.sum())
            return np.array(parts, self.dtype).sum()
        if axis in (0, -2):
            sums = np.empty(self._n_cols, self.dtype)
            self.multiply_transposed(np.ones(self._n_rows, self.dtype), sums)
            return sums
        sums = np.zeros(self._n_rows, self.dtype)
        add_product(self._rows, np.ones(self._rows.n_cols, self.dtype), sums)
        return sums

    def scale(self, factor: complex) -> None:
        """Collective. Multiply all entries by a number, the same on every rank.

        ``TypeError`` on every rank for a complex number with a real matrix.
        """
        with agreed(self.comm, f"scale by {factor!r}"):
            self._check_alive()
            value = self._factors(factor, ())
        self._replace(self._rows.data * value)

    def scale_rows(self, block: NDArray[Any]) -> None:
        """Collective. Multiply row i by entry i of a vector, of which this is the rank's block.

        Raises the same error on every rank where a block does not fit, or is complex and the
        matrix real.
        """
        with agreed(self.comm, "scale_rows"):
            self._check_alive()
            factors = self._factors(block, (self._n_rows,))
        self._replace(self._rows.data * np.repeat(factors, np.diff(self._rows.indptr)))

    def scale_columns(self, block: NDArray[Any]) -> None:
        """Collective. Multiply column j by entry j of a vector, of which this is the rank's block.

        Errors as in :meth:`scale_rows`.
        """
        with agreed(self.comm, "scale_columns"):
            self._check_alive()
            factors = self._factors(block, (self._n_cols,))
        local = self.halo.update(factors)
        self._replace(self._rows.data * local[self._rows.indices])

    def _factors(self, factors: Any, shape: tuple[int, ...]) -> NDArray[Any]:
        array = np.asarray(factors)
        if array.shape != shape:
            raise ValueError(f"factors of shape {array.shape} where {shape} is needed")
        if not np.can_cast(array.dtype, self.dtype, casting="same_kind"):
            raise TypeError(f"factors are {array.dtype}, the matrix {self.dtype}")
        return array.astype(self.dtype)

    def _replace(self, data: NDArray[Any]) -> None:
        """Local. Other values at the same places; the caller's arrays are left alone."""
        self._rows = replace(self._rows, data=data)
        contest = Contest(self.comm, self._rows, self.pattern.n_own)
        self._product = contest.product(self.product_name, self.kernel_name)
        self._transposed = None

    def _check_alive(self) -> None:
        if self._freed:
            raise RequestError("the matrix has been freed")

    def Free(self) -> None:
        """Collective. Free the requests of all halos and of the ordering, if there is one.

        A second time has no effect.
        """
        halos: list[Halo | ReverseHalo] = [*self._halos.values(), *self._reverse_halos.values()]
        for halo in halos:
            halo.Free()
        if self.ordering is not None and not self._shares:
            self.ordering.Free()
        self._freed = True

def _check_rows(
    comm: MPI.Comm, rows: sparse.csr_array, row_partition: Partition, col_partition: Partition
) -> None:
    """Local. Rows and partitions must fit each other and the communicator."""
    for name, partition in (("row", row_partition), ("column", col_partition)):
        if partition.parts != comm.size:
            raise ValueError(f"{name} partition of {partition.parts} parts on {comm.size} ranks")
    start, stop = row_partition.range(comm.rank)
    if rows.shape != (stop - start, col_partition.size):
        raise ValueError(
            f"rows have shape {rows.shape}, the partitions say {(stop - start, col_partition.size)}"
        )
