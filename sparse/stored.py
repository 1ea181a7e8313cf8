"""The rows that a rank stores, as SciPy's arrays: their entries, norms and boundary conditions;
rows moved between ranks, and the products that are made of them.

There is one exchange, of sparse rows along a :class:`HaloPattern`: forwards the owners' rows come
to the ranks whose ghosts they are, backwards what ranks have computed for their ghosts goes to the
owners. A @ B needs the first, A.T @ B the second.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray
from scipy import sparse

from onesided.sparse import moving
from onesided.sparse.halo import HaloPattern
from onesided.sparse.kernels.rows import Csr
from onesided.sparse.moving import Counts, lengths, moved, shared_dtype
from onesided.sparse.partition import Integers, Partition, index_dtype, ranked


def global_rows(rows: Csr, pattern: HaloPattern, columns: Partition, rank: int) -> sparse.csr_array:
    """Local. CSR of the rows with global columns, in memory of its own, entries in their order."""
    start, stop = columns.range(rank)
    kind = index_dtype(max(columns.size, len(rows.data)))
    numbers = np.concatenate([np.arange(start, stop, dtype=kind), pattern.ghosts.astype(kind)])
    parts = rows.data.copy(), numbers[rows.indices], rows.indptr.astype(kind)
    return sparse.csr_array(parts, shape=(len(rows), columns.size))


def gathered(comm: MPI.Intracomm, rows: sparse.csr_array, root: int) -> sparse.csr_array | None:
    """Collective. The ranks' rows one below the other, as one CSR on root; None elsewhere."""
    here, count = comm.rank == root, rows.shape[0]
    rows = rows.astype(shared_dtype(comm, rows.dtype, bool(rows.nnz)), copy=False)
    to, of = np.zeros(comm.size, np.int64), lengths(comm, count).lengths()
    to[root] = count
    came = _moved(comm, rows, to, of if here else np.zeros_like(of))
    return came if here else None


@np.errstate(all="ignore")  # of the caller; else one rank might raise alone
def norm(comm: MPI.Intracomm, rows: Csr, pattern: HaloPattern, ord: Any) -> float:
    """Collective. "fro", 1, inf or "max", the same bits on every rank."""
    wide = np.result_type(rows.data, np.float64)  # in which no absolute value overflows too early
    sizes = np.abs(rows.data.astype(wide, copy=False))
    if ord == np.inf:
        sizes = summed(sizes, rows.row_of_each(), len(rows))
    elif ord == 1:
        local, n_own = summed(sizes, rows.indices, rows.n_cols), pattern.n_own
        came = moved(comm, local[n_own:], pattern.recv_counts, pattern.send_counts)
        sizes = local[:n_own] + summed(came, pattern.send_index, n_own)
    largest = float(np.max(moving.of_all(comm, sizes.max(initial=0.0))))
    if ord != "fro" or not 0 < largest < np.inf:
        return largest
    squares = moving.of_all(comm, np.sum((sizes / largest) ** 2))
    return largest * float(np.sqrt(sum(squares.tolist())))


def summed(values: NDArray[Any], places: Integers, count: int) -> NDArray[Any]:
    """Local. The sums of the values of each of so many places, in double precision."""
    if values.dtype.kind == "c":
        sums = np.empty(count, np.complex128)
        sums.real, sums.imag = (summed(part, places, count) for part in (values.real, values.imag))
        return sums
    # NumPy gives integers where there are none
    return np.bincount(places, values, count).astype(np.float64, copy=False)


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


# -- rows moved, and products ------------------------------------------------------------------


def ghost_rows(
    comm: MPI.Intracomm, pattern: HaloPattern, rows: sparse.csr_array
) -> sparse.csr_array:
    """Collective. The ghosts' rows of a matrix of which every rank has its own, columns global."""
    return _moved(comm, rows[pattern.send_index], pattern.send_counts, pattern.recv_counts)


def fetched(
    comm: MPI.Intracomm, wanted: Integers, partition: Partition, rows: sparse.csr_array
) -> sparse.csr_array:
    """Collective. Rows of the global numbers that this rank wants, in their order; any number."""
    pattern, places = HaloPattern.of(comm, wanted, partition)
    came = ghost_rows(comm, pattern, rows)
    here = places < pattern.n_own
    own, number = ranked(places[here])
    at = places - pattern.n_own + len(own)
    at[here] = number
    return sparse.csr_array(sparse.vstack([rows[own], came], "csr")[at])


def product(
    comm: MPI.Intracomm, a: sparse.csr_array, pattern: HaloPattern, b: sparse.csr_array,
    ordered: bool = True,
) -> sparse.csr_array:  # fmt: skip
    """Collective. This rank's rows of A B; ``a`` has the columns [owned | ghost] of a pattern.

    Columns ascend if ``ordered``.
    """
    both = sparse.vstack([b, ghost_rows(comm, pattern, b)], "csr")
    found = multiplied(a, sparse.csr_array(both))
    if ordered:
        found.sort_indices()
    return found


def transposed_product(
    comm: MPI.Intracomm, a: sparse.csr_array, pattern: HaloPattern, b: sparse.csr_array
) -> sparse.csr_array:
    """Collective. This rank's rows of A.T B, by the columns of A that it owns."""
    return _of_owners(comm, multiplied(sparse.csr_array(a.T), b), pattern)


def transposed(
    comm: MPI.Intracomm, a: sparse.csr_array, pattern: HaloPattern, start: int, n_rows: int
) -> sparse.csr_array:
    """Collective. This rank's rows of A.T; ``a`` are those of A from ``start`` on, of n_rows."""
    here = sparse.csr_array(a.T)
    parts = here.data, here.indices.astype(index_dtype(n_rows)) + start, here.indptr
    return _of_owners(comm, sparse.csr_array(parts, shape=(here.shape[0], n_rows)), pattern)


def _of_owners(
    comm: MPI.Intracomm, rows: sparse.csr_array, pattern: HaloPattern
) -> sparse.csr_array:
    """Collective. The sums of rows that ranks have, each for its own columns and its ghosts."""
    n_own = pattern.n_own
    came = _moved(comm, rows[n_own:], pattern.recv_counts, pattern.send_counts)
    whole = sparse.csr_array(sparse.vstack([rows[:n_own], came], "csr"))
    place = np.concatenate([np.arange(n_own), pattern.send_index])
    row = np.repeat(place, np.diff(whole.indptr))
    shape = n_own, rows.shape[1]
    return sparse.csr_array(sparse.coo_array((whole.data, (row, whole.indices)), shape=shape))


def multiplied(a: sparse.csr_array, b: sparse.csr_array) -> sparse.csr_array:
    """Local. A B by SciPy, whose work space is as wide as the columns that B's rows have here.

    Columns are in no order.
    """
    if b.shape[1] <= len(b.data):
        whole: sparse.csr_array = a @ b
        return whole
    columns, number = ranked(b.indices)
    kind = index_dtype(max(len(b.data), len(columns), a.shape[1]))
    narrow = sparse.csr_array(
        (b.data, number.astype(kind), b.indptr.astype(kind)), shape=(b.shape[0], len(columns))
    )
    found: Any = a @ narrow
    wide = index_dtype(max(b.shape[1], len(found.data)))
    indices = columns.astype(wide)[found.indices]
    parts = found.data, indices, found.indptr.astype(wide)
    return sparse.csr_array(parts, shape=(a.shape[0], b.shape[1]))


def added(a: sparse.csr_array, b: sparse.csr_array) -> sparse.csr_array:
    """Local. A + B on the places of both: SciPy's sum leaves out those where entries cancel."""
    row = np.concatenate([np.repeat(np.arange(m.shape[0]), np.diff(m.indptr)) for m in (a, b)])
    cols = np.concatenate([a.indices, b.indices])
    values = np.concatenate([a.data, b.data])
    return sparse.csr_array(sparse.coo_array((values, (row, cols)), shape=a.shape))


def shifted(rows: sparse.csr_array, value: complex, first: int) -> sparse.csr_array:
    """Local. Rows of A + value I, from row ``first`` on."""
    numbers = np.arange(rows.shape[0])
    diagonal = np.full(len(numbers), value, np.result_type(rows.dtype, value))
    parts = diagonal, first + numbers, np.arange(len(numbers) + 1)
    return added(rows, sparse.csr_array(parts, shape=rows.shape))


def multiplied_entries(a: sparse.csr_array, b: sparse.csr_array) -> sparse.csr_array:
    """Local. The products of entries on the places of both: SciPy's leaves out zeros."""
    both = []
    for one, other in ((a, b), (b, a)):
        number = sparse.csr_array((np.arange(1, one.nnz + 1), one.indices, one.indptr), one.shape)
        place = sparse.csr_array((np.ones(other.nnz, int), other.indices, other.indptr), a.shape)
        both.append(sparse.csr_array(number.multiply(place)))
    at, there = (each.data - 1 for each in both)
    values = a.data[at] * b.data[there]
    return sparse.csr_array((values, both[0].indices, both[0].indptr), shape=a.shape)


def _moved(comm: MPI.Intracomm, rows: sparse.csr_array, to: Counts, of: Counts) -> sparse.csr_array:
    """Collective. Consecutive rows to each rank, and what comes, as of :func:`.moved`."""
    came = moved(comm, np.diff(rows.indptr).astype(np.int64), to, of)
    indptr = np.concatenate([[0], np.cumsum(came)])
    send = np.diff(rows.indptr[np.concatenate([[0], np.cumsum(to)])].astype(np.int64))
    recv = np.diff(indptr[np.concatenate([[0], np.cumsum(of)])])
    kind = index_dtype(rows.shape[1])
    indices = moved(comm, np.ascontiguousarray(rows.indices, kind), send, recv)
    data = moved(comm, rows.data, send, recv)
    wide = index_dtype(max(rows.shape[1], len(data)))
    parts = data, indices.astype(wide, copy=False), indptr.astype(wide)
    return sparse.csr_array(parts, shape=(len(came), rows.shape[1]))
