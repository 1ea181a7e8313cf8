"""Entries (row, column, value) that lie anywhere become rows where they belong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray
from scipy import sparse

from onesided.sparse.moving import Route, balanced
from onesided.sparse.partition import Integers, Partition

_NUMBERS_AT_ONCE = 1 << 16  # that are counted while they stay in the cache
_TABLE_PER_NUMBER = 4  # entries of a table that cost less than sorting a number


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
        kinds = [(piece.rows.dtype, piece.cols.dtype, piece.values.dtype) for piece in pieces]
        if kinds == [(np.dtype(index), np.dtype(index), dtype)]:
            return pieces.pop()
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
        """CSR of the rows ``start:stop``, columns global, duplicates summed as SciPy does.

        The numbers of the rows are changed: from now on they count from ``start``.
        """
        np.subtract(self.rows, start, out=self.rows, casting="unsafe")
        place = (self.values, (self.rows, self.cols))
        return sparse.coo_array(place, shape=(stop - start, n_cols)).tocsr()


def balanced_rows(comm: MPI.Intracomm, rows: NDArray[Any], n_rows: int) -> Partition:
    """Collective. The partition that balances nonzeros, each rank holding any of the entries.

    A row weighs its number of entries plus one, so that empty rows are shared out, too. Each rank
    counts its own entries, and the rank ``t`` adds up the counts of the ``t``-th of even blocks.
    """
    even = Partition.even(n_rows, comm.size)
    numbers, counts = _counted(rows)
    came, theirs = sent_to(comm, even.owners(numbers), [numbers, counts])
    start, stop = even.range(comm.rank)
    weights = np.ones(stop - start, np.int64)
    np.add.at(weights, came - start, theirs)
    return balanced(comm, weights) or even


def _counted(numbers: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Local. The different numbers, ascending, and how often each of them is there."""
    if not len(numbers):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    first, last = int(numbers.min()), int(numbers.max())
    if last - first > _TABLE_PER_NUMBER * len(numbers):
        found, counts = np.unique(numbers, return_counts=True)
        return found.astype(np.int64), counts.astype(np.int64)
    table = np.zeros(last - first + 1, np.int64)
    step = max(len(table) // 4, _NUMBERS_AT_ONCE)
    for at in range(0, len(numbers), step):
        part = numbers[at : at + step]
        low = int(part.min())
        counts = np.bincount(part - part.dtype.type(low))
        table[low - first : low - first + len(counts)] += counts
    found = np.flatnonzero(table)
    return found + first, table[found]


def route(comm: MPI.Intracomm, entries: list[Triplets], partition: Partition) -> Triplets:
    """Collective. Send every entry to the rank that owns its row.

    ``entries`` has one member, and is emptied, so that not all is in memory twice.
    """
    mine = entries.pop()
    way = Route(comm, partition.owners(mine.rows))
    arrays = [mine.values, mine.cols, mine.rows]
    del mine
    return Triplets(*(way.send(arrays.pop()) for _ in range(3)))


def sent_to(
    comm: MPI.Intracomm, owners: Integers, arrays: list[NDArray[Any]]
) -> list[NDArray[Any]]:
    """Collective. Send item k of each array to the rank ``owners[k]``; what has come, by rank, of
    each in its order. The arrays' items keep their company."""
    way = Route(comm, owners)
    return [way.send(array) for array in arrays]
