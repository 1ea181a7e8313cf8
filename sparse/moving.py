"""Items of arrays and entries of matrices that go from rank to rank; a rank speaks with those only
that it has some for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray
from scipy import sparse

from onesided.collectives import agreed
from onesided.collectives.agreement import largest, told
from onesided.collectives.context import Context
from onesided.sparse.partition import FEW_PARTS, TABLE_PER_NUMBER, Integers, Partition, cuts

_MANY = 1 << 60
_PIECE_BYTES = 1 << 30  # of a message: below what a 32-bit count can say
_NUMBERS_AT_ONCE = 1 << 16  # that are counted while they stay in the cache
_NUMBERED: dict[int, np.dtype[Any]] = {
    np.dtype(char).num: np.dtype(char) for char in "?bBhHiIlLqQefdgFDG"
}

Counts = NDArray[np.int64]


def counterparts(comm: MPI.Intracomm, counts: Counts) -> Counts:
    """Collective. How many items come from each rank, where ``counts[p]`` go to rank ``p``."""
    context = Context.of(comm)
    words = {rank: int(counts[rank]) for rank in np.flatnonzero(counts).tolist()}
    found = np.zeros_like(counts)
    for rank, count in told(context.comm, context.next_tag(), words).items():
        found[rank] = count
    return found


def moved(comm: MPI.Intracomm, send: NDArray[Any], to: Counts, of: Counts) -> NDArray[Any]:
    """Collective. What has come by ascending rank: ``to[p]`` of the items, which lie one after the
    other, go to rank ``p``, ``of[p]`` come from it."""
    context = Context.of(comm)
    comm, tag = context.comm, context.next_tag()
    received = np.empty((int(of.sum()), *send.shape[1:]), send.dtype)
    width = received[:1].nbytes or send[:1].nbytes
    sources, targets = (np.cumsum(counts) - counts for counts in (of, to))
    theirs, mine = _bytes(received), _bytes(np.ascontiguousarray(send))
    requests = []
    for rank in _others(comm, of):
        for part in _pieces(theirs, sources[rank] * width, of[rank] * width):
            requests.append(comm.Irecv(part, rank, tag))
    for rank in _others(comm, to):
        for part in _pieces(mine, targets[rank] * width, to[rank] * width):
            requests.append(comm.Isend(part, rank, tag))
    own = slice(sources[comm.rank], sources[comm.rank] + of[comm.rank])
    first = targets[comm.rank]
    received[own] = send[first : first + to[comm.rank]]
    MPI.Request.Waitall(requests)
    return received


def _others(comm: MPI.Intracomm, counts: Counts) -> list[int]:
    """Local. The ranks that have some, from the next one on, so that not all begin with one."""
    ranks = np.flatnonzero(counts)
    ranks = ranks[ranks != comm.rank]
    return [int(rank) for rank in np.roll(ranks, -int(np.searchsorted(ranks, comm.rank)))]


def _bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    return array.reshape(-1).view(np.uint8)


def _pieces(whole: NDArray[np.uint8], start: int, length: int) -> list[NDArray[np.uint8]]:
    whole = whole[start : start + length]
    return [whole[first : first + _PIECE_BYTES] for first in range(0, length, _PIECE_BYTES)]


class Route:
    """Which item goes to which rank; found once, for any number of arrays."""

    def __init__(self, comm: MPI.Intracomm, owners: Integers) -> None:
        """Collective. Item k goes to the rank ``owners[k]``."""
        self._comm = comm
        self._to = np.bincount(owners, minlength=comm.size).astype(np.int64)
        self._order: Integers | None = None
        if len(owners) and bool(np.any(owners[1:] < owners[:-1])):
            self._order = _by_owner(owners, self._to)
        self._of = counterparts(comm, self._to)

    def send(self, array: NDArray[Any]) -> NDArray[Any]:
        """Collective. What has come, by rank, of each in its order."""
        if self._order is not None:
            array = _taken(array, self._order)
        return moved(self._comm, array, self._to, self._of)


def _taken(array: NDArray[Any], order: Integers) -> NDArray[Any]:
    """Local. The items in this order; some at a time, as NumPy makes long indices of short ones."""
    taken = np.empty((len(order), *array.shape[1:]), array.dtype)
    for at in range(0, len(order), _NUMBERS_AT_ONCE):
        part = slice(at, at + _NUMBERS_AT_ONCE)
        np.take(array, order[part], axis=0, out=taken[part], mode="clip")
    return taken


def _by_owner(owners: Integers, counts: Counts) -> Integers:
    """Local. Items by owner, each owner's in their order; by a look for each where they are few,
    which needs less memory than sorting."""
    few = len(owners) < 1 << 32
    kind: np.dtype[Any] = np.min_scalar_type(len(owners)) if few else np.dtype(np.intp)
    if len(counts) > FEW_PARTS:
        return np.argsort(owners, kind="stable").astype(kind)
    order, stop = np.empty(len(owners), kind), 0
    for owner, count in enumerate(counts.tolist()):
        start, stop = stop, stop + count
        order[start:stop] = np.flatnonzero(owners == owner)
    return order


def of_all(comm: MPI.Intracomm, mine: Any) -> NDArray[Any]:
    """Collective. By rank, a number, or an array, of each, of one dtype and shape."""
    mine = np.asarray(mine, order="C")
    everyone = np.empty((comm.size, *mine.shape), mine.dtype)
    comm.Allgather(mine, everyone)
    return everyone


def lengths(comm: MPI.Intracomm, length: int) -> Partition:
    """Collective. The partition whose blocks have the lengths that the ranks pass."""
    return Partition.from_lengths(of_all(comm, np.int64(length)))


def blocks_of(comm: MPI.Intracomm, shape: tuple[int, int]) -> Partition:
    """Collective. That of the rows of which ranks pass blocks of these shapes.

    Raises ``ValueError`` on every rank where they differ in columns.
    """
    everyone = of_all(comm, np.array(shape, np.int64))
    other = np.flatnonzero(everyone[:, 1] != everyone[0, 1])
    if len(other):
        raise ValueError(
            f"rank 0 passes {everyone[0, 1]} columns, rank {other[0]} {everyone[other[0], 1]}"
        )
    return Partition.from_lengths(everyone[:, 0])


def shared_dtype(comm: MPI.Intracomm, kind: np.dtype[Any], counts: bool = True) -> np.dtype[Any]:
    """Collective. The one that holds those of all ranks, in this machine's order of bytes.

    That of a rank where it does not count is left out, unless it counts nowhere.
    """
    kind = kind.newbyteorder("=")
    numbers = np.array([kind.num, -kind.num] if counts else [-1 << 60] * 2, np.int64)
    comm.Allreduce(MPI.IN_PLACE, numbers, op=MPI.MAX)
    known = _NUMBERED.get(int(numbers[0])) if numbers[0] == -numbers[1] else None
    if known is not None:
        return known
    everyone = comm.allgather((kind, counts))
    counted = [each for each, has in everyone if has] or [each for each, _ in everyone]
    with agreed(comm):
        return np.result_type(*counted)


def shared_form(
    comm: MPI.Intracomm, name: str, block: NDArray[Any], error: Exception | None = None, *more: int
) -> tuple[np.dtype[Any], int, list[int]]:
    """Collective. :func:`shared_dtype`; of how many vectors ranks pass blocks, 0 for one, (n,), an
    empty list of a rank without rows does not count; and the largest of each of some numbers. Ranks
    agree once where blocks are alike. ``ValueError`` on every rank where they differ, and the
    ``error`` of a rank that has no block."""
    kind = block.dtype.newbyteorder("=")
    numbers = [kind.num, -kind.num] if block.size else [-_MANY] * 2
    most, least, *rest = largest(comm, error, name, [*numbers, *width(block), *more])
    known = _NUMBERED.get(most) if most == -least else None
    dtype = shared_dtype(comm, kind, block.size > 0) if known is None else known
    return dtype, one_width(name, *rest[:2]), rest[2:]


def width(block: NDArray[Any]) -> list[int]:
    """Local. The numbers of which :func:`one_width` takes the largest of all ranks."""
    k = block.shape[1] if block.ndim == 2 else 0
    return [k, -k] if block.ndim == 2 or block.size > 0 else [0, -_MANY]


def one_width(name: str, most: int, least: int) -> int:
    """Local. How many vectors all ranks have, by the largest numbers; ``ValueError`` if unlike."""
    if -least not in (most, _MANY):
        raise ValueError(f"{name}: ranks have blocks of {-least} and of {most} vectors (0: one)")
    return most


def gathered(comm: MPI.Intracomm, part: NDArray[Any], root: int = 0) -> NDArray[Any] | None:
    """Collective. The parts of all ranks in one array on ``root``, of a dtype that holds all; None
    elsewhere. The dtype of a part without items does not count."""
    part = np.asarray(part, shared_dtype(comm, part.dtype, bool(len(part))))
    here = comm.rank == root
    to, of = np.zeros(comm.size, np.int64), lengths(comm, len(part)).lengths()
    to[root] = len(part)
    came = moved(comm, part, to, of if here else np.zeros_like(of))
    return came if here else None


def everywhere(comm: MPI.Intracomm, partition: Partition, block: NDArray[Any]) -> NDArray[Any]:
    """Collective. The whole of a vector, or block of k, on every rank."""
    whole = np.empty((partition.size, *block.shape[1:]), block.dtype)
    width = int(np.prod(block.shape[1:], dtype=np.int64))
    counts, starts = partition.lengths() * width, partition.starts[:-1] * width
    comm.Allgatherv(block, [whole, (counts.tolist(), starts.tolist())])
    return whole


def scattered(
    comm: MPI.Intracomm, whole: NDArray[Any] | None, partition: Partition, root: int = 0
) -> NDArray[Any]:
    """Collective. This rank's block of the array that ``root`` has; others pass None."""
    here = comm.rank == root
    like = comm.bcast((whole.dtype, whole.shape[1:]) if here and whole is not None else None, root)
    if like is None:
        raise ValueError(f"rank {root} has no array to deal out")
    send = whole if here and whole is not None else np.empty((0, *like[1]), like[0])
    of = np.zeros(comm.size, np.int64)
    of[root] = partition.lengths()[comm.rank]
    return moved(comm, send, partition.lengths() if here else np.zeros_like(of), of)


def before(comm: MPI.Intracomm, number: int) -> tuple[int, int]:
    """Collective. The sum of the numbers of lower ranks, and that of all."""
    mine, lower, total = np.array([number], np.int64), np.zeros(1, np.int64), np.zeros(1, np.int64)
    comm.Exscan(mine, lower, op=MPI.SUM)
    comm.Allreduce(mine, total, op=MPI.SUM)
    return int(lower[0]) if comm.rank else 0, int(total[0])


def balanced(comm: MPI.Intracomm, weights: NDArray[np.int64]) -> Partition | None:
    """Collective. Blocks of about equal weight; ``weights`` of this rank's run of the indices.

    None where there is no weight.
    """
    lower, total = before(comm, int(weights.sum()))
    if not total:
        return None
    starts = cuts(weights, lower, total, comm.size)
    comm.Allreduce(MPI.IN_PLACE, starts, op=MPI.SUM)
    return Partition(starts)


# -- entries of matrices -------------------------------------------------------------------------


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
    way = Route(comm, even.owners(numbers))
    came, theirs = way.send(numbers), way.send(counts)
    start, stop = even.range(comm.rank)
    weights = np.ones(stop - start, np.int64)
    np.add.at(weights, came - start, theirs)
    return balanced(comm, weights) or even


def _counted(numbers: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Local. The different numbers, ascending, and how often each of them is there."""
    if not len(numbers):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    first, last = int(numbers.min()), int(numbers.max())
    if last - first > TABLE_PER_NUMBER * len(numbers):
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
    counts = table[found]
    found += first
    return found, counts


def route(comm: MPI.Intracomm, entries: list[Triplets], partition: Partition) -> Triplets:
    """Collective. Send every entry to the rank that owns its row.

    ``entries`` has one member, and is emptied, so that not all is in memory twice.
    """
    mine = entries.pop()
    way = Route(comm, partition.owners(mine.rows))
    arrays = [mine.values, mine.cols, mine.rows]
    del mine
    return Triplets(*(way.send(arrays.pop()) for _ in range(3)))
