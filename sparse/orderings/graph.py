"""The graph of a distributed matrix, gathered to one rank for those who partition or order it."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI
from scipy import sparse

from onesided.collectives import ResourceError
from onesided.sparse.moving import gathered
from onesided.sparse.partition import Partition, index_dtype
from onesided.sparse.triplets import Triplets, route

GRAPH_BYTES = 4 << 30  # that a gathered graph may take on one rank


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
