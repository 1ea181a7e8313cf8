"""Patterns of exchanges, buffers in every kind of memory, and what must arrive.

An element says where it comes from: ((round * P + source) * P + target) * 1000 + index, so that
a wrong route, an old round or a foreign block shows as the wrong integer.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from onesided.collectives import Alltoallv_init, Alltoallw_init, empty, free, methods

MEMORY = ["own", "window", "plain"]
GUARD = -7777


def names():
    """The registered methods."""
    return list(methods())


def any_order():
    """The methods whose requests may be started and completed in any order."""
    return [name for name, method in methods().items() if method.any_order]


def value(turn, source, target, index, size):
    return ((turn * size + source) * size + target) * 1000 + index


class Vector:
    """An Alltoallv by a table of counts, ``table[source, target]``, with gaps between blocks."""

    def __init__(self, comm, table, method, memory="own", info=None, dtype=np.int64, gap=1):
        self.comm, self.table = comm, np.asarray(table)
        self.rank, self.size = rank, size = comm.rank, comm.size
        self.counts = [int(n) for n in self.table[rank]]
        self.expected = [int(n) for n in self.table[:, rank]]
        self.displs = displacements(self.counts, gap)
        self.rdispls = displacements(self.expected, gap)
        self.send = np.zeros(sum(self.counts) + gap * (size + 1), dtype)
        self.window = None
        length = sum(self.expected) + gap * (size + 1)
        if memory == "own":
            spec = None
            self.rdispls = displacements(self.expected, 0)
        else:
            recv = empty(comm, length, dtype) if memory == "window" else np.empty(length, dtype)
            recv[:] = GUARD
            self.window = recv if memory == "window" else None
            spec = [recv, self.expected, self.rdispls]
        self.owns = memory == "own"
        self.request = Alltoallv_init(
            comm, [self.send, self.counts, self.displs], spec, method=method, info=info
        )

    def fill(self, turn):
        for target, (count, start) in enumerate(zip(self.counts, self.displs, strict=True)):
            self.send[start : start + count] = value(
                turn, self.rank, target, np.arange(count), self.size
            )

    def check(self, turn, got):
        rest = np.ones(len(got), bool)
        for source, (count, start) in enumerate(zip(self.expected, self.rdispls, strict=True)):
            block = slice(start, start + count)
            want = value(turn, source, self.rank, np.arange(count), self.size)
            want = want.astype(got.dtype)
            if not np.array_equal(got[block], want):
                raise AssertionError(
                    f"round {turn}: from rank {source} came {got[block][:5]}, not {want[:5]}"
                )
            rest[block] = False
        if not self.owns and not np.all(got[rest] == GUARD):
            raise AssertionError("bytes outside the receive blocks were written")

    def round(self, turn):
        self.fill(turn)
        self.request.Start()
        self.check(turn, self.request.Wait())

    def free(self):
        self.request.Free()
        if self.window is not None:
            free(self.window)


class Boxes:
    """An Alltoallw that turns a row-distributed 3-D array into a column-distributed one."""

    def __init__(self, comm, shape, method, memory="own", info=None, permute=False):
        self.comm, self.shape = comm, shape
        rank, size = comm.rank, comm.size
        rows, cols = split(shape[0], size), split(shape[1], size)
        self.rows, self.cols = rows[rank], cols[rank]
        mine = (self.rows.stop - self.rows.start, shape[1], shape[2])
        theirs = (shape[0], self.cols.stop - self.cols.start, shape[2])
        self.send = np.full(mine, GUARD, np.int64)
        sends = [(slice(None), part) if part.stop > part.start else None for part in cols]
        recvs = [(part,) for part in rows]
        self.window = None
        if memory == "own":
            spec = (theirs, np.int64)
        else:
            order = (1, 0, 2) if permute else (0, 1, 2)
            inside = tuple(theirs[axis] for axis in order)
            window = memory == "window"
            raw = empty(comm, inside, np.int64) if window else np.empty(inside, np.int64)
            self.window = raw if window else None
            spec = raw.transpose(order)
        self.request = Alltoallw_init(comm, [self.send, sends], [spec, recvs], method=method,
                                      info=info)

    def whole(self, turn):
        return np.arange(np.prod(self.shape), dtype=np.int64).reshape(self.shape) + turn * 10**6

    def round(self, turn):
        self.send[...] = self.whole(turn)[self.rows]
        self.request.Start()
        self.check(turn, self.request.Wait())

    def check(self, turn, got):
        np.testing.assert_array_equal(got, self.whole(turn)[:, self.cols])

    def free(self):
        self.request.Free()
        if self.window is not None:
            free(self.window)


def split(length, parts):
    """Uneven blocks, empty ones where there are more parts than elements."""
    edges = [(length * i + parts - 1) // parts for i in range(parts + 1)]
    return [slice(a, b) for a, b in pairwise(edges)]


def displacements(counts, gap):
    starts, at = [], gap
    for count in counts:
        starts.append(at)
        at += count + gap
    return starts


def tables(size):
    """Named tables of counts for ``size`` ranks."""
    grid = np.add.outer(np.arange(size), 2 * np.arange(size))
    ones = np.ones((size, size), int)
    tables = {
        "uneven": grid % 5 + (grid % 3 == 0) * 7,
        "all zero": 0 * ones,
        "self only": 4 * np.eye(size, dtype=int),
        "no self": 3 * (ones - np.eye(size, dtype=int)),
        "to the next": 6 * np.roll(np.eye(size, dtype=int), 1, axis=1),
        "one heavy source": ones + 500 * (np.arange(size)[:, None] == size - 1),
        "one heavy target": ones + 500 * (np.arange(size)[None, :] == 0),
        "only from rank 0": 5 * (np.arange(size)[:, None] == 0) * ones,
        "empty row and column": grid % 4
        * (np.arange(size)[:, None] != size // 2) * (np.arange(size)[None, :] != size - 1),
    }
    return {name: table.astype(int) for name, table in tables.items()}
