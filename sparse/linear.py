"""What multiplies distributed vectors: a matrix, its transpose, its adjoint, a function.

Everything about operands is here: which are taken, how they are cast, how complex vectors meet a
real matrix, and that one wrong operand on one rank is an error on every rank.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, cast, overload

import numpy as np
from mpi4py import MPI
from numpy.typing import DTypeLike, NDArray

from onesided.collectives import RequestError, agree, agreed
from onesided.collectives.debug import enabled as debugging
from onesided.sparse.alike import common_dtype, entries_dtype, spelled
from onesided.sparse.partition import Partition
from onesided.sparse.vector import DistVector

_WRONG = -1  # the form of an operand that this rank refuses
_ERRORS = (TypeError, ValueError)


class Linear(ABC):
    """A distributed linear map: ``dot``, ``@``, and the partitions of what goes in and comes out.

    Attributes: ``comm``, ``shape`` (global), ``dtype``, ``row_partition``, ``col_partition``,
    ``row_range``, ``col_range``, ``kept`` (what solvers keep for a later call).

    The first product with a form of x (one vector or k of them, real, complex, wider) compares
    what all ranks pass, by one small ``Allreduce``, and raises the same error on every rank; so
    does every product in debug mode (``ONESIDED_DEBUG=1``). Later ones cost nothing but a look at
    the operands of this rank: what is wrong with them raises there, and the others wait for it, as
    do those whose form is known where another rank comes with a new one. The dtype of an empty
    block counts as that of any other. ``multiply`` looks at nothing.

    Examples
    --------
    >>> with diags(comm, [-1, 2, -1], [-1, 0, 1], shape=(8, 8)) as A:
    ...     isinstance(A, Linear)
    True
    """

    __array_ufunc__ = None  # a NumPy array on the left leaves the operation to this class

    comm: MPI.Intracomm
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    row_partition: Partition
    col_partition: Partition
    row_range: tuple[int, int]
    col_range: tuple[int, int]

    def _lay_out(self, comm: MPI.Intracomm, rows: Partition, columns: Partition) -> None:
        """Local. Who owns what of the operands; what a product needs is computed once."""
        self.comm, self.row_partition, self.col_partition = comm, rows, columns
        self.shape = (rows.size, columns.size)
        self.row_range, self.col_range = rows.range(comm.rank), columns.range(comm.rank)
        self._n_rows = self.row_range[1] - self.row_range[0]
        self._n_cols = self.col_range[1] - self.col_range[0]
        self._views: dict[tuple[bool, bool], Adjoint] = {}
        self.kept: dict[Any, Any] = {}
        self._agreed: set[int] = set()  # forms of operands that all ranks have passed together
        self._always = debugging()
        self._plain: tuple[int, ...] = ()  # the shape of one vector, when all have passed one
        self._form = np.zeros(2, np.int64)
        self._form_spec = [self._form, 2, MPI.INT64_T]

    @property
    @abstractmethod
    def freed(self) -> bool:
        """Local. True after ``Free``."""

    @property
    def T(self) -> Linear:
        """Local. The transpose, which shares everything with this; its first product is planned
        when it is called."""
        return self.view(True, False)

    @property
    def H(self) -> Linear:
        """Local. The adjoint: the transpose of the complex conjugate."""
        return self.view(True, True)

    def view(self, transposed: bool, conjugated: bool) -> Linear:
        """Local, internal. This map transposed, conjugated, both, or itself, with the same
        entries."""
        key = transposed, conjugated and self.dtype.kind == "c"
        if not any(key):
            return self
        if key not in self._views:
            self._views[key] = Adjoint(self, *key)
        return self._views[key]

    def check_square(self, who: str) -> None:
        """Local, internal. ``ValueError`` where rows and columns are not alike, in number and
        partition."""
        if self.shape[0] != self.shape[1]:
            raise ValueError(f"{who} needs a square matrix; this one is {self.shape}")
        rows, columns = self.row_partition, self.col_partition
        if rows is not columns and not np.array_equal(rows.starts, columns.starts):
            raise ValueError(
                f"{who} needs a matrix with equal partitions of rows and columns; this one has "
                f"{rows.starts.tolist()} and {columns.starts.tolist()}"
            )

    def promoted(self, dtype: np.dtype[Any]) -> Linear:
        """Collective, internal. This map for vectors of a wider dtype; what that needs is freed
        with it.

        ``TypeError`` where there is none.
        """
        if entries_dtype(self.dtype, dtype) != self.dtype:
            raise TypeError(f"this {type(self).__name__} multiplies {self.dtype} only, not {dtype}")
        return self

    @abstractmethod
    def multiply(self, x: NDArray[Any], y: NDArray[Any]) -> None:
        """Collective. y = A x for operands that are known to be right; nothing is checked.

        Both are contiguous, of the matrix's dtype, (n,) or (n, k) with k > 0, do not overlap, and
        have the same form on every rank. The first product with another k plans a request.
        """

    @overload
    def __matmul__(self, x: DistVector) -> DistVector: ...
    @overload
    def __matmul__(self, x: NDArray[Any]) -> NDArray[Any]: ...
    def __matmul__(self, x: Any) -> Any:
        """Collective. This rank's block of A x, see :meth:`dot`; or the matrix A B."""
        if type(x) is np.ndarray:
            return self.dot(x)
        return self.times(x, False, False) if isinstance(x, Linear) else self.dot(x)

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        """Local. ``TypeError``: NumPy would take it for a number, and multiply by it."""
        raise TypeError(f"a {type(self).__name__} is no array; A.gather() has a matrix's entries")

    def __rmatmul__(self, x: Any) -> Any:
        """Local. ``TypeError``: vectors stand on the right."""
        raise TypeError(
            f"x @ A takes no {type(self).__name__} on the right; A.T @ x is its transpose times x"
        )

    def times(self, other: Linear, transposed: bool, conjugated: bool) -> Any:
        """Collective, internal. The product of a view of this and another map, where both have
        entries."""
        raise TypeError(
            f"A @ B needs a DistMatrix, or its transpose or adjoint, on both sides; A is "
            f"{type(self).__name__}, B {type(other).__name__}"
        )

    def local_rows(self) -> Any:
        """Collective. This rank's rows as SciPy's CSR with global columns, a copy."""
        raise TypeError(f"a {type(self).__name__} has no entries")

    def transposed_rows(self) -> Any:
        """Collective, internal. The same of A.T."""
        return Linear.local_rows(self)

    @overload
    def dot(self, x: DistVector, out: DistVector | None = None) -> DistVector: ...
    @overload
    def dot(self, x: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]: ...
    def dot(self, x: Any, out: Any = None) -> Any:
        """Collective. Multiply: x is this rank's block, (n,) or (n, k), the result that of A x.

        ``out`` (contiguous, of the result's shape and dtype) is filled and returned if given; it
        may be x. A :class:`DistVector` gives one. The result has the dtype that NumPy gives such
        products; for an x wider than the matrix a wider copy of the entries is made and kept. The
        first product with another k or dtype plans a request.

        Raises, the first time or in debug mode the same on every rank (:class:`Linear`):
        ``ValueError`` for a wrong length, or another k than that of other ranks, ``TypeError`` for
        what is no vector or block of numbers. ``RequestError`` after ``Free``.
        """
        if self.freed:
            raise RequestError("the matrix has been freed")
        if (
            self._plain and out is None and type(x) is np.ndarray and x.dtype == self.dtype
            and x.shape == self._plain and x.flags.c_contiguous
        ):  # fmt: skip
            y = np.empty(self._n_rows, self.dtype)
            self.multiply(x, y)
            return y
        error = None
        try:
            block, place = self._blocks(x, out) if isinstance(x, DistVector) else (x, out)
            block, y, form = self._operands(_array(block), place)
        except _ERRORS as problem:
            error, form = problem, _WRONG
        self._compare(error, form)
        map_: Linear = self
        if form & 2:
            map_ = self.promoted(entries_dtype(self.dtype, block.dtype))
        map_._multiply_any(block, y)
        if not isinstance(x, DistVector):
            return y
        return x.like(y, self.row_partition) if out is None else out

    def _blocks(self, x: DistVector, out: Any) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Local. The blocks of vectors, which must have the partitions of the matrix."""
        sides = [("x", x, "columns", self.col_partition)]
        if out is not None:
            if not isinstance(out, DistVector):
                raise TypeError(f"x is a DistVector, out {type(out).__name__}")
            sides.append(("out", out, "rows", self.row_partition))
        for name, vector, role, partition in sides:
            if not np.array_equal(vector.partition.starts, partition.starts):
                raise ValueError(
                    f"{name} has the partition {vector.partition.starts.tolist()}, the {role} "
                    f"have {partition.starts.tolist()}"
                )
        return x.array, None if out is None else out.array

    def _operands(
        self, x: NDArray[Any], out: NDArray[Any] | None
    ) -> tuple[NDArray[Any], NDArray[Any], int]:
        """Local. x and y ready to be multiplied, and a number for their form."""
        if x.ndim not in (1, 2) or len(x) != self._n_cols:
            raise ValueError(
                f"x has shape {x.shape}, rank {self.comm.rank} owns the {self._n_cols} "
                f"columns {self.col_range[0]}:{self.col_range[1]}"
            )
        dtype = common_dtype("x", x.dtype, self.dtype)
        pairs = dtype.kind == "c" and self.dtype.kind != "c"
        wider = entries_dtype(self.dtype, dtype) != self.dtype
        x = np.ascontiguousarray(x, dtype)
        y = self._result(out, (self._n_rows, *x.shape[1:]), dtype)
        if out is not None and np.may_share_memory(x, out):
            x = x.copy()
        form = x.shape[1] + 1 if x.ndim == 2 else 0
        return x, y, 4 * form + 2 * wider + pairs

    def _compare(self, error: Exception | None, form: int) -> None:
        """Collective for a new form, and in debug mode: raise unless all ranks have the same."""
        known = form in self._agreed or (error is not None and bool(self._agreed))
        if self.comm.size == 1 or (known and not self._always):
            if error is not None:
                raise error
            self._note(form)
            return
        mine = self._form
        mine[0], mine[1] = form, -form
        self.comm.Allreduce(MPI.IN_PLACE, self._form_spec, op=MPI.MAX)
        if mine[0] == -mine[1] and form != _WRONG:
            self._agreed.add(form)
            self._note(form)
            return
        forms = agree(self.comm, error, "a product", form)
        other = next(rank for rank in range(len(forms)) if forms[rank] != forms[0])
        raise ValueError(f"rank 0 passes {_words(forms[0])}, rank {other} {_words(forms[other])}")

    def _note(self, form: int) -> None:
        """Local. From now on one vector of the matrix's dtype is looked at but briefly."""
        if form == 0 and not self._always:
            self._plain = (self._n_cols,)

    def _multiply_any(self, x: NDArray[Any], y: NDArray[Any]) -> None:
        """Complex x with a real matrix are twice as many real vectors, entry beside entry."""
        if x.ndim == 2 and x.shape[1] == 0:
            return
        if x.dtype.kind == "c" and self.dtype.kind != "c":
            kind = x.real.dtype
            x, y = ((a if a.ndim == 2 else a.reshape(len(a), 1)).view(kind) for a in (x, y))
        self.multiply(x, y)

    @staticmethod
    def _result(
        out: NDArray[Any] | None, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> NDArray[Any]:
        if out is None:
            return np.empty(shape, dtype)
        if not isinstance(out, np.ndarray):
            raise TypeError(f"out is {type(out).__name__}, not an array")
        if out.shape != shape or out.dtype != dtype or not out.flags.c_contiguous:
            raise ValueError(
                f"out must be contiguous, of shape {shape} and {dtype}; it has shape "
                f"{out.shape}, strides {out.strides} and is {out.dtype}"
            )
        if not out.flags.writeable:
            raise ValueError("out is read-only")
        return out


def _array(x: Any) -> NDArray[Any]:
    """Local. x as an array; ``TypeError`` that names what can be multiplied."""
    array = np.asarray(x)
    if array.dtype == object:
        raise TypeError(
            f"A @ x takes this rank's block of x, (n,) or (n, k), or a DistVector (a DistMatrix "
            f"also a DistMatrix), not {type(x).__name__}"
        )
    return array


def _words(form: int) -> str:
    """What a form says of a vector."""
    kind = "complex" if form % 2 else "wider than the matrix" if form & 2 else "of its dtype"
    return f"a block of {form // 4 - 1} vectors, {kind}" if form > 3 else f"one vector, {kind}"


class Adjoint(Linear):
    """A.T, A.H, or the conjugate of A (``A.T.H``), without entries of its own.

    ``x`` of ``A.T @ x`` has the partition of A's rows, the result that of its columns. The first
    transposed product with a matrix copies the local rows and plans the way back of the ghosts: it
    takes longer. Freed with the matrix.
    """

    def __init__(self, matrix: Any, transposed: bool, conjugated: bool) -> None:
        """Local. Of a DistMatrix, whose module imports this one, or a LinearOperator; ``TypeError``
        where that needs ``multiply_adjoint``."""
        self.matrix, self.transposed, self.conjugated = matrix, transposed, conjugated
        rows, columns = matrix.row_partition, matrix.col_partition
        self.dtype = matrix.dtype
        self._lay_out(matrix.comm, *((columns, rows) if transposed else (rows, columns)))
        by_adjoint = transposed and isinstance(matrix, LinearOperator)
        if by_adjoint and matrix._functions[1] is None:
            raise TypeError("this LinearOperator was made without multiply_adjoint")
        self._turned = conjugated != (by_adjoint and self.dtype.kind == "c")
        self._conjugate: NDArray[Any] = np.empty(0, self.dtype)

    def view(self, transposed: bool, conjugated: bool) -> Linear:
        """Local. This transposed, conjugated, both, or itself."""
        sides = self.transposed != transposed, self.conjugated != conjugated
        made: Linear = self.matrix.view(*sides)
        return made

    def promoted(self, dtype: np.dtype[Any]) -> Linear:
        """Collective. The same view of the promoted matrix."""
        wide: Any = self.matrix.promoted(dtype)
        return self if wide is self.matrix else wide.view(self.transposed, self.conjugated)

    def times(self, other: Linear, transposed: bool, conjugated: bool) -> Any:
        """Collective. The product of this and another map."""
        sides = self.transposed != transposed, self.conjugated != conjugated
        return self.matrix.times(other, *sides)

    def local_rows(self) -> Any:
        """Collective. This rank's rows with global columns; they are brought for the purpose."""
        matrix = self.matrix
        rows = matrix.transposed_rows() if self.transposed else matrix.local_rows()
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
        product = self.matrix.multiply_back if self.transposed else self.matrix.multiply
        if not self._turned:
            product(x, y)
            return
        if self._conjugate.shape != x.shape or self._conjugate.dtype != x.dtype:
            self._conjugate = np.empty(x.shape, x.dtype)
        product(np.conjugate(x, out=self._conjugate), y)
        np.conjugate(y, out=y)


def columns_of_product(rows: Partition, other: Linear) -> Partition:
    """Local. The columns of a product A B with these rows, ``other`` being B. Where the product is
    square they are shared out as the rows, unless B is square as well and has told its own."""
    free = other.shape[0] != other.shape[1] == rows.size
    return rows if free else other.col_partition


def whose(map: Any) -> Any:
    """Local. The map that one is a view of, or itself."""
    return map.matrix if isinstance(map, Adjoint) else map


Function = Callable[[NDArray[Any], NDArray[Any]], object]


class LinearOperator(Linear):
    """A distributed linear map that a function multiplies by; no entries are stored.

    Solvers, and ``@``, take it as they take a matrix. It owns nothing: there is nothing to free.

    Examples
    --------
    >>> A = diags(comm, [-1, 2, -1], [-1, 0, 1], shape=(8, 8))
    >>> def multiply(x, y):
    ...     y[:] = 2 * (A @ x)
    >>> twice = LinearOperator(comm, A.row_partition, A.col_partition, multiply)
    >>> y = twice @ np.ones(A.col_range[1] - A.col_range[0])
    >>> float(comm.allreduce(y.sum()))
    4.0
    >>> A.Free()
    """

    def __init__(
        self, comm: MPI.Intracomm, row_partition: Partition, col_partition: Partition,
        multiply: Function, *, multiply_adjoint: Function | None = None,
        dtype: DTypeLike = np.float64,
    ) -> None:  # fmt: skip
        """Collective. ``multiply(x, y)`` writes this rank's block of A x into y; it may be
        Collective, so what it raises on one rank alone leaves the others waiting. Both are
        contiguous, (n,) or (n, k), of ``dtype`` or of a wider one, or of the complex one.
        ``multiply_adjoint(y, x)`` does the same for A.H y.

        Raises on all ranks ``ValueError`` where partitions do not fit, ``MismatchError`` where they
        differ, ``TypeError`` for a dtype that products do not have, or what is no function.
        """
        what = row_partition, col_partition, spelled(dtype), multiply_adjoint is None
        with agreed(comm, ("LinearOperator", *what)):
            for partition in (row_partition, col_partition):
                partition.check_parts(comm.size)
            for function in (multiply, multiply_adjoint):
                if function is not None and not callable(function):
                    raise TypeError(f"{function!r} cannot be called")
            kind = np.dtype(dtype)
            self.dtype = common_dtype("dtype", kind, kind)
        self._functions = multiply, multiply_adjoint
        self._lay_out(comm, row_partition, col_partition)

    @property
    def freed(self) -> bool:
        """Local. Never."""
        return False

    def promoted(self, dtype: np.dtype[Any]) -> Linear:
        """Local, internal. The function takes any dtype."""
        return self

    def multiply(self, x: NDArray[Any], y: NDArray[Any]) -> None:
        """Collective. y = A x, by the function."""
        self._functions[0](x, y)

    def multiply_back(self, x: NDArray[Any], y: NDArray[Any]) -> None:
        """Collective. y = A.H x, by the other function."""
        cast(Function, self._functions[1])(x, y)
