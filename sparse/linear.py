"""What multiplies distributed vectors: a matrix, its transpose, its adjoint.

Everything about operands is here: which are taken, how they are cast, how complex vectors meet a
real matrix, and that one wrong operand on one rank is an error on every rank.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, overload

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives import RequestError, agree
from onesided.sparse.partition import Partition
from onesided.sparse.vector import DistVector

_WRONG = -1  # the form of an operand that this rank refuses
_ERRORS = (TypeError, ValueError)


class Linear(ABC):
    """A distributed linear map: ``dot``, ``@``, and the partitions of what goes in and comes out.

    Attributes: ``comm``, ``shape`` (global), ``dtype``, ``row_partition``, ``col_partition``,
    ``row_range``, ``col_range``, ``checked``.

    *Checked* products compare the form of x on all ranks before anything is sent: one small
    ``Allreduce`` each. They raise the same error on every rank. Where ``checked`` is False, or in
    ``multiply``, operands are taken as they are: an error is found on one rank, if at all, and the
    others wait for it.
    """

    comm: MPI.Comm
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    row_partition: Partition
    col_partition: Partition
    row_range: tuple[int, int]
    col_range: tuple[int, int]

    def _lay_out(self, comm: MPI.Comm, rows: Partition, columns: Partition) -> None:
        """Local. Who owns what of the operands; what a product needs is computed once."""
        self.comm, self.row_partition, self.col_partition = comm, rows, columns
        self.shape = (rows.size, columns.size)
        self.row_range, self.col_range = rows.range(comm.rank), columns.range(comm.rank)
        self._n_rows = self.row_range[1] - self.row_range[0]
        self._n_cols = self.col_range[1] - self.col_range[0]
        self._form = np.zeros(2, np.int64)
        self._form_spec = [self._form, 2, MPI.INT64_T]

    @property
    @abstractmethod
    def checked(self) -> bool:
        """Local. Whether products compare their operands on all ranks."""

    @property
    @abstractmethod
    def freed(self) -> bool:
        """Local. True after ``Free``."""

    @property
    @abstractmethod
    def T(self) -> Linear:
        """Local. The transpose, which shares everything with this."""

    @property
    @abstractmethod
    def H(self) -> Linear:
        """Local. The adjoint, which shares everything with this."""

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
        """Collective. This rank's block of A x; see :meth:`dot`."""
        return self.dot(x)

    @overload
    def dot(self, x: DistVector, out: DistVector | None = None) -> DistVector: ...
    @overload
    def dot(self, x: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]: ...
    def dot(self, x: Any, out: Any = None) -> Any:
        """Collective. Multiply: x is this rank's block, (n,) or (n, k), the result that of A x.

        ``out`` (contiguous, of the result's shape and dtype) is filled and returned if given; it
        may be x. A :class:`DistVector` gives one. The first product with another k plans a request.

        Raises the same error on every rank, unless :attr:`checked` is False: ``ValueError`` for a
        wrong length, or another k than that of other ranks, ``TypeError`` for a wrong dtype.
        ``RequestError`` after ``Free``.
        """
        if self.freed:
            raise RequestError("the matrix has been freed")
        error = None
        try:
            block, place = self._blocks(x, out) if isinstance(x, DistVector) else (x, out)
            block, y, form = self._operands(np.asarray(block), place)
        except _ERRORS as problem:
            error, form = problem, _WRONG
        self._compare(error, form)
        self._multiply_any(block, y)
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
        pairs = x.dtype.kind == "c" and self.dtype.kind != "c"
        dtype = np.result_type(self.dtype, np.complex64) if pairs else self.dtype
        if x.dtype != dtype or not x.flags.c_contiguous:
            x = self._cast(x, dtype)
        y = self._result(out, (self._n_rows, *x.shape[1:]), dtype)
        if out is not None and np.may_share_memory(x, out):
            x = x.copy()
        form = x.shape[1] + 1 if x.ndim == 2 else 0
        return x, y, 2 * form + pairs

    def _compare(self, error: Exception | None, form: int) -> None:
        """Collective where products are checked: raise unless all ranks have the same form."""
        if not self.checked or self.comm.size == 1:
            if error is not None:
                raise error
            return
        mine = self._form
        mine[0], mine[1] = form, -form
        self.comm.Allreduce(MPI.IN_PLACE, self._form_spec, op=MPI.MAX)
        if mine[0] == -mine[1] and form != _WRONG:
            return
        forms = agree(self.comm, error, "a product", form)
        other = next(rank for rank in range(len(forms)) if forms[rank] != forms[0])
        raise ValueError(
            f"rank 0 passes {_words(forms[0])}, rank {other} {_words(forms[other])}"
        )

    def _multiply_any(self, x: NDArray[Any], y: NDArray[Any]) -> None:
        """Complex x with a real matrix are twice as many real vectors, entry beside entry."""
        if x.ndim == 2 and x.shape[1] == 0:
            return
        if x.dtype != self.dtype:
            x, y = (
                (a if a.ndim == 2 else a.reshape(len(a), 1)).view(self.dtype) for a in (x, y)
            )
        self.multiply(x, y)

    def _cast(self, x: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
        if not np.can_cast(x.dtype, dtype):
            raise TypeError(
                f"x is {x.dtype} and the matrix {self.dtype}: create the matrix with dtype="
                f"'{np.result_type(x.dtype, self.dtype)}', or cast x"
            )
        return np.ascontiguousarray(x, dtype)

    @staticmethod
    def _result(
        out: NDArray[Any] | None, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> NDArray[Any]:
        if out is None:
            return np.empty(shape, dtype)
        if out.shape != shape or out.dtype != dtype or not out.flags.c_contiguous:
            raise ValueError(
                f"out must be contiguous, of shape {shape} and {dtype}; it has shape "
                f"{out.shape}, strides {out.strides} and is {out.dtype}"
            )
        if not out.flags.writeable:
            raise ValueError("out is read-only")
        return out


def _words(form: int) -> str:
    """What a form says of a vector."""
    kind = "complex" if form % 2 else "of the matrix's dtype"
    return f"a block of {form // 2 - 1} vectors, {kind}" if form > 1 else f"one vector, {kind}"
