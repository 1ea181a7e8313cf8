"""The graph of a distributed matrix, gathered to one rank for those who partition or order it."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray
from scipy import sparse

from onesided.collectives import ResourceError, agree
from onesided.sparse.partition import Partition, index_dtype
from onesided.sparse.triplets import Triplets, route

GRAPH_BYTES = 4 << 30  # that a gathered graph may take on one rank
_ITEMS_AT_ONCE = 1 << 26


def gathered_graph(
    comm: MPI.Intracomm, rows: sparse.csr_array, given: Partition, budget: int = GRAPH_BYTES
) -> sparse.csr_array | None:
    """Collective. The pattern of A + A^T without its diagonal, on rank 0; None elsewhere.

    ``rows`` are this rank's, ``given.range(comm.rank)`` of a square matrix, columns global. The
    sum is made where the rows are; rank 0 holds the result only, one bool and one index for each
    of its entries. Raises :class:`ResourceError` on every rank where that is more than
    ``budget`` bytes.
    """
    mine = _own_pattern(comm, rows, given)
    entries = int(comm.allreduce(mine.nnz))
    index = np.dtype(index_dtype(max(entries, given.size)))
    need = entries * (index.itemsize + 1) + (given.size + 1) * index.itemsize
    if need > budget:
        raise ResourceError(
            f"the graph of {given.size} rows and {entries} edges takes {need} bytes on one rank, "
            f"{budget} are allowed: partition by rows, or give an owner for each row"
        )
    counts = gathered(comm, np.diff(mine.indptr).astype(index))
    indices = gathered(comm, mine.indices.astype(index))
    if counts is None or indices is None:
        return None
    indptr = np.concatenate([np.zeros(1, index), np.cumsum(counts, dtype=index)])
    data = np.ones(len(indices), np.bool_)
    return sparse.csr_array((data, indices, indptr), shape=(given.size, given.size))


def _own_pattern(comm: MPI.Intracomm, rows: sparse.csr_array, given: Partition) -> sparse.csr_array:
    """Collective. This rank's rows of the pattern of A + A^T, without the diagonal."""
    start, stop = given.range(comm.rank)
    index = index_dtype(given.size)
    row = np.repeat(np.arange(start, stop, dtype=index), np.diff(rows.indptr))
    col = rows.indices.astype(index)
    off = row != col
    here = Triplets(row[off], col[off], np.ones(int(off.sum()), np.bool_))
    there = route(comm, [Triplets(here.cols, here.rows, here.values)], given)
    both = [part.to_rows(start, stop, given.size) for part in (here, there)]
    return sparse.csr_array(both[0] + both[1])


def gathered(comm: MPI.Intracomm, part: NDArray[Any]) -> NDArray[Any] | None:
    """Collective. All ranks' parts in one array on rank 0; None elsewhere. One dtype on all."""
    lengths = agree(comm, None, f"gathered {part.dtype}", len(part))
    if comm.rank != 0:
        for first in range(0, len(part), _ITEMS_AT_ONCE):
            comm.Send(part[first : first + _ITEMS_AT_ONCE], dest=0)
        return None
    whole = np.empty(sum(lengths), part.dtype)
    whole[: len(part)] = part
    filled = len(part)
    for source in range(1, comm.size):
        stop = filled + lengths[source]
        for first in range(filled, stop, _ITEMS_AT_ONCE):
            comm.Recv(whole[first : min(first + _ITEMS_AT_ONCE, stop)], source=source, tag=0)
        filled = stop
    return whole


def dealt(comm: MPI.Intracomm, whole: NDArray[Any] | None, given: Partition) -> NDArray[Any]:
    """Collective. This rank's block, by ``given``, of an array that rank 0 has."""
    dtype = comm.bcast(None if whole is None else whole.dtype)
    if dtype is None:
        raise ValueError("rank 0 has no array to deal")
    start, stop = given.range(comm.rank)
    if whole is not None and comm.rank == 0:
        for rank in range(1, comm.size):
            first, last = given.range(rank)
            for begin in range(first, last, _ITEMS_AT_ONCE):
                comm.Send(whole[begin : min(begin + _ITEMS_AT_ONCE, last)], dest=rank)
        return whole[start:stop]
    part = np.empty(stop - start, dtype)
    for begin in range(0, len(part), _ITEMS_AT_ONCE):
        comm.Recv(part[begin : begin + _ITEMS_AT_ONCE], source=0, tag=0)
    return part
