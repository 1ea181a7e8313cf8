"""Who owns which rows: contiguous blocks, computed without a single MPI call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.integer[Any]]
TABLE_PER_NUMBER = 4  # entries of a table that cost less than sorting a number
FEW_PARTS = 16  # whose owners are found faster by a comparison for each than by searching


@dataclass(frozen=True, eq=False)
class Partition:
    """A disjoint assignment of the indices below ``size`` to parts, each one contiguous block.

    Part ``p`` owns the half-open range ``starts[p]:starts[p + 1]``; a part may be empty.

    Examples
    --------
    >>> partition = Partition(np.array([0, 4, 8]))
    >>> partition.size, partition.parts
    (8, 2)
    """

    starts: NDArray[np.int64]

    def __post_init__(self) -> None:
        starts = np.asarray(self.starts)
        if starts.dtype.kind not in "iu":
            raise TypeError(f"starts of parts are {starts.dtype}, not integers")
        starts = starts.astype(np.int64, copy=False)
        object.__setattr__(self, "starts", starts)
        if len(starts) < 2 or starts[0] != 0 or bool(np.any(np.diff(starts) < 0)):
            raise ValueError(f"starts of parts do not ascend from 0: {starts.tolist()}")

    def __repr__(self) -> str:
        return f"<Partition of {self.size} in {self.parts} parts, {crc32(self.starts.tobytes()):x}>"

    @classmethod
    def even(cls, size: int, parts: int) -> Partition:
        """Blocks whose lengths differ by one at most, the longer ones first."""
        _check(size, parts)
        share, rest = divmod(size, parts)
        part = np.arange(parts + 1, dtype=np.int64)
        return cls(part * share + np.minimum(part, rest))

    @classmethod
    def balanced(cls, weights: Integers, parts: int) -> Partition:
        """Blocks of about equal weight: an index goes where the middle of its weight falls."""
        _check(len(weights), parts)
        total = int(weights.sum(dtype=np.int64))
        if total == 0:
            return cls.even(len(weights), parts)
        return cls(cuts(weights, 0, total, parts))

    @classmethod
    def from_lengths(cls, lengths: Integers) -> Partition:
        """Blocks of the given lengths, one after the other."""
        return cls(np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]))

    @property
    def parts(self) -> int:
        """Number of parts."""
        return len(self.starts) - 1

    @property
    def size(self) -> int:
        """Number of indices."""
        return int(self.starts[-1])

    def check_parts(self, ranks: int) -> None:
        """``ValueError`` unless there is a part for each of so many ranks."""
        if self.parts != ranks:
            raise ValueError(f"a partition of {self.parts} parts on {ranks} ranks")

    def range(self, part: int) -> tuple[int, int]:
        """The half-open range of a part."""
        return int(self.starts[part]), int(self.starts[part + 1])

    def lengths(self) -> NDArray[np.int64]:
        """How many indices each part owns."""
        return np.diff(self.starts)

    def owners(self, indices: Integers) -> Integers:
        """The part that owns each of the indices, in few bytes."""
        inner, kind = self.starts[1:-1], np.min_scalar_type(self.parts)
        if len(inner) > FEW_PARTS:
            return (np.searchsorted(self.starts, indices, side="right") - 1).astype(kind)
        behind = np.zeros(indices.shape, kind)
        for start in inner.tolist():
            behind += indices >= start
        return behind


def _check(size: int, parts: int) -> None:
    if size < 0 or parts < 1:
        raise ValueError(f"cannot partition {size} indices into {parts} parts")


def cuts(weights: Integers, before: int, total: int, parts: int) -> NDArray[np.int64]:
    """How many of these indices lie before each part of a balanced partition; parts + 1 numbers.

    ``weights`` belong to a run of consecutive indices, ``before`` is the weight of all indices
    ahead of the run, ``total`` that of all. The sum over the runs that make up the whole gives
    the starts of the partition.
    """
    ends = before + np.cumsum(weights, dtype=np.int64)
    middles = 2 * ends - weights
    part = np.minimum(middles * parts // (2 * total), parts - 1)
    inner = np.searchsorted(part, np.arange(parts), side="left")
    return np.append(inner, len(weights)).astype(np.int64)


def index_dtype(largest: int) -> type[np.int32] | type[np.int64]:
    """The smaller of the two integer types of CSR that holds the number."""
    return np.int32 if largest <= np.iinfo(np.int32).max else np.int64


def check_columns(indices: Integers, count: int) -> None:
    """``ValueError`` for a column that is not there."""
    if indices.size and (indices.min() < 0 or indices.max() >= count):
        first, last = indices.min(), indices.max()
        raise ValueError(f"columns {first} to {last} in a matrix of {count} columns")


def split_columns(
    indices: Integers, columns: Partition, part: int
) -> tuple[Integers, NDArray[np.int64], NDArray[np.int64]]:
    """Global columns renumbered to [owned by ``part`` | ghost], the ghosts, and how many of them
    belong to each part.

    Ghosts ascend, so they are sorted by (owner, global index). ``ValueError`` for an index that no
    part owns.
    """
    check_columns(indices, columns.size)
    # those of a rank without rows may be too narrow for where its columns start
    indices = indices.astype(index_dtype(columns.size), copy=False)
    start, stop = columns.range(part)
    n_own = stop - start
    foreign = (indices < start) | (indices >= stop)
    ghosts, number = ranked(indices[foreign])
    dtype = index_dtype(max(n_own + len(ghosts), len(indices)))
    local: Integers = (indices - start).astype(dtype, copy=False)
    local[foreign] = number.astype(dtype, copy=False) + n_own
    counts = np.bincount(columns.owners(ghosts), minlength=columns.parts)
    return local, ghosts.astype(np.int64), counts.astype(np.int64)


def ranked(numbers: Integers) -> tuple[Integers, Integers]:
    """The different numbers, ascending, and for each number its place among them.

    Where there are many in a short range, by a table of the range instead of by sorting.
    """
    if not len(numbers):
        return numbers, numbers
    first = int(numbers.min())
    length = int(numbers.max()) - first + 1
    if length > TABLE_PER_NUMBER * len(numbers):
        return np.unique(numbers, return_inverse=True)
    offsets = numbers - first
    seen = np.zeros(length, np.bool_)
    seen[offsets] = True
    count: Integers = np.cumsum(seen, dtype=index_dtype(length))
    count -= 1
    return np.flatnonzero(seen) + first, count[offsets]
