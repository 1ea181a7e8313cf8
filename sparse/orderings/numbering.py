"""New indices for the rows of a matrix, so that every rank's rows are one block of them."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any
from zlib import crc32

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray
from scipy import sparse

from onesided.collectives import ResourceError, UnsupportedError, agreed
from onesided.sparse.moving import balanced, gathered, scattered
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


_FEW_PARTS = 8  # up to here METIS is better at halving again and again (its manual, section 5)
_LARGEST = np.iinfo(np.int32).max
_SEED = 1


def metis_parts(
    graph: sparse.csr_array, weights: NDArray[np.int64], parts: int
) -> NDArray[np.int32]:
    """Local. A part for each vertex: parts of about equal weight, few edges between them.

    ``graph`` is symmetric, without loops; its values are not looked at. The same graph gets the
    same parts. Raises :class:`UnsupportedError` without pymetis, and where METIS's 32-bit
    integers cannot count the graph's edges or its weight.
    """
    if find_spec("pymetis") is None:
        raise UnsupportedError("the METIS partition needs pymetis (the extra partition)")
    if max(graph.nnz, int(weights.sum())) > _LARGEST:
        raise UnsupportedError(
            f"METIS counts in 32 bits: {graph.nnz} edges, weight {int(weights.sum())}"
        )
    vertices = len(weights)
    if parts == 1 or vertices <= parts or graph.nnz == 0:
        blocks = Partition.balanced(weights, parts)
        return blocks.owners(np.arange(vertices)).astype(np.int32)
    import pymetis

    adjacency = pymetis.CSRAdjacency(_narrow(graph.indptr), _narrow(graph.indices))
    options = pymetis.Options(seed=_SEED)
    halving = parts <= _FEW_PARTS
    _, found = pymetis.part_graph(
        parts, adjacency, vweights=_narrow(weights), recursive=halving, options=options
    )
    return np.asarray(found, np.int32)


def _narrow(numbers: NDArray[Any]) -> NDArray[np.int32]:
    return np.ascontiguousarray(numbers, np.int32)


How = str | Partition | NDArray[np.integer[Any]]


#: The blocks that rows are to be in, and the new index of each row that this rank has now; None (on
#: all ranks) where every row keeps its index.
Numbering = tuple[Partition, NDArray[np.int64] | None]


def numbering(
    comm: MPI.Intracomm, rows: sparse.csr_array, given: Partition, how: How, budget: int
) -> Numbering:
    """Collective. The numbering that ``how`` asks for; see :func:`~onesided.sparse.partitioned`.

    ``comm`` must be free of other messages. Raises the same error on every rank.
    """
    with agreed(comm, _words(how)):
        _check(comm, given, how, rows.shape[1])
    if isinstance(how, Partition):
        return how, None
    if isinstance(how, str):
        return _by_name(comm, rows, given, how, budget)
    start, stop = given.range(comm.rank)
    return _by_owners(comm, how[start:stop] if len(how) != stop - start else how, given)


def _words(how: object) -> str:
    """What must be equal on all ranks."""
    if isinstance(how, Partition):
        return f"partitioned with {how.parts} parts, their starts {crc32(how.starts.tobytes()):x}"
    return f"partitioned with {how!r}" if isinstance(how, str) else "partitioned with owners"


def _check(comm: MPI.Intracomm, given: Partition, how: How, n_cols: int) -> None:
    """Local. Raise what is wrong with ``how`` on this rank."""
    if isinstance(how, Partition):
        if how.parts != comm.size or how.size != given.size:
            raise ValueError(
                f"a partition of {how.size} rows in {how.parts} parts, for {given.size} rows "
                f"on {comm.size} ranks"
            )
    elif isinstance(how, str):
        if how not in ("rows", *ORDERS):
            raise ValueError(f"no partition {how!r}; there are rows, {', '.join(ORDERS)}")
        if how != "rows" and given.size != n_cols:
            raise ValueError(
                f"the partition {how} needs a square matrix, not {given.size} x {n_cols}"
            )
    else:
        if not isinstance(how, np.ndarray) or how.ndim != 1 or how.dtype.kind not in "iu":
            raise TypeError(
                "a partition is a name, a Partition, or an array of an owner for each row, not "
                f"{type(how).__name__}"
            )
        mine = int(given.lengths()[comm.rank])
        if len(how) not in (mine, given.size):
            raise ValueError(
                f"{len(how)} owners for the {mine} rows of rank {comm.rank}, {given.size} in all"
            )
        if len(how) and not (0 <= how.min() and how.max() < comm.size):
            raise ValueError(f"owners {how.min()} to {how.max()} on {comm.size} ranks")


def _by_name(
    comm: MPI.Intracomm, rows: sparse.csr_array, given: Partition, how: str, budget: int
) -> Numbering:
    """Collective. The rows in their order, cut where the nonzeros are balanced; or the order, and
    the cuts, that rank 0 finds in the graph."""
    mine = np.diff(rows.indptr).astype(np.int64) + 1
    if how == "rows" or given.size == 0:
        return balanced(comm, mine) or given, None
    graph = gathered_graph(comm, rows, given, budget)
    weights = gathered(comm, mine)
    numbers, partition = None, given
    with agreed(comm):
        if graph is not None and weights is not None:
            order, partition = ORDERS[how](graph, weights, comm.size)
            numbers = np.empty(len(order), np.int64)
            numbers[order] = np.arange(len(order))
    partition = comm.bcast(partition)
    return _numbering(comm, partition, scattered(comm, numbers, given), given)


Order = tuple[NDArray[Any], Partition]


def _metis(graph: sparse.csr_array, weights: NDArray[np.int64], parts: int) -> Order:
    """Local. Parts of about equal nonzeros with few ghosts; in a part, rows in their order."""
    owners = metis_parts(graph, weights, parts)
    lengths = np.bincount(owners, minlength=parts)
    return np.argsort(owners, kind="stable"), Partition.from_lengths(lengths)


def _bandwidth(graph: sparse.csr_array, weights: NDArray[np.int64], parts: int) -> Order:
    """Local. The reverse Cuthill-McKee order, cut where the nonzeros are balanced."""
    from scipy.sparse.csgraph import reverse_cuthill_mckee  # slow to import

    order = reverse_cuthill_mckee(graph, symmetric_mode=True)
    return order, Partition.balanced(weights[order], parts)


ORDERS: dict[str, Callable[[sparse.csr_array, NDArray[np.int64], int], Order]] = {
    "metis": _metis,
    "rcm": _bandwidth,
}


def _by_owners(comm: MPI.Intracomm, owners: NDArray[Any], given: Partition) -> Numbering:
    """Collective. Every row to its owner, among the rows of an owner in their order."""
    owners = owners.astype(np.intp, copy=False)
    counts = np.bincount(owners, minlength=comm.size).astype(np.int64)
    lower, total = np.zeros_like(counts), np.zeros_like(counts)
    comm.Exscan(counts, lower, op=MPI.SUM)
    comm.Allreduce(counts, total, op=MPI.SUM)
    partition = Partition.from_lengths(total)
    order = np.argsort(owners, kind="stable")
    place = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    first = partition.starts[:-1] + (lower if comm.rank else 0)
    numbers = np.empty(len(owners), np.int64)
    numbers[order] = np.repeat(first, counts) + place
    return _numbering(comm, partition, numbers, given)


def _numbering(
    comm: MPI.Intracomm, partition: Partition, numbers: NDArray[np.int64], given: Partition
) -> Numbering:
    """Collective. Without numbers where no row gets another index."""
    same = bool(np.array_equal(numbers, np.arange(*given.range(comm.rank))))
    return partition, None if comm.allreduce(same, op=MPI.LAND) else numbers
