"""The distributed matrix: rows in contiguous blocks, a halo for x, and the product."""

from __future__ import annotations

from time import perf_counter
from types import TracebackType
from typing import Any, Self

import numpy as np
from mpi4py import MPI
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

from onesided.collectives import RequestError, agreed
from onesided.sparse.halo import Halo, Info
from onesided.sparse.partition import Partition, split_columns
from onesided.sparse.product import PRODUCTS, LocalRows, Product

_DTYPES = tuple(np.dtype(kind) for kind in ("f4", "f8", "c8", "c16"))
_TRIALS = 5
_TRIAL_SECONDS = 0.2  # what measuring the products may take, about


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


class DistMatrix:
    """A sparse matrix in contiguous blocks of rows, one block a rank.

    ``A @ x`` takes this rank's block of x (``A.col_range``) and returns its block of the result
    (``A.row_range``). Row and column ranges of a square matrix made by this package are equal.

    The dtype of matrix, halo and vectors is fixed at creation. An x that can be cast safely is
    cast. A complex x with a real matrix is multiplied as SciPy does it, in two products (real
    and imaginary part): then x must be complex on every rank. Any other x raises ``TypeError``;
    ``dtype=`` at creation avoids that.

    ``comm`` is borrowed and must outlive the matrix. Attributes: ``comm``, ``shape`` (global),
    ``nnz`` (global, entries stored), ``dtype``, ``row_range``, ``col_range``, ``row_partition``,
    ``col_partition``, ``halo``, ``method`` (of the halo's request), ``product_name`` ("fused"
    or "split").
    """

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
    ) -> None:
        """Collective. Build from the rows of each rank, CSR with global columns.

        ``product`` names the way to multiply: "fused", "split", or "auto", which measures both.
        Raises the same error on every rank: ``ValueError`` where rows and partitions do not
        fit, ``TypeError`` for the dtype, and the errors of ``Alltoallw_init``.
        """
        with agreed(comm, f"DistMatrix with dtype={dtype}, product={product}"):
            self.dtype = vector_dtype(rows.dtype, dtype)
            _check_rows(comm, rows, row_partition, col_partition)
            if product not in (*PRODUCTS, "auto"):
                raise ValueError(f"no product {product!r}; there are auto, {', '.join(PRODUCTS)}")
            columns = split_columns(rows.indices, col_partition, comm.rank)
            data = np.ascontiguousarray(rows.data, self.dtype)
            indptr = rows.indptr.astype(columns.indices.dtype, copy=False)
            local = LocalRows(indptr, columns.indices, data, columns.n_own, columns.n_local)
        self.comm = comm
        self.shape = (row_partition.size, col_partition.size)
        self.nnz = int(comm.allreduce(len(data)))
        self.row_partition, self.col_partition = row_partition, col_partition
        self.row_range = row_partition.range(comm.rank)
        self.col_range = col_partition.range(comm.rank)
        self._n_rows, self._n_cols = len(local), columns.n_own
        self._freed = False
        self.halo = Halo(comm, columns, col_partition, self.dtype, method=method, info=info)
        self.method = self.halo.request.method
        self.product_name, self._product = self._chosen(local, product)

    def _chosen(self, local: LocalRows, name: str) -> tuple[str, Product]:
        """Collective. The product of that name, or the one whose slowest rank is the fastest."""
        if name in PRODUCTS:
            return name, PRODUCTS[name](local)
        candidates = {key: kind(local) for key, kind in PRODUCTS.items()}
        x, y = np.zeros(self._n_cols, self.dtype), np.empty(self._n_rows, self.dtype)
        times = np.array([self._seconds(product, x, y, 1) for product in candidates.values()])
        self.comm.Allreduce(MPI.IN_PLACE, times, op=MPI.MAX)
        rounds = int(np.clip(_TRIAL_SECONDS / _TRIALS / max(times.sum(), 1e-9), 1, 20))
        samples = np.array(
            [
                [self._seconds(product, x, y, rounds) for product in candidates.values()]
                for _ in range(_TRIALS)
            ]
        )
        self.comm.Allreduce(MPI.IN_PLACE, samples, op=MPI.MAX)
        best = list(candidates)[int(np.argmin(np.median(samples, axis=0)))]
        return best, candidates[best]

    def _seconds(self, product: Product, x: NDArray[Any], y: NDArray[Any], rounds: int) -> float:
        began = perf_counter()
        for _ in range(rounds):
            product(self.halo, x, y)
        return perf_counter() - began

    def __matmul__(self, x: NDArray[Any]) -> NDArray[Any]:
        """Collective. This rank's block of A x; see :meth:`dot`."""
        return self.dot(x)

    def dot(self, x: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Collective. Multiply: x is this rank's block, the result its block of A x.

        ``out`` (contiguous, of the result's dtype) is filled and returned if given; it may be x.
        Raises, on this rank alone, ``ValueError`` for a wrong length, ``TypeError`` for a wrong
        dtype, ``RequestError`` after ``Free``.
        """
        if self._freed:
            raise RequestError("the matrix has been freed")
        x = np.asarray(x)
        if x.shape != (self._n_cols,):
            raise ValueError(
                f"x has shape {x.shape}, rank {self.comm.rank} owns the {self._n_cols} "
                f"columns {self.col_range[0]}:{self.col_range[1]}"
            )
        if x.dtype.kind == "c" and self.dtype.kind != "c":
            return self._dot_complex(x, out)
        if x.dtype != self.dtype or not x.flags.c_contiguous:
            x = self._cast(x, self.dtype)
        y = self._result(out, self.dtype)
        if out is not None and np.may_share_memory(x, out):
            x = x.copy()
        self._product(self.halo, x, y)
        return y

    def _dot_complex(self, x: NDArray[Any], out: NDArray[Any] | None) -> NDArray[Any]:
        """A complex x and a real matrix: real and imaginary part, one after the other."""
        parts = np.result_type(self.dtype, np.complex64)
        x = self._cast(x, parts)
        y = self._result(out, parts)
        real, imag = (np.empty(self._n_rows, self.dtype) for _ in range(2))
        self._product(self.halo, np.ascontiguousarray(x.real), real)
        self._product(self.halo, np.ascontiguousarray(x.imag), imag)
        y.real, y.imag = real, imag
        return y

    def _cast(self, x: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
        if not np.can_cast(x.dtype, dtype):
            raise TypeError(
                f"x is {x.dtype} and the matrix {self.dtype}: create the matrix with dtype="
                f"'{np.result_type(x.dtype, self.dtype)}', or cast x"
            )
        return np.ascontiguousarray(x, dtype)

    def _result(self, out: NDArray[Any] | None, dtype: np.dtype[Any]) -> NDArray[Any]:
        if out is None:
            return np.empty(self._n_rows, dtype)
        if out.shape != (self._n_rows,) or out.dtype != dtype or not out.flags.c_contiguous:
            raise ValueError(
                f"out must be contiguous, of shape ({self._n_rows},) and {dtype}; it has shape "
                f"{out.shape}, strides {out.strides} and is {out.dtype}"
            )
        if not out.flags.writeable:
            raise ValueError("out is read-only")
        return out

    def Free(self) -> None:
        """Collective. Free the halo's request; a second time has no effect."""
        self.halo.Free()
        self._freed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Collective on normal exit; after an exception nothing collective is called."""
        if kind is None:
            self.Free()


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
