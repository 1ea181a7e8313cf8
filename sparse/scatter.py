"""Matrices that exist already: on one rank, or as rows on every rank."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import DTypeLike
from scipy import sparse

from onesided.collectives import agreed
from onesided.sparse.assembly import Choices, from_blocks
from onesided.sparse.halo import Info
from onesided.sparse.matrix import DistMatrix
from onesided.sparse.moving import blocks_of, scattered
from onesided.sparse.moving import lengths as share_of
from onesided.sparse.orderings.numbering import How
from onesided.sparse.partition import Partition


def from_scipy(
    comm: MPI.Intracomm,
    matrix: Any | None,
    *,
    root: int = 0,
    method: str = "auto",
    info: Info = None,
    dtype: DTypeLike | None = None,
    partition: How = "rows",
    columns: Partition | None = None,
    kernel: str = "auto",
) -> DistMatrix:
    """Collective. Distribute a SciPy matrix or sparse array of any format that ``root`` holds.

    What other ranks pass is not looked at; pass None. ``partition`` says who owns which rows, see
    :func:`~onesided.sparse.partitioned`; "rows": in contiguous blocks balanced by nonzeros.
    ``columns`` says who owns which entries of x: as the rows in a square matrix, even blocks in
    another one, unless it is given. ``kernel`` says how to multiply, see
    :class:`DistMatrix`.

    Raises the same error on every rank: ``TypeError`` where root's matrix is none, or the dtype
    cannot hold its values; ``ValueError`` where it is not two-dimensional; ``MismatchError`` where
    ranks pass different roots or dtypes.

    Examples
    --------
    >>> import scipy.sparse
    >>> with from_scipy(comm, scipy.sparse.eye_array(4) if comm.rank == 0 else None) as A:
    ...     A.nnz
    4
    """
    csr = sparse.csr_array((0, 0))
    with agreed(comm, f"from_scipy with root={root}, dtype={dtype}"):
        if not 0 <= root < comm.size:
            raise ValueError(f"root {root} on {comm.size} ranks")
        if comm.rank == root:
            csr = _as_csr(matrix)
    shape, index = comm.bcast((csr.shape, csr.indices.dtype), root=root)
    lengths = np.diff(csr.indptr).astype(index)
    rows = comm.bcast(Partition.balanced(lengths + 1, comm.size), root=root)
    mine = scattered(comm, lengths, rows, root)
    entries = share_of(comm, int(mine.sum(dtype=np.int64)))
    indices = scattered(comm, csr.indices.astype(index, copy=False), entries, root)
    data = scattered(comm, csr.data, entries, root)
    indptr = np.concatenate([np.zeros(1, index), np.cumsum(mine, dtype=index)])
    local = sparse.csr_array((data, indices, indptr), shape=(len(mine), shape[1]))
    choices = Choices(method, info, dtype, partition, columns, kernel)
    return from_blocks(comm, local, rows, choices)


def from_rows(
    comm: MPI.Intracomm,
    rows: Any,
    *,
    method: str = "auto",
    info: Info = None,
    dtype: DTypeLike | None = None,
    partition: How = "rows",
    columns: Partition | None = None,
    kernel: str = "auto",
    copy: bool = True,
) -> DistMatrix:
    """Collective. The matrix whose consecutive blocks of rows the ranks pass, columns global.

    ``rows`` is a SciPy matrix or sparse array; all have the same number of columns. The row
    partition is what was passed ("rows"), unless ``partition`` moves them, see
    :func:`~onesided.sparse.partitioned`; ``columns`` as in :func:`from_scipy`. The caller may
    change what was passed, unless ``copy`` is False: then the matrix may use its memory.

    Raises the same error on every rank: ``TypeError`` where rows are none or the dtype cannot hold
    their values, ``ValueError`` where the columns differ.

    Examples
    --------
    >>> import scipy.sparse
    >>> mine = scipy.sparse.eye_array(2, 2 * comm.size, k=2 * comm.rank, format="csr")
    >>> with from_rows(comm, mine) as A:
    ...     A.shape == (2 * comm.size, 2 * comm.size)
    True
    """
    csr = sparse.csr_array((0, 0))
    with agreed(comm):
        csr = _as_csr(rows)
        if copy:
            csr = csr.copy()
    given = blocks_of(comm, csr.shape)
    choices = Choices(method, info, dtype, partition, columns, kernel)
    return from_blocks(comm, csr, given, choices)


def _as_csr(matrix: Any) -> sparse.csr_array:
    """Local. The matrix as CSR; it shares the memory of one that is CSR already."""
    if not sparse.issparse(matrix):
        kind = type(matrix).__name__
        raise TypeError(f"a SciPy sparse matrix or array expected, not {kind}")
    whole: Any = matrix
    if whole.ndim != 2:
        raise ValueError(f"two dimensions expected, not shape {whole.shape}")
    return sparse.csr_array(whole)
