"""The entries that a rank stores as SciPy arrays: all of them, own columns, the diagonal."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray
from scipy import sparse

from onesided.sparse.halo import HaloPattern
from onesided.sparse.kernels.scipy_calls import Csr
from onesided.sparse.alike import shared_dtype
from onesided.sparse.partition import Partition, index_dtype

_ITEMS_AT_ONCE = 1 << 26  # below what a 32-bit count of bytes can say


def global_rows(
    rows: Csr, pattern: HaloPattern, columns: Partition, rank: int
) -> sparse.csr_array:
    """Local. CSR of the rows with global columns, in memory of its own, entries in their order."""
    start, stop = columns.range(rank)
    kind = index_dtype(max(columns.size, len(rows.data)))
    numbers = np.concatenate([np.arange(start, stop, dtype=kind), pattern.ghosts.astype(kind)])
    parts = rows.data.copy(), numbers[rows.indices], rows.indptr.astype(kind)
    return sparse.csr_array(parts, shape=(len(rows), columns.size))


def own_columns(rows: Csr, n_own: int) -> sparse.csr_array:
    """Local. CSR of the rows without ghosts, columns counted from the first own one."""
    own = rows.indices < n_own
    before = np.concatenate([[0], np.cumsum(own)])[rows.indptr]
    parts = rows.data[own], rows.indices[own], before.astype(rows.indptr.dtype)
    return sparse.csr_array(parts, shape=(len(rows), n_own))


def diagonal(rows: Csr, columns: NDArray[np.int64]) -> NDArray[Any]:
    """Local. The entry of each of the first rows in the column given for it, -1 for none.

    Duplicates are summed.
    """
    length = len(columns)
    stop = int(rows.indptr[length])
    wanted = np.repeat(columns.astype(rows.indices.dtype), np.diff(rows.indptr[: length + 1]))
    here = np.flatnonzero(rows.indices[:stop] == wanted)
    row = np.searchsorted(rows.indptr[: length + 1], here, side="right") - 1
    found = np.zeros(length, rows.data.dtype)
    np.add.at(found, row, rows.data[here])
    return found


def gathered(comm: MPI.Intracomm, rows: sparse.csr_array, root: int) -> sparse.csr_array | None:
    """Collective. The ranks' rows one below the other, as one CSR on root; None elsewhere."""
    counts = comm.gather((rows.shape[0], rows.nnz), root=root)
    private = comm.Dup()
    try:
        lengths = None if counts is None else [count[0] for count in counts]
        entries = None if counts is None else [count[1] for count in counts]
        per_row = _joined(private, np.diff(rows.indptr), lengths, root)
        indices = _joined(private, rows.indices, entries, root)
        data = _joined(private, rows.data, entries, root)
    finally:
        private.Free()
    if per_row is None:
        return None
    kind = index_dtype(max(rows.shape[1], len(data)))
    indptr = np.concatenate([np.zeros(1, kind), np.cumsum(per_row, dtype=kind)])
    parts = data, indices.astype(kind, copy=False), indptr
    return sparse.csr_array(parts, shape=(len(per_row), rows.shape[1]))


def _joined(comm: MPI.Intracomm, part: NDArray[Any], lengths: list[int] | None, root: int) -> Any:
    """Collective. All parts in the order of the ranks on root, None elsewhere."""
    part = np.ascontiguousarray(part, shared_dtype(comm, part.dtype))
    if lengths is None:
        for first in range(0, len(part), _ITEMS_AT_ONCE):
            comm.Send(part[first : first + _ITEMS_AT_ONCE], dest=root)
        return None
    whole = np.empty(sum(lengths), part.dtype)
    stop = 0
    for rank, length in enumerate(lengths):
        start, stop = stop, stop + length
        if rank == root:
            whole[start:stop] = part
            continue
        for first in range(start, stop, _ITEMS_AT_ONCE):
            comm.Recv(whole[first : min(first + _ITEMS_AT_ONCE, stop)], source=rank, tag=0)
    return whole
