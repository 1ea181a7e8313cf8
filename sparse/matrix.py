"""The distributed matrix: rows in contiguous blocks, halos for x, and the products."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

from onesided.collectives import RequestError, agreed
from onesided.collectives.agreement import largest
from onesided.collectives.context import Scoped
from onesided.collectives.scripts import Ends, Place, Step
from onesided.sparse import stored
from onesided.sparse.alike import (
    changed_block,
    common_dtype,
    entries_dtype,
    plain,
    row_numbers,
    spelled,
    values_dtype,
    vector_dtype,
)
from onesided.sparse.halo import Halo, HaloPattern, Info, ReverseHalo
from onesided.sparse.kernels.registry import KERNELS, check, product, usual
from onesided.sparse.kernels.rows import Csr, add_product, compiled
from onesided.sparse.linear import Adjoint, Linear, columns_of_product, whose
from onesided.sparse.moving import Route, everywhere, of_all
from onesided.sparse.ordering import Ordering, same_ordering
from onesided.sparse.partition import Partition
from onesided.sparse.product import TransposedProduct, program
from onesided.sparse.report import MatrixReport, report
from onesided.sparse.vector import DistVector


class DistMatrix(Linear, Scoped):
    """A sparse matrix in contiguous blocks of rows, one block a rank.

    ``A @ x`` takes this rank's block of x (``A.col_range``), (n,) or (n, k), and returns its block
    of the result (``A.row_range``). Row and column ranges of a square matrix made by this package
    are equal, unless it is a product of square ones that are shared out in different ways. ``A.T``
    and ``A.H`` multiply in the same way.

    A product has the dtype that NumPy gives it. A complex x with a real matrix is multiplied as a
    block of its real and imaginary parts, an x wider than the matrix by a wider copy of it that is
    made once: then x must be so on every rank; ``dtype=`` at creation avoids the copy.

    With an ``ordering`` all of what is told by rank and row is in the permuted numbering: blocks,
    ``gather``, ``diagonal``, ``A[rows]`` and the whole vectors of ``as_linear_operator``. So are
    the columns of ``A.T.copy()`` where A is not square, also in a file that it is written to. A
    square product of rectangles, the first of which has an ordering, has none: its rows are in
    that numbering, also in a file, and its columns in their own.

    What is made of matrices (``A.copy()``, ``2 * A``, ``A + B``, ``A @ B``, ``A.T @ A``) has the
    method and kernel of A, requests of its own, and is to be freed as A is. ``A *= 2`` changes A
    itself; ``A += B`` makes another matrix, and leaves what A was to be freed.

    ``comm`` is borrowed and must outlive the matrix. Attributes: ``comm``, ``shape`` (global),
    ``nnz`` (global, entries stored), ``dtype``, ``row_range``, ``col_range``, ``row_partition``,
    ``col_partition``, ``pattern`` (who needs which entries of x), ``halo`` (that of one vector),
    ``method`` (of its request), ``kernel_name`` (the local product that it uses), ``version`` (a
    number that changes with the values), ``ordering`` (how the caller's numbering was permuted, or
    None), ``product`` (what multiplies one vector, its ghosts brought by any halo of ``pattern``).

    Examples
    --------
    >>> A = diags(comm, [-1, 2, -1], [-1, 0, 1], shape=(8, 8))
    >>> A.shape, A.nnz
    ((8, 8), 22)
    >>> y = A @ np.ones(A.col_range[1] - A.col_range[0])  # this rank's block
    >>> float(comm.allreduce(y.sum()))
    2.0
    >>> A.Free()
    """

    def __init__(
        self, comm: MPI.Intracomm, rows: sparse.csr_array, row_partition: Partition,
        col_partition: Partition, *, method: str = "auto", info: Info = None,
        dtype: DTypeLike | None = None, kernel: str = "auto",
    ) -> None:  # fmt: skip
        """Collective. Build from the rows of each rank, CSR with global columns, whose memory the
        matrix may use: do not change them (:func:`from_rows` copies).

        ``kernel`` names the local product. The compiled ones multiply rows that need no ghosts
        while these are coming: "csr", rows as they are, which "auto" takes for complex matrices,
        and "sell" (SELL-C-sigma), 8 rows of like lengths at a time, with a copy of the entries,
        which it takes for real ones. "scipy" waits for the ghosts, with a copy of x beside them;
        "auto" takes it where a rank has nothing compiled. The same kernel gives the same bits.

        Raises the same error on every rank: ``ValueError`` where rows and partitions do not
        fit, ``TypeError`` for the dtype, and the errors of ``Alltoallw_init``.
        """
        with agreed(comm, f"DistMatrix with dtype={spelled(dtype)}, kernel={kernel}"):
            for partition in (row_partition, col_partition):
                partition.check_parts(comm.size)
            start, stop = row_partition.range(comm.rank)
            if rows.shape != (stop - start, col_partition.size):
                wanted = stop - start, col_partition.size
                raise ValueError(f"rows have shape {rows.shape}, the partitions say {wanted}")
            check(kernel)
            if not rows.has_canonical_format:
                rows = rows.copy()
                rows.sum_duplicates()
        self.dtype = values_dtype(comm, rows.data, dtype)
        what = f"DistMatrix of partitions {row_partition!r}, {col_partition!r}"
        self.pattern, indices = HaloPattern.of(comm, rows.indices, col_partition, what)
        self._lay_out(comm, row_partition, col_partition)
        self.version = 0
        self.nnz = int(comm.allreduce(rows.nnz))
        self.keep_ordering(None, False)
        self._freed = False
        self._transposed: TransposedProduct | None = None
        self._plan(method, info)
        if kernel == "auto":
            lacks = largest(comm, None, "kernels", [int(not compiled())])[0]
            kernel = "scipy" if lacks else usual(self.dtype)
        with agreed(comm):
            data = np.ascontiguousarray(rows.data, self.dtype)
            indptr = rows.indptr.astype(indices.dtype, copy=False)
            self._rows = Csr(self.pattern.n_local, self.pattern.n_own, indptr, indices, data)
            self.kernel_name, self.product = kernel, product(kernel, self._rows)
            self._programs[1] = program(self.product, self.halo)

    def _plan(self, method: str, info: Info) -> None:
        """Collective. The halo of one vector; those of blocks and of transposes come later."""
        self._how: dict[str, Any] = {"method": method, "info": info}
        self._agreed, self._plain = set(), ()  # of a copy the first product is compared, too
        self._views = {}
        self._promoted: dict[np.dtype[Any], DistMatrix] = {}
        self._halos = {1: Halo(self.comm, self.pattern, self.dtype, **self._how)}
        self._programs: dict[int, Callable[[Ends], object]] = {}
        self.kept = {}
        self._reverse_halos: dict[int, ReverseHalo] = {}
        self.halo = self._halos[1]
        self.method = self.halo.request.method
        self._same: dict[str, Any] = {"method": self.method, "info": info}

    def with_method(self, method: str = "auto", *, info: Info = None) -> DistMatrix:
        """Collective. This matrix with halos of another method.

        Entries, local products and the ordering are shared, in the same memory: only requests are
        made. Each of the two has its own ``Free``. Scaling either leaves the other as it is. Errors
        as of ``Alltoallw_init``, and ``RequestError`` where this matrix has been freed, on every
        rank.
        """
        return self._with(None, method=method, info=info)

    # -- products --------------------------------------------------------------------------------

    @property
    def freed(self) -> bool:
        """Local. True after ``Free``."""
        return self._freed

    def multiply(self, x: Any, y: Any = None) -> Any:
        """Collective. y = A x for operands that are known to be right; nothing is checked.

        See :meth:`.Linear.multiply`. A real matrix takes real blocks only. ``A.multiply(B)``, with
        one argument, is SciPy's: the matrix of the products of entries, at the places that both
        have; B is a matrix of the same partitions, or a number. Errors as of ``A + B``.
        """
        if y is None:
            if not isinstance(x, Linear | DistVector) and np.ndim(x) == 0:
                return self * x
            return self._joined("A.multiply(B)", x, stored.multiplied_entries)
        k = 1
        if x.ndim == 2:
            k = x.shape[1]
            if k == 1:
                x, y = x.reshape(-1), y.reshape(-1)
        (self._programs.get(k) or self._program(k))((x, y))
        return None

    def steps(self, x: Place, y: Place, end: int) -> list[Step] | None:
        """Local, internal. y = A x of one vector as steps of a script, in which the ghosts are the
        end of this number; None where the kernel has none."""
        return self.product.steps(self.halo, x, y, end)

    def multiply_back(self, x: NDArray[Any], y: NDArray[Any]) -> None:
        """Collective. y = A.T x as :meth:`multiply` does y = A x."""
        k = 1 if x.ndim == 1 else x.shape[1]
        if k == 1:
            x, y = x.reshape(-1), y.reshape(-1)
        if self._transposed is None:
            with agreed(self.comm):
                made = TransposedProduct(self._rows, KERNELS[self.kernel_name].make)
            self._transposed = made
        halo = self._reverse_halos.get(k)
        if halo is None:
            halo = ReverseHalo(self.comm, self.pattern, self.dtype, k, **self._how)
            self._reverse_halos[k] = halo
        self._transposed(halo, x, y)

    def _program(self, k: int) -> Callable[[Ends], object]:
        """Collective. The product of k vectors as one call, planned now and kept, as its halo."""
        if k not in self._halos:
            self._halos[k] = Halo(self.comm, self.pattern, self.dtype, k, **self._how)
        with agreed(self.comm):
            made = program(self.product, self._halos[k])
        return self._programs.setdefault(k, made)

    def as_linear_operator(self) -> Any:
        """Local. A ``scipy.sparse.linalg.LinearOperator`` of whole vectors, the same on every rank;
        every use of it is Collective: ranks multiply their rows, and gather the blocks of y.

        Every solver of ``scipy.sparse.linalg`` that takes a LinearOperator is right with it, as the
        dot products of a rank are those of the whole vectors. All ranks call it together and must
        decide alike, so they need the same start: give ``eigsh``, ``eigs`` and ``svds`` a ``v0``,
        ``lobpcg`` its block, and seed what draws random numbers. Ranks whose processors round in
        different ways may stop after different numbers of iterations, and wait for ever.
        """
        from scipy.sparse.linalg import LinearOperator  # slow to import

        def whole(map: Linear) -> Callable[[Any], NDArray[Any]]:
            def multiply(x: Any) -> NDArray[Any]:
                y = map.dot(np.asarray(x)[slice(*map.col_range)])
                return everywhere(map.comm, map.row_partition, y)

            return multiply

        there, back = whole(self), whole(self.H)
        return LinearOperator(self.shape, there, back, there, self.dtype, back)

    def promoted(self, dtype: np.dtype[Any]) -> Linear:
        """Collective, internal. This matrix for vectors of a wider dtype; it is freed with it."""
        kind = entries_dtype(self.dtype, dtype)
        if kind == self.dtype:
            return self
        if kind not in self._promoted:
            self._promoted[kind] = self.astype(kind)
        return self._promoted[kind]

    # -- matrices of matrices --------------------------------------------------------------------

    def copy(self) -> DistMatrix:
        """Collective. The same entries in memory of their own; halos of its own, same pattern."""
        return self._with(np.copy)

    def astype(self, dtype: DTypeLike) -> DistMatrix:
        """Collective. A copy of another dtype; ``TypeError`` on every rank where it cannot be."""
        with agreed(self.comm, f"astype({spelled(dtype)})"):
            kind = vector_dtype(self.dtype, np.dtype(dtype))
        return self._with(lambda data: data.astype(kind))

    def __mul__(self, factor: Any) -> DistMatrix:
        """Collective. All entries times a number, the same on every rank; see :meth:`scale`."""
        return self._by_number(factor, lambda data: data * factor)

    __rmul__ = __mul__

    def __truediv__(self, divisor: Any) -> DistMatrix:
        """Collective. All entries divided by a number."""
        return self._by_number(divisor, lambda data: data / divisor)

    def __imul__(self, factor: Any) -> DistMatrix:
        """Collective. As :meth:`scale`; requests and what was planned stay."""
        self.scale(factor)
        return self

    def __itruediv__(self, divisor: Any) -> DistMatrix:
        """Collective. The entries of this matrix itself divided by a number."""
        with self._together(f"divided by {plain(divisor)!r}"):
            data = self._rows.data / self._factors(divisor, ())
        self._replace(data)
        return self

    def __neg__(self) -> DistMatrix:
        """Collective. All entries with the other sign."""
        return self._with(np.negative)

    def __add__(self, other: Any) -> DistMatrix:
        """Collective. The sum of two matrices of the same partitions, on the places of both."""
        return self._joined("A + B", other, stored.added)

    def __sub__(self, other: Any) -> DistMatrix:
        """Collective. The difference of two matrices of the same partitions."""
        return self._joined("A - B", other, lambda a, b: stored.added(a, -b))

    def shifted(self, value: complex) -> DistMatrix:
        """Collective. A + value I; every place of the diagonal is stored. A square matrix only."""
        with self._together(f"shifted({plain(value)!r})"):
            if self.shape[0] != self.shape[1]:
                raise ValueError(f"A + s I needs a square matrix; this one is {self.shape}")
            rows = stored.shifted(self.local_rows(), value, self.row_range[0])
        return self.derived(rows, self.row_partition, self.col_partition)

    def times(self, other: Linear, transposed: bool, conjugated: bool) -> DistMatrix:
        """Collective, internal. A B, A.T B, A.H B or conj(A) B, with B's rows brought, or results
        sent.

        Raises the same error on every rank: ``TypeError`` where B has no entries, ``ValueError``
        where shapes or orders do not fit, or for A.T B the partitions of the rows.
        """
        inner = self.row_partition if transposed else self.col_partition
        with self._together("the product of two matrices"):
            if not isinstance(whose(other), DistMatrix):
                super().times(other, transposed, conjugated)
            if inner.size != other.shape[0]:
                mine = self.shape[::-1] if transposed else self.shape
                raise ValueError(f"the product of matrices of shapes {mine} and {other.shape}")
            same = np.array_equal(inner.starts, other.row_partition.starts)
            if transposed and not same:
                raise ValueError(
                    f"A.T @ B needs the same partition of rows: {inner.starts.tolist()} and "
                    f"{other.row_partition.starts.tolist()}"
                )
            self._check_order("A @ B", other, transposed)
            turned = isinstance(other, Adjoint) and other.transposed and not transposed
            if turned and self.shape[0] == other.shape[1] != inner.size:
                self._check_same_order("A @ B.T", whose(other))
        b, pattern, a = other.local_rows(), self.pattern, self.local()
        if conjugated:
            a = a.conj(copy=False)
        own = self.col_partition if transposed else self.row_partition
        across = columns_of_product(own, other)
        if transposed:
            rows = stored.transposed_product(self.comm, a, pattern, b)
            return self.derived(rows, own, across)
        if not same:
            wide = self.local_rows()
            pattern, columns = HaloPattern.of(self.comm, wide.indices, other.row_partition)
            parts = a.data, columns, a.indptr
            a = sparse.csr_array(parts, shape=(self._n_rows, pattern.n_local))
        made = self.derived(stored.product(self.comm, a, pattern, b), own, across)
        if turned and made.ordering is None and np.array_equal(own.starts, across.starts):
            apart = not same_ordering(self.ordering, whose(other).ordering)  # whose they are
            if not largest(self.comm, None, "orders", [int(apart)])[0]:
                made.keep_ordering(self.ordering, self.ordered and whose(other).ordered)
        return made

    def galerkin(self, P: DistMatrix) -> DistMatrix:
        """Collective. P.H A P, without the matrix A P: the matrix of a coarser space whose vectors
        the columns of P are. ``ValueError`` on every rank where P's rows are not A's columns."""
        with self._together("galerkin"):
            self.check_square("P.H A P")
            if not np.array_equal(P.row_partition.starts, self.col_partition.starts):
                raise ValueError(f"P.H A P with matrices of shapes {P.shape} and {self.shape}")
            self._check_order("P.H A P", P, False)
        image = stored.product(self.comm, self.local(), self.pattern, P.local_rows(), False)
        left = P.local().conj(copy=False)
        rows = stored.transposed_product(self.comm, left, P.pattern, image)
        return self.derived(rows, P.col_partition, P.col_partition)

    def _check_order(self, what: str, other: Linear, by_rows: bool) -> None:
        """Local. ``ValueError`` where what meets in a product is known to be in two orders: rows
        and columns of a square matrix, and rows of another one that has an ordering."""
        owner = whose(other)
        sides = (self, by_rows), (owner, owner is other)
        if all(m.shape[0] == m.shape[1] or (rows and m.ordering) for m, rows in sides):
            self._check_same_order(what, owner)

    def _check_same_order(self, what: str, other: DistMatrix) -> None:
        """Local. ``ValueError`` where rows of both are in orders that are known and differ."""
        known = self.ordered and other.ordered
        if known and not same_ordering(self.ordering, other.ordering):
            raise ValueError(f"{what} of matrices whose rows are in different orders")

    def transposed_rows(self) -> sparse.csr_array:
        """Collective, internal. This rank's rows of A.T, with global columns."""
        start, n_rows = self.row_range[0], self.shape[0]
        return stored.transposed(self.comm, self.local(), self.pattern, start, n_rows)

    def keep_ordering(self, ordering: Ordering | None, known: bool = True) -> None:
        """Local. The rows are numbered in this way, or None: as the caller does, if that is
        ``known``. The last matrix of an ordering frees it."""
        self.ordering, self.ordered = ordering, known
        if ordering is not None:
            ordering.matrices += 1

    def derived(
        self, rows: sparse.csr_array, own: Partition, columns: Partition, ordered: bool = True
    ) -> DistMatrix:
        """Collective, internal. A matrix of these rows and partitions, made as this one was.

        It has the ordering where rows, and columns of a square matrix, are numbered as here,
        if ``ordered``.
        """
        made = DistMatrix(self.comm, rows, own, columns, **self._same, kernel=self.kernel_name)
        alike = np.array_equal(own.starts, self.row_partition.starts)
        square = own.size == columns.size
        if ordered and alike and (not square or self.shape[0] == self.shape[1]):
            made.keep_ordering(self.ordering, self.ordered)
        return made

    def _with(self, values: Callable[[Any], NDArray[Any]] | None, **how: Any) -> DistMatrix:
        """Collective. A matrix of the same pattern, with values made of these, or these themselves;
        only requests and kernels are made."""
        with self._together(("a matrix of the same pattern", how.get("method"))):
            made = copy(self)
            data = self._rows.data if values is None else values(self._rows.data)
            made.dtype = data.dtype
        made._plan(**(how or self._same))
        made.keep_ordering(self.ordering, self.ordered)
        if values is not None:
            made.version = 0
            made._replace(data)
        return made

    def _by_number(self, number: Any, values: Callable[[NDArray[Any]], NDArray[Any]]) -> DistMatrix:
        with agreed(self.comm, f"a matrix by {plain(number)!r}"):
            kind = np.asarray(float(number) if isinstance(number, int) else number).dtype
            if np.ndim(number) or kind.kind not in "biufc":
                raise TypeError(
                    f"A * s and A / s take a number, not {type(number).__name__}; vectors and "
                    "matrices are multiplied by A @ x, rows by A.scale_rows"
                )
            common_dtype("the number", kind, self.dtype)
        return self._with(values)

    def _joined(
        self, what: str, other: Any, join: Callable[[sparse.csr_array, sparse.csr_array], Any]
    ) -> DistMatrix:
        """Collective. What two matrices of the same partitions are by their rows."""
        with self._together(what):
            owner = whose(other)
            if not isinstance(owner, DistMatrix):
                hint = "; A.shifted(s) is A + s I" if np.isscalar(other) else ""
                raise TypeError(f"{what} takes a DistMatrix, not {type(other).__name__}{hint}")
            for name in ("row", "col"):
                mine, theirs = (getattr(m, f"{name}_partition").starts for m in (self, other))
                if not np.array_equal(mine, theirs):
                    raise ValueError(
                        f"{what} of matrices of shapes {self.shape} and {other.shape}, with "
                        f"{name} partitions {mine.tolist()} and {theirs.tolist()}"
                    )
            square = self.shape[0] == self.shape[1]  # else its rows are another's columns
            if owner is other or square:
                self._check_same_order(what, owner)
        theirs = other.local_rows()
        with agreed(self.comm):
            rows = sparse.csr_array(join(self.local_rows(), theirs))
        return self.derived(rows, self.row_partition, self.col_partition)

    def __repr__(self) -> str:
        start, stop = self.row_range
        return (
            f"<DistMatrix of {self.shape}, {self.nnz} entries, {self.dtype}, rows {start}:{stop} "
            f"on rank {self.comm.rank} of {self.comm.size}>"
        )

    # -- entries ---------------------------------------------------------------------------------

    def __getitem__(self, rows: Any) -> sparse.csr_array:
        """Collective. Whole rows by their global numbers, from wherever they are, as SciPy's CSR.

        Each rank asks for what it wants: a number, a slice, or an array of numbers, in any order;
        none is ``A[[]]``. ``A[rows, cols]`` takes these columns of them, every one of the rows with
        every one of the columns. ``IndexError`` on every rank for a number that is out of range.
        """
        cols: Any = None
        with self._together("A[rows]"):
            if isinstance(rows, tuple):
                if len(rows) != 2:
                    raise TypeError(f"A[rows, cols] takes two, not {len(rows)}")
                rows, cols = rows[0], row_numbers(rows[1], self.shape[1], "column")
            wanted = row_numbers(rows, self.shape[0])
        found = stored.fetched(self.comm, wanted, self.row_partition, self.local_rows())
        return found if cols is None else sparse.csr_array(found[:, cols])

    @property
    def values(self) -> NDArray[Any]:
        """Local. The entries of this rank in the order of :meth:`local_rows`, not to be written."""
        view = self._rows.data.view()
        view.flags.writeable = False
        return view

    def set_values(self, values: Any) -> None:
        """Collective. Other values at the same places: halo, partitions and choices are kept.

        ``values``: this rank's, in the order of :meth:`local_rows`; or such rows, with
        the same places. They are copied. Preconditioners of this matrix are made anew at the start
        of the next solver that uses them. Raises the same error on every rank: ``ValueError`` where
        lengths or places differ, ``TypeError`` where they are complex and the matrix real.
        """
        with self._together("set_values"):
            if sparse.issparse(values):
                rows: Any = values
                mine, given = self.local_rows(), sparse.csr_array(rows)
                if mine.shape != given.shape or not (
                    np.array_equal(mine.indptr, given.indptr)
                    and np.array_equal(mine.indices, given.indices)
                ):
                    raise ValueError("the rows have entries at other places than the matrix")
                values = given.data
            data = self._factors(values, self._rows.data.shape)
        self._replace(data)

    def norm(self, ord: Any = "fro") -> float:
        """Collective. "fro" (Frobenius), 1, inf, or "max", the largest absolute value.

        The same bits on every rank. The Frobenius norm is scaled: it neither overflows nor
        vanishes before the result does. ``ValueError`` for another ``ord``.
        """
        with self._together(f"norm({ord!r})"):
            if ord not in ("fro", "max", 1, np.inf):
                raise ValueError(f"norm of order {ord!r}; there are 'fro', 1, inf and 'max'")
        return stored.norm(self.comm, self._rows, self.pattern, ord)

    def local_rows(self) -> sparse.csr_array:
        """Local. This rank's rows with global columns, a copy."""
        self._check_alive()
        return stored.global_rows(self._rows, self.pattern, self.col_partition, self.comm.rank)

    def local(self) -> sparse.csr_array:
        """Local. This rank's rows with columns [owned | ghost], in the memory of the matrix; their
        values are not to be written."""
        self._check_alive()
        return self._rows.as_scipy()

    def own_block(self) -> sparse.csr_array:
        """Local. This rank's rows by its own columns, a copy; what ghosts add is left out."""
        return sparse.csr_array(self.local()[:, : self.pattern.n_own])

    def diagonal(self) -> NDArray[Any]:
        """Local. The diagonal entries of this rank's rows, zero where none is stored.

        Rows beyond the last column have none: the ranks' blocks together are SciPy's diagonal.
        """
        if self.row_range == self.col_range:
            return np.asarray(self.local().diagonal())
        return np.asarray(self.local_rows().diagonal(self.row_range[0]))

    def report(self) -> MatrixReport:
        """Collective. Rows, nonzeros, ghosts, neighbors, bytes of a product on each rank."""
        return report(self)

    def gather(self, root: int = 0) -> sparse.csr_array | None:
        """Collective. The whole matrix on ``root``, None on the other ranks."""
        with agreed(self.comm, f"gather to root={root}"):
            rows = self.local_rows()
            if not 0 <= root < self.comm.size:
                raise ValueError(f"root {root} on {self.comm.size} ranks")
        return stored.gathered(self.comm, rows, root)

    @np.errstate(all="ignore")  # of the caller; else one rank might raise alone
    def sum(self, axis: int | None = None) -> Any:
        """Collective. The sum of all entries, or this rank's block of the sums along an axis.

        ``axis=0``: one sum per column (``col_range``), ``axis=1``: one per row (``row_range``).
        The sum of all has the same bits on every rank.
        """
        with self._together(f"sum with axis={axis}"):
            if axis not in (None, 0, 1, -1, -2):
                raise ValueError(f"no axis {axis} in a matrix")
        if axis is None:
            return of_all(self.comm, self._rows.data.sum(dtype=self.dtype)).sum()
        if axis in (0, -2):
            sums = np.empty(self._n_cols, self.dtype)
            self.multiply_back(np.ones(self._n_rows, self.dtype), sums)
            return sums
        sums = np.zeros(self._n_rows, self.dtype)
        add_product(self._rows, np.ones(self._rows.n_cols, self.dtype), sums)
        return sums

    def scale(self, factor: complex) -> None:
        """Collective. Multiply all entries by a number, the same on every rank.

        ``TypeError`` on every rank for a complex number with a real matrix.
        """
        with self._together(f"scale by {plain(factor)!r}"):
            data = self._rows.data * self._factors(factor, ())
        self._replace(data)

    def scale_rows(self, block: Any) -> None:
        """Collective. Multiply row i by entry i of a vector: a DistVector, or this rank's block.

        Raises the same error on every rank where a block does not fit, or is complex and the
        matrix real.
        """
        with self._together("scale_rows"):
            factors = self._factors(block, (self._n_rows,))
            data = self._rows.data * np.repeat(factors, np.diff(self._rows.indptr))
        self._replace(data)

    def scale_columns(self, block: Any) -> None:
        """Collective. Multiply column j by entry j of a vector: a DistVector, or its block here.

        Errors as in :meth:`scale_rows`.
        """
        with self._together("scale_columns"):
            factors = self._factors(block, (self._n_cols,))
        local = np.concatenate([factors, self.halo.update(factors)])
        with agreed(self.comm):
            data = self._rows.data * local[self._rows.indices]
        self._replace(data)

    def set_diagonal(self, values: Any) -> None:
        """Collective. Other values on the diagonal: a number, or this rank's block of a vector.

        Raises the same error on every rank: ``ValueError`` where a diagonal entry has no place
        (``A.shifted(0)`` has them all), or a length differs, ``TypeError`` where values are complex
        and the matrix real.
        """
        with self._together("set_diagonal"):
            self.check_square("set_diagonal")
            every = np.ones(self._n_rows, np.bool_)
            places = stored.diagonal_places(self._rows, self.row_range[0], every)
            data = self._rows.data.copy()
            number = not isinstance(values, DistVector) and np.ndim(values) == 0
            data[places] = self._factors(values, () if number else (self._n_rows,))
        self._replace(data)

    def zero_rows(
        self, rows: Any, diagonal: complex = 1.0, x: Any = None, b: Any = None,
        *, columns: bool = False,
    ) -> None:  # fmt: skip
        """Collective. Make rows those of ``diagonal`` times the identity, as for boundary values.

        ``rows``: global numbers, of which each rank passes any, as in ``A[rows]``. With this rank's
        blocks of ``x``, whose entries of these rows are the boundary values, and of the right-hand
        side ``b``, which is changed, the solution has these values. With ``columns`` the columns
        are zeroed, too, and what they added goes to b: a Hermitian matrix stays one. All places are
        kept, so the halo is, and assembling again works; AMG keeps such rows off its coarse levels.

        Raises the same error on every rank: ``IndexError`` for a row out of range, ``ValueError``
        where the matrix is not square, a diagonal entry has no place (``A.shifted(0)`` has them
        all), one of x and b is given alone, or a block does not fit, ``TypeError`` where numbers
        are complex and the matrix real.
        """
        with self._together(("zero_rows", plain(diagonal), x is None, b is None, columns)):
            self.check_square("zero_rows")
            wanted = row_numbers(rows, self.shape[0])
            value = self._factors(diagonal, ())
            if (x is None) != (b is None):
                raise ValueError("zero_rows takes x and b together")
            if x is not None:
                known = self._factors(x, (self._n_rows,))
                right = changed_block("b", b, self._n_rows, self.dtype)
        came = Route(self.comm, self.row_partition.owners(wanted)).send(wanted)
        mine = np.zeros(self._n_rows, np.bool_)
        mine[came - self.row_range[0]] = True
        marked = np.concatenate([mine, self.halo.update(mine.astype(self.dtype)) != 0])
        if b is not None and columns:
            known = np.concatenate([known, self.halo.update(known)])
        with agreed(self.comm):
            stored.diagonal_places(self._rows, self.row_range[0], mine)
            data = stored.without(self._rows, marked, value, columns)
            if b is not None:
                lost = stored.lifted(self._rows, marked, known) if columns else np.zeros(len(mine))
                changed = right - lost.astype(right.dtype)
                changed[mine] = value * known[: len(mine)][mine]
        self._replace(data)
        if b is not None:
            right[:] = changed

    def eliminate_zeros(self) -> DistMatrix:
        """Collective. This matrix without the places whose value is zero."""
        with agreed(self.comm, "eliminate_zeros"):
            rows = self.local_rows()
            rows.eliminate_zeros()
        return self.derived(rows, self.row_partition, self.col_partition)

    def _factors(self, factors: Any, shape: tuple[int, ...]) -> NDArray[Any]:
        given = factors.array if isinstance(factors, DistVector) else factors
        array = np.asarray(float(given) if isinstance(given, int) else given)  # int64 is too short
        if array.shape != shape:
            raise ValueError(f"factors of shape {array.shape} where {shape} is needed")
        if not np.can_cast(array.dtype, self.dtype, casting="same_kind"):
            raise TypeError(f"factors are {array.dtype}, the matrix {self.dtype}")
        return array.astype(self.dtype)

    def _replace(self, data: NDArray[Any]) -> None:
        """Collective. Other values at the same places; the caller's arrays are left alone."""
        with agreed(self.comm):
            rows = replace(self._rows, data=data)
            made = product(self.kernel_name, rows)
            programs = {k: program(made, halo) for k, halo in self._halos.items()}
        self._rows, self.product, self._transposed = rows, made, None
        self._programs, self.kept = programs, {}
        self.version += 1
        for kind, wide in self._promoted.items():
            wide._replace(data.astype(kind))

    @contextmanager
    def _together(self, what: object) -> Iterator[None]:
        """Collective. As ``agreed``, of a matrix that has not been freed."""
        with agreed(self.comm, what):
            self._check_alive()
            yield

    def _check_alive(self) -> None:
        if self._freed:
            raise RequestError("the matrix has been freed")

    def Free(self) -> None:
        """Collective. Free the requests of all halos; the last matrix of an ordering frees that.

        A second time has no effect.
        """
        if self._freed:
            return
        halos: list[Halo | ReverseHalo] = [*self._halos.values(), *self._reverse_halos.values()]
        for halo in halos:
            halo.Free()
        for wide in self._promoted.values():
            wide.Free()
        if self.ordering is not None:
            self.ordering.matrices -= 1
            if not self.ordering.matrices:
                self.ordering.Free()
        self.kept = {}
        self._freed = True
