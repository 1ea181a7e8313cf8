"""Entries (row, column, value) that lie anywhere become rows where they belong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray
from scipy import sparse

from onesided.sparse.partition import Partition, cuts

ENTRIES_AT_ONCE = 1 << 20  # that a rank sends in one round of :func:`route`
_FEW_RANKS = 32  # for which looking for the items of each is faster than sorting


@dataclass(frozen=True, eq=False)
class Triplets:
    """Entries of a matrix with global, zero-based indices, in any order, duplicates allowed."""

    rows: NDArray[Any]
    cols: NDArray[Any]
    values: NDArray[Any]

    @classmethod
    def joined(
        cls, pieces: list[Triplets], index: type[np.integer[Any]], dtype: np.dtype[Any]
    ) -> Triplets:
        """All pieces in one, with the types given; the list is emptied."""
        length = sum(len(piece.values) for piece in pieces)
        joined = cls(np.empty(length, index), np.empty(length, index), np.empty(length, dtype))
        stop = length
        while pieces:
            piece = pieces.pop()
            start = stop - len(piece.values)
            joined.rows[start:stop] = piece.rows
            joined.cols[start:stop] = piece.cols
            joined.values[start:stop] = piece.values
            stop = start
        return joined

    def to_rows(self, start: int, stop: int, n_cols: int) -> sparse.csr_array:
        """CSR of the rows ``start:stop``, columns global, duplicates summed as SciPy does."""
        place = (self.values, (self.rows - start, self.cols))
        return sparse.coo_array(place, shape=(stop - start, n_cols)).tocsr()


def balanced_rows(comm: MPI.Comm, rows: NDArray[Any], n_rows: int) -> Partition:
    """Collective. The partition that balances nonzeros, each rank holding any of the entries.

    A row weighs its number of entries plus one, so that empty rows are shared out, too. A rank
    holds n_rows / size counters at most: rank ``t`` counts the entries of the ``t``-th of even
    blocks.
    """
    even = Partition.even(n_rows, comm.size)
    ascending = np.sort(rows)
    bounds = np.searchsorted(ascending, even.starts)
    weights = np.zeros(0, np.int64)
    for part in range(comm.size):
        start, stop = even.range(part)
        mine = ascending[bounds[part] : bounds[part + 1]] - start
        counts = np.bincount(mine, minlength=stop - start).astype(np.int64)
        total = np.empty_like(counts)
        comm.Reduce(counts, total if part == comm.rank else None, op=MPI.SUM, root=part)
        if part == comm.rank:
            weights = total + 1
    sums = comm.allgather(int(weights.sum()))
    if not any(sums):
        return even
    starts = cuts(weights, sum(sums[: comm.rank]), sum(sums), comm.size)
    comm.Allreduce(MPI.IN_PLACE, starts, op=MPI.SUM)
    return Partition(starts)


def route(comm: MPI.Comm, triplets: Triplets, partition: Partition) -> Triplets:
    """Collective. Send every entry to the rank that owns its row; see :func:`sent_to`."""
    owners = partition.owners(triplets.rows)
    return Triplets(*sent_to(comm, owners, [triplets.rows, triplets.cols, triplets.values]))


def sent_to(
    comm: MPI.Comm, owners: NDArray[np.intp], arrays: list[NDArray[Any]]
) -> list[NDArray[Any]]:
    """Collective. Send item k of each array to the rank ``owners[k]``; what has come, in any order.

    The arrays' items keep their company.
    """
    route = Route(comm, owners)
    return [route.send(array) for array in arrays]


class Route:
    """Which item goes to which rank; found once, for any number of arrays."""

    def __init__(self, comm: MPI.Comm, owners: NDArray[np.intp]) -> None:
        """Collective. Item k goes to the rank ``owners[k]``."""
        self._comm = comm
        self._order, self._to = _by_owner(owners, comm.size)
        self._of = np.empty_like(self._to)
        comm.Alltoall(self._to, self._of)
        self._places = np.concatenate([[0], np.cumsum(self._to)[:-1]])
        self._most = max(ENTRIES_AT_ONCE // comm.size, 1)
        mine = -(-int(self._to.max()) // self._most)
        self._rounds: int = comm.allreduce(mine, op=MPI.MAX)

    def send(self, array: NDArray[Any]) -> NDArray[Any]:
        """Collective. What has come, in an order that is the same for every array.

        In rounds of at most ``ENTRIES_AT_ONCE`` items from each rank, straight into the result.
        """
        to, of, most = self._to, self._of, self._most
        send = array.take(self._order)
        receive, filled = np.empty(int(of.sum()), array.dtype), 0
        for done in range(0, self._rounds * most, most):
            now, come = np.clip(to - done, 0, most), np.clip(of - done, 0, most)
            displacements = np.concatenate([[0], np.cumsum(come)[:-1]])
            stop = filled + int(come.sum())
            self._comm.Alltoallv(
                [send, (now.tolist(), (self._places + np.minimum(done, to)).tolist())],
                [receive[filled:stop], (come.tolist(), displacements.tolist())],
            )
            filled = stop
        return receive


def _by_owner(owners: NDArray[np.intp], ranks: int) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """Local. The items in the order of their owners, and how many each of them has."""
    if ranks > _FEW_RANKS:
        narrow = owners.astype(np.uint16 if ranks < 1 << 16 else np.int64)
        counts = np.bincount(owners, minlength=ranks).astype(np.int64)
        return np.argsort(narrow, kind="stable"), counts
    narrow = owners.astype(np.uint8)
    parts = [np.flatnonzero(narrow == rank) for rank in range(ranks)]
    return np.concatenate(parts), np.array([len(part) for part in parts], np.int64)
