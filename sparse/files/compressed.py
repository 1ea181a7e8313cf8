"""Compressed rows or columns, their pointers spread over the ranks, become coordinates."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives import agreed
from onesided.collectives.agreement import words_of_all
from onesided.sparse.errors import MatrixFileError
from onesided.sparse.moving import before
from onesided.sparse.partition import Partition
from onesided.sparse.triplets import sent_to


def major_indices(
    comm: MPI.Intracomm, path: str, pointers: NDArray[np.int64], first: int, entries: Partition
) -> NDArray[np.int64]:
    """Collective. For each entry that this rank owns the row (or column) that it belongs to.

    ``pointers`` are this rank's, in the order of the ranks, from number ``first`` on: entry
    numbers from 0, one more than there are rows, each where a row begins. No rank needs all:
    a pointer goes to the rank that owns its entry, which counts how many rows began before.
    Raises ``MatrixFileError`` on every rank where they do not ascend from 0 to the last entry.
    """
    _check(comm, path, pointers, first, entries.size)
    inside = pointers[pointers < entries.size]
    (begun,) = sent_to(comm, entries.owners(inside), [inside])
    start, stop = entries.range(comm.rank)
    counts = np.bincount(begun - start, minlength=stop - start)
    earlier = before(comm, len(begun))[0]
    major: NDArray[np.int64] = earlier - 1 + np.cumsum(counts, dtype=np.int64)
    return major


def _check(
    comm: MPI.Intracomm, path: str, pointers: NDArray[np.int64], first: int, entries: int
) -> None:
    """Collective. Raise unless the pointers of all ranks ascend from 0 to ``entries``."""
    mine = np.array([len(pointers) > 0, *pointers[:1], *pointers[-1:]], np.int64)
    words = words_of_all(3 * comm.size, np.int64)
    comm.Allgather(np.resize(mine, 3), words)
    ends = words.reshape(comm.size, 3)
    known = ends[ends[:, 0] > 0, 1:].tolist()
    earlier = [end for there, _, end in ends[: comm.rank].tolist() if there]
    with agreed(comm):
        run = np.concatenate([np.array(earlier[-1:], np.int64), pointers])
        falls = np.flatnonzero(np.diff(run) < 0)
        if len(pointers) and len(falls):
            at = int(falls[0])
            raise MatrixFileError(
                f"{path}: pointer {first + at + 1 - len(earlier[-1:])} is {run[at + 1]}, "
                f"the one before it {run[at]}"
            )
        if not known or (known[0][0], known[-1][1]) != (0, entries):
            found = f"from {known[0][0]} to {known[-1][1]}" if known else "nowhere"
            raise MatrixFileError(f"{path}: pointers go {found}, not from 0 to {entries}")


def check_indices(
    comm: MPI.Intracomm, path: str, name: str, indices: NDArray[np.int64], size: int, first: int
) -> None:
    """Collective. Raise unless all ranks' indices lie in 0 to ``size - 1``.

    ``first`` is the number of this rank's first entry.
    """
    with agreed(comm):
        bad = np.flatnonzero((indices < 0) | (indices >= size))
        if len(bad):
            raise MatrixFileError(
                f"{path}: {name} index {indices[bad[0]]} of entry {first + int(bad[0])} is out "
                f"of range, there are {size} {name}s"
            )
