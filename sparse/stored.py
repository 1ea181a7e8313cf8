"""The entries that a rank stores: all of them, own columns, the diagonal as SciPy arrays; norms;
boundary conditions: rows, and columns, made those of a multiple of the identity."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray
from scipy import sparse

from onesided.sparse import moving
from onesided.sparse.halo import HaloPattern
from onesided.sparse.kernels.rows import Csr
from onesided.sparse.partition import Integers, LocalColumns, Partition, index_dtype


def global_rows(
    rows: Csr, pattern: HaloPattern, columns: Partition, rank: int
) -> sparse.csr_array:
    """Local. CSR of the rows with global columns, in memory of its own, entries in their order."""
    start, stop = columns.range(rank)
    kind = index_dtype(max(columns.size, len(rows.data)))
    numbers = np.concatenate([np.arange(start, stop, dtype=kind), pattern.ghosts.astype(kind)])
    parts = rows.data.copy(), numbers[rows.indices], rows.indptr.astype(kind)
    return sparse.csr_array(parts, shape=(len(rows), columns.size))


def by_columns(columns: LocalColumns, indptr: Integers, data: NDArray[Any]) -> Csr:
    """Local. Rows whose columns have been renumbered."""
    indptr = indptr.astype(columns.indices.dtype, copy=False)
    return Csr(columns.n_local, columns.n_own, indptr, columns.indices, data)


def own_columns(rows: Csr, n_own: int) -> sparse.csr_array:
    """Local. CSR of the rows without ghosts, columns counted from the first own one."""
    own = rows.indices < n_own
    before = np.concatenate([[0], np.cumsum(own)])[rows.indptr]
    parts = rows.data[own], rows.indices[own], before.astype(rows.indptr.dtype)
    return sparse.csr_array(parts, shape=(len(rows), n_own))


def diagonal(rows: Csr, columns: NDArray[np.int64]) -> NDArray[Any]:
    """Local. The entry of each of the first rows in the column given for it, -1 for none."""
    found = np.zeros(len(columns), rows.data.dtype)
    first = rows.part(0, len(columns))
    row = first.row_of_each()
    here = np.flatnonzero(rows.indices[: len(row)] == columns[row])
    found[row[here]] = rows.data[here]
    return found


def gathered(comm: MPI.Intracomm, rows: sparse.csr_array, root: int) -> sparse.csr_array | None:
    """Collective. The ranks' rows one below the other, as one CSR on root; None elsewhere."""
    lengths = np.diff(rows.indptr).astype(np.int64)
    kind = index_dtype(rows.shape[1])
    parts = lengths, rows.indices.astype(kind, copy=False), rows.data
    per_row, indices, data = (moving.gathered(comm, part, root) for part in parts)
    if per_row is None or indices is None or data is None:
        return None
    kind = index_dtype(max(rows.shape[1], len(data)))
    indptr = np.concatenate([np.zeros(1, kind), np.cumsum(per_row, dtype=kind)])
    whole = data, indices.astype(kind, copy=False), indptr
    return sparse.csr_array(whole, shape=(len(per_row), rows.shape[1]))


def norm(comm: MPI.Intracomm, rows: Csr, pattern: HaloPattern, ord: Any) -> float:
    """Collective. "fro", 1, inf or "max", the same bits on every rank."""
    wide = np.result_type(rows.data, np.float64)  # in which no absolute value overflows too early
    sizes = np.abs(rows.data.astype(wide, copy=False))
    if ord == np.inf:
        sizes = _summed(rows.row_of_each(), sizes, len(rows))
    elif ord == 1:
        local, n_own = _summed(rows.indices, sizes, rows.n_cols), pattern.n_own
        came = moving.moved(comm, local[n_own:], pattern.recv_counts, pattern.send_counts)
        sizes = local[:n_own] + _summed(pattern.send_index, came, n_own)
    largest = float(np.max(moving.of_all(comm, sizes.max(initial=0.0))))
    if ord != "fro" or not 0 < largest < np.inf:
        return largest
    squares = moving.of_all(comm, np.sum((sizes / largest) ** 2))
    return largest * float(np.sqrt(sum(squares.tolist())))


def _summed(places: Integers, sizes: NDArray[Any], length: int) -> NDArray[np.float64]:
    """Local. The sums of the sizes of each place; NumPy gives integers where there are none."""
    return np.bincount(places, weights=sizes, minlength=length).astype(np.float64, copy=False)


def without(csr: Csr, marked: NDArray[np.bool_], diagonal: Any, columns: bool) -> NDArray[Any]:
    """Local. The values with marked rows zero, marked columns too if wanted, and ``diagonal`` where
    the two meet; ``marked`` are columns [owned | ghost], and the rows of the owned ones."""
    row = csr.row_of_each()
    gone = marked[row]
    if columns:
        gone |= marked[csr.indices]
    values = np.where(gone, 0, csr.data).astype(csr.data.dtype)
    values[marked[row] & (csr.indices == row)] = diagonal
    return values


def lifted(csr: Csr, marked: NDArray[np.bool_], x: NDArray[Any]) -> NDArray[Any]:
    """Local. What marked columns times x, [owned | ghost], add to the rows that are not."""
    row = csr.row_of_each()
    there = marked[csr.indices] & ~marked[row]
    found = np.zeros(len(csr), np.result_type(csr.data, x))
    np.add.at(found, row[there], csr.data[there] * x[csr.indices[there]])
    return found


def diagonal_places(csr: Csr, first: int, wanted: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Local. Where the diagonal entries of the wanted rows are stored, in the order of the rows.

    ``ValueError`` for a row without a place; ``first`` is the number of the first row.
    """
    row = csr.row_of_each()
    found = np.flatnonzero((csr.indices == row) & wanted[row])
    missing = np.setdiff1d(np.flatnonzero(wanted), row[found])
    if len(missing):
        raise ValueError(
            f"row {first + int(missing[0])} has no place on the diagonal; A.shifted(0) has them all"
        )
    return found


def as_scipy(rows: Csr, data: NDArray[Any]) -> sparse.csr_array:
    """Local. The rows with their local columns, in the same memory."""
    parts = data, rows.indices, rows.indptr
    return sparse.csr_array(parts, shape=(len(rows), rows.n_cols))
