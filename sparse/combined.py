"""Matrices of diagonals, of blocks, and Kronecker products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import DTypeLike
from scipy import sparse

from onesided.collectives import agreed
from onesided.sparse.alike import plain, spelled
from onesided.sparse.assembly import Choices, from_blocks, from_triplets
from onesided.sparse.halo import Info
from onesided.sparse.matrix import DistMatrix
from onesided.sparse.partition import Partition
from onesided.sparse.vector import DistVector


def diags(
    comm: MPI.Intracomm, diagonals: Any, offsets: int | Sequence[int] = 0, *,
    shape: tuple[int, int] | None = None, partition: Partition | None = None,
    method: str = "auto", info: Info = None, dtype: DTypeLike | None = None, kernel: str = "auto",
) -> DistMatrix:  # fmt: skip
    """Collective. The matrix of some diagonals; ``offsets`` above zero are above the main one.

    A diagonal is a number, or a vector with an entry for each *row*: a DistVector, or this rank's
    block; entries that fall outside of the matrix are not looked at. One diagonal may stand without
    a list. ``partition`` is that of the rows, even blocks of ``shape`` without one; without a shape
    the matrix is square. Other arguments as of :func:`from_triplets`. Raises the same error on
    every rank: ``ValueError`` for lengths that do not fit, ``TypeError`` without both.

    Examples
    --------
    >>> with diags(comm, [-1, 2, -1], [-1, 0, 1], shape=(8, 8)) as A:
    ...     A.nnz
    22
    """
    single = isinstance(offsets, int | np.integer)
    told = ["diags", offsets, plain(shape), spelled(dtype)]
    with agreed(comm, told):
        places = [int(offset) for offset in ([offsets] if single else offsets)]  # type: ignore
        told[1] = places
        given = [diagonals] if single else list(diagonals)
        if len(given) != len(places):
            raise ValueError(f"{len(given)} diagonals, {len(places)} offsets")
        if shape is None and partition is None:
            raise TypeError("diags needs a shape or a partition")
        rows = partition or Partition.even(shape[0], comm.size)  # type: ignore[index]
        n_rows, n_cols = shape or (rows.size, rows.size)
        start, stop = rows.range(comm.rank)
        if n_rows != rows.size:
            raise ValueError(f"a partition of {rows.size} rows for a matrix of {n_rows}")
        number = np.arange(start, stop)
        parts: list[tuple[Any, ...]] = []
        for diagonal, offset in zip(given, places, strict=True):
            array = np.asarray(diagonal.array if isinstance(diagonal, DistVector) else diagonal)
            if array.shape not in ((), number.shape):
                raise ValueError(f"a diagonal of shape {array.shape} for {len(number)} rows")
            inside = (number + offset >= 0) & (number + offset < n_cols)
            values = np.broadcast_to(array, number.shape)[inside]
            parts.append((values, number[inside] - start, number[inside] + offset))
        values, row, col = (
            np.concatenate(each) for each in zip(*(parts or [((), (), ())]), strict=True)
        )
        at = row.astype(np.int64), col.astype(np.int64)
        local = sparse.csr_array(sparse.coo_array((values, at), shape=(stop - start, n_cols)))
    made = from_blocks(comm, local, rows, Choices(method, info, dtype, "rows", None, kernel))
    made.keep_ordering(None, False)  # the partition may be that of a matrix with an ordering
    return made


def kron(A: DistMatrix, B: Any) -> DistMatrix:
    """Collective. The Kronecker product of A and B: every entry of A times B, as a block.

    B is a DistMatrix, of which every rank gets all rows for this, or a SciPy matrix, the same on
    every rank. Who owns a row of A owns the rows that come of it. Made as A was. ``TypeError`` on
    every rank where one of the two is none.

    Examples
    --------
    >>> A = diags(comm, [-1, 2, -1], [-1, 0, 1], shape=(8, 8))
    >>> import scipy.sparse
    >>> with kron(A, scipy.sparse.eye_array(2)) as both:
    ...     both.shape
    (16, 16)
    >>> A.Free()
    """
    if not isinstance(A, DistMatrix):  # on all ranks: there is no communicator to ask
        raise TypeError(f"kron takes a DistMatrix first, not {type(A).__name__}")
    with agreed(A.comm, "kron"):
        if not isinstance(B, DistMatrix) and not sparse.issparse(B):
            raise TypeError(f"kron takes a DistMatrix or a SciPy matrix, not {type(B).__name__}")
    whole: Any = B[:] if isinstance(B, DistMatrix) else B
    with agreed(A.comm, whole.shape):
        rows = sparse.csr_array(sparse.kron(A.local_rows(), whole, format="csr"))
    own, columns = (
        Partition(each.starts * size)
        for each, size in zip((A.row_partition, A.col_partition), whole.shape, strict=True)
    )
    if A.shape[0] != A.shape[1] and own.size == columns.size:
        columns = own
    return A.derived(rows, own, columns, ordered=False)


def block_array(blocks: Sequence[Sequence[DistMatrix | None]], **how: Any) -> DistMatrix:
    """Collective. The matrix of blocks, row by row; None stands for zeros, as with SciPy's.

    Blocks beside each other have equally many rows, those below each other equally many columns.
    Rows are shared out anew, balanced by entries, in one numbering; ``how``: the keywords of
    :func:`from_triplets`. Raises the same error on every rank: ``ValueError`` where shapes do not
    fit, or a row or column of blocks has none.

    Examples
    --------
    >>> A = diags(comm, [-1, 2, -1], [-1, 0, 1], shape=(8, 8))
    >>> with block_array([[A, None], [None, A]]) as both:
    ...     both.shape
    (16, 16)
    >>> A.Free()
    """
    every = [(i, j, B) for i, row in enumerate(blocks) for j, B in enumerate(row) if B is not None]
    if not every:
        raise ValueError("block_array needs a matrix")
    comm = every[0][2].comm
    with agreed(comm, "block_array"):
        heights, widths = [-1] * len(blocks), [-1] * max(len(row) for row in blocks)
        for i, j, B in every:
            for sizes, at, size in ((heights, i, B.shape[0]), (widths, j, B.shape[1])):
                if sizes[at] not in (-1, size):
                    raise ValueError(f"block {i}, {j} has shape {B.shape}, {sizes[at]} is needed")
                sizes[at] = size
        if -1 in heights or -1 in widths:
            raise ValueError("a row or a column of blocks has no matrix")
        tops, lefts = (np.concatenate([[0], np.cumsum(each)]) for each in (heights, widths))
        parts = []
        for i, j, B in every:
            block = sparse.coo_array(B.local_rows())
            first = tops[i] + B.row_range[0]
            parts.append((block.row + first, block.col + lefts[j], block.data))
        row, col, values = (np.concatenate(each) for each in zip(*parts, strict=True))
    made = from_triplets(comm, row, col, values, (int(tops[-1]), int(lefts[-1])), **how)
    made.ordered &= made.ordering is not None  # blocks may be in any order
    return made
