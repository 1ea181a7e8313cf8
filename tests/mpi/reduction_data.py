"""Reductions along their axes: what is contributed, and what must come of it.

A :class:`Kind` is an MPI type with an operation: how contributions are made, and how two of them
are joined, by NumPy. ``AXES`` are combined pairwise. A :class:`Reduced` is one request of one
combination. Nothing is compared with the code under test.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from mpi4py import MPI
from pairwise import combined

from onesided import collectives
from onesided.collectives import UnsupportedError, methods
from onesided.collectives.broadcast import board
from onesided.collectives.context import Context
from onesided.collectives.reduction import messages, shared

GUARD = 0x5A
IN_TURN = "in turn"  # two nodes, whose ranks do not follow each other
ROUNDS = 3

# -- operations ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Operation:
    """``part``: by rank, what it gets of the vector of ``count`` elements, ``over``: by rank, how
    many of the first contributions are reduced."""

    part: Callable[[int, int, int], slice]
    over: Callable[[int, int], int]
    rooted: bool = False

    def counts(self, count, size):
        """The elements of all ranks; uneven, one has none, where there are enough ranks."""
        return [self.part(rank, count, size).stop - self.part(rank, count, size).start
                for rank in range(size)]


def _whole(rank, count, size):
    return slice(0, count)


def _even(rank, count, size):
    return slice(rank * (count // size), (rank + 1) * (count // size))


def _uneven(rank, count, size):
    """Rank 1 has nothing, the last one what is left."""
    each = count // size
    edges = [0] + [each * (rank + 1) for rank in range(size - 1)] + [count]
    if size > 2:
        edges[2] = edges[1]
    return slice(edges[rank], edges[rank + 1])


OPERATIONS = {
    "Allreduce": Operation(_whole, lambda rank, size: size),
    "Reduce": Operation(_whole, lambda rank, size: size, rooted=True),
    "Reduce_scatter": Operation(_uneven, lambda rank, size: size),
    "Reduce_scatter_block": Operation(_even, lambda rank, size: size),
    "Scan": Operation(_whole, lambda rank, size: rank + 1),
    "Exscan": Operation(_whole, lambda rank, size: rank),
}


# -- kinds: a type and an operation ----------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """``dtype``: an element; ``make(random, count)`` contributions, ``join(left, right)`` two of
    them. ``datatype`` and ``op`` make what MPI is given; the latter is the caller's own where
    it is a function. ``ours``: of NaN and of overflow MPI says nothing (Open MPI 5.0 saturates sums
    of 8 bits), so its own methods, which auto may take, are not asked for these."""

    dtype: np.dtype
    datatype: Callable[[], MPI.Datatype]
    op: object
    make: Callable
    join: Callable
    commutes: bool = True
    ours: bool = False


def small(dtype):
    """Whole numbers whose sums and products are exact in every type."""
    return lambda random, count: random.integers(0, 3, count).astype(dtype)


def full(dtype):
    """The whole range: sums and products wrap around."""
    return lambda random, count: random.integers(0, 256, (count, np.dtype(dtype).itemsize),
                                                 np.uint8).view(dtype).reshape(-1)


def with_nan(random, count):
    """NaN here and there on this rank."""
    values = random.standard_normal(count)
    values[random.integers(0, 4, count) == 0] = np.nan
    return values


def _number(code, op, ufunc, make=small, **more):
    dtype = np.dtype(code)

    def join(left, right):
        with np.errstate(all="ignore"):
            return ufunc(left, right).astype(dtype)

    datatype = MPI.Datatype.fromcode(dtype.char)
    make = make if make is with_nan else make(dtype)
    return Kind(dtype, lambda: datatype, op, make, join, **more)


def _pair(name, value, op, better):
    dtype = np.dtype([("value", value), ("index", "i4")], align=True)

    def make(random, count):
        made = np.zeros(count, dtype)
        made["value"], made["index"] = random.integers(0, 3, count), random.integers(0, 9, count)
        return made

    def join(left, right):
        same = left["value"] == right["value"]
        first = better(left["value"], right["value"]) | (same & (left["index"] < right["index"]))
        return np.where(first, left, right)

    return Kind(dtype, lambda: getattr(MPI, name), op, make, join)


def _derived(words, joined, commutes):
    """A type of some 32-bit numbers, with an operation of the caller's."""
    dtype = np.dtype(("V", 4 * words))

    def op(a, b, datatype):
        left, right = (np.frombuffer(each, np.int32).reshape(-1, words) for each in (a, b))
        right[:] = joined(left, right)

    def make(random, count):
        return random.integers(-9, 9, (count, words)).astype(np.int32).view(dtype).reshape(-1)

    def join(left, right):
        left, right = (each.view(np.int32).reshape(-1, words) for each in (left, right))
        return np.ascontiguousarray(joined(left, right), np.int32).view(dtype).reshape(-1)

    return Kind(dtype, lambda: MPI.INT32_T.Create_contiguous(words).Commit(), op, make, join,
                commutes)


def _columns(joined):
    """One of two columns of doubles: the other one does not belong to the type."""
    dtype = np.dtype([("inside", "f8"), ("hole", "f8")])

    def op(a, b, datatype):
        left, right = (np.frombuffer(each, np.float64)[::2] for each in (a, b))
        right[:] = joined(left, right)

    def make(random, count):
        made = np.zeros(count, dtype)
        made["inside"] = random.integers(-9, 9, count)
        return made

    def join(left, right):
        made = left.copy()
        made["inside"] = joined(left["inside"], right["inside"])
        return made

    return Kind(dtype, lambda: MPI.DOUBLE.Create_resized(0, 16).Commit(), op, make, join)


def first_counts(left, right):
    """Associative, and the order matters: what is not zero hides what comes after it."""
    return np.where(left != 0, left, right)


def multiplied(left, right):
    """Of 2 x 2 matrices, which do not commute; only the first four numbers are one."""
    made = left + right
    made[:, :4] = (left[:, :4].reshape(-1, 2, 2) @ right[:, :4].reshape(-1, 2, 2)).reshape(-1, 4)
    return made


KINDS = {
    "f8 SUM": _number("f8", MPI.SUM, np.add),
    "f4 SUM": _number("f4", MPI.SUM, np.add),
    "g PROD": _number("g", MPI.PROD, np.multiply),
    "c8 SUM": _number("c8", MPI.SUM, np.add),
    "c16 PROD": _number("c16", MPI.PROD, np.multiply),
    "i1 SUM wraps": _number("i1", MPI.SUM, np.add, full, ours=True),
    "i2 PROD wraps": _number("i2", MPI.PROD, np.multiply, full),
    "i4 SUM wraps": _number("i4", MPI.SUM, np.add, full),
    "i8 PROD wraps": _number("i8", MPI.PROD, np.multiply, full),
    "u2 PROD wraps": _number("u2", MPI.PROD, np.multiply, full),
    "u8 SUM wraps": _number("u8", MPI.SUM, np.add, full),
    "u1 BXOR": _number("u1", MPI.BXOR, np.bitwise_xor, full),
    "u4 BAND": _number("u4", MPI.BAND, np.bitwise_and, full),
    "i8 BOR": _number("i8", MPI.BOR, np.bitwise_or, full),
    "b1 LAND": _number("?", MPI.LAND, np.logical_and),
    "b1 LXOR": _number("?", MPI.LXOR, np.logical_xor),
    "i4 LOR": _number("i4", MPI.LOR, np.logical_or),
    "f8 MAX of NaN": _number("f8", MPI.MAX, np.maximum, with_nan, ours=True),
    "f8 MIN of NaN": _number("f8", MPI.MIN, np.minimum, with_nan, ours=True),
    "f4 MIN": _number("f4", MPI.MIN, np.minimum),
    "i2 MAX": _number("i2", MPI.MAX, np.maximum, full),
    "FLOAT_INT MAXLOC": _pair("FLOAT_INT", "f4", MPI.MAXLOC, np.greater),
    "DOUBLE_INT MINLOC": _pair("DOUBLE_INT", "f8", MPI.MINLOC, np.less),
    "LONG_INT MAXLOC": _pair("LONG_INT", "i8", MPI.MAXLOC, np.greater),
    "TWOINT MINLOC": _pair("TWOINT", "i4", MPI.MINLOC, np.less),
    "SHORT_INT MAXLOC": _pair("SHORT_INT", "i2", MPI.MAXLOC, np.greater),
    "LONG_DOUBLE_INT MAXLOC": _pair("LONG_DOUBLE_INT", "g", MPI.MAXLOC, np.greater),
    "12 bytes added": _derived(3, np.add, True),
    "24 bytes in order": _derived(6, first_counts, False),
    "40 bytes in order": _derived(10, multiplied, False),
    "a column added": _columns(np.add),
}


# -- axes ------------------------------------------------------------------------------------------

#: Every number of bytes from which on a reduction goes another way (docs of the constants), one
#: that is far above, and one in many segments.
THRESHOLDS = sorted({
    0, shared.IN_LINE, messages.LONG, shared.LONG, board.SHORT, board.TWICE, 2 * board.TWICE,
    8 * 375_001,
})  # fmt: skip

AXES = {
    "name": list(OPERATIONS),
    "kind": list(KINDS),
    "bytes": THRESHOLDS,
    "more": [-1, 0, 1, 97],  # elements than these bytes are
    "memory": ["apart", "in place", "unaligned", "unaligned in place"],
    "method": [*methods("reduction")],
    "nodes": ["", "1", "2", IN_TURN],
    "late": ["nobody", "first", "last"],
    "root": [0, -1],
}


class Row(dict):
    """A combination, with a name to choose it by; what is not named has its usual value."""

    def __init__(self, row=(), **more):
        super().__init__({"name": "Allreduce", "kind": "i8 PROD wraps", "bytes": 0, "more": 0,
                          "memory": "apart", "method": "auto", "nodes": "", "late": "nobody",
                          "root": -1, **dict(row), **more})  # fmt: skip

    def __str__(self):
        return ",".join(str(value) or "-" for value in self.values())


def rows(comm):
    """The combinations for so many ranks."""
    return [Row(each) for each in combined(AXES, comm.size)]


def refused(row, comm):
    """Whether the method must say that it cannot: it keeps the order only where the ranks of a
    node follow each other."""
    order = not KINDS[row["kind"]].commutes or row["name"] in ("Scan", "Exscan")
    return row["method"] == "rma-p2p" and order and row["nodes"] == IN_TURN and comm.size > 2


class Reduced:
    """One request: its buffers, what is contributed in a round, and what must come of it."""

    def __init__(self, comm, row):
        self.row, self.kind = row, KINDS[row["kind"]]
        self.comm = comm
        if row["nodes"] == IN_TURN:  # what MPI tells of the nodes, before anybody has asked
            Context.of(comm)._firsts = np.arange(comm.size, dtype=np.int32) % 2
        self.operation, kind = OPERATIONS[row["name"]], self.kind
        size, rank = self.comm.size, self.comm.rank
        count = max(row["bytes"] // kind.dtype.itemsize + row["more"], 0)
        if row["name"] == "Reduce_scatter_block":
            count = count // size * size
        self.count, self.root = count, row["root"] % size
        self.gets = not self.operation.rooted or rank == self.root
        self.part = self.operation.part(rank, count, size)
        self.in_place = "in place" in row["memory"] and self.gets
        own = self.part.stop - self.part.start
        self.send, sent = self._buffer(0 if self.in_place else count)
        self.recv, into = self._buffer((count if self.in_place else own) if self.gets else 0)
        self.datatype = kind.datatype()
        self.op = kind.op
        if not isinstance(kind.op, MPI.Op):
            self.op = MPI.Op.Create(kind.op, commute=kind.commutes)
        send = MPI.IN_PLACE if self.in_place else [sent, count, self.datatype]
        into = [into, self.datatype]
        if row["name"] == "Reduce_scatter_block":  # counts are those of a block
            send = send if self.in_place else [sent, count // size, self.datatype]
            into.insert(1, count // size)
        arguments = [send, into if self.gets else None]
        if row["name"] == "Reduce_scatter":
            arguments.append(self.operation.counts(count, size))
        arguments.append(self.op)
        if self.operation.rooted:
            arguments.append(self.root)
        make = getattr(collectives, f"{row['name']}_init")
        info = dict(row.get("info", {}))
        if row["nodes"].isdigit():
            info["ranks_per_node"] = row["nodes"]
        self.request = None
        try:
            self.request = make(self.comm, *arguments, method=row["method"], info=info)
        except UnsupportedError:
            if not refused(row, comm):
                raise
            return
        assert not refused(row, comm), "the order of the ranks cannot be kept"

    def _buffer(self, count):
        """Elements in memory with a guard behind them, at an odd address where that is wanted."""
        nbytes, odd = count * self.kind.dtype.itemsize, int("unaligned" in self.row["memory"])
        room = np.full(nbytes + 64, GUARD, np.uint8)
        data = room[odd : odd + nbytes]
        return data.view(self.kind.dtype), data

    def contribution(self, turn, rank):
        """The same data wherever they are asked for."""
        return self.kind.make(np.random.default_rng([turn, rank, self.count]), self.count)

    def start(self, turn):
        """Contribute."""
        mine = self.contribution(turn, self.comm.rank)
        if self.kind.dtype.names and "hole" in self.kind.dtype.names:
            mine["hole"] = -turn
        (self.recv if self.in_place else self.send)[:] = mine
        if self.gets and not self.in_place:
            self.recv.view(np.uint8)[:] = GUARD
        self.before = self.recv.copy()
        self.mine = self.send.tobytes()
        self.request.Start()

    def faults(self, turn):
        """In words, where the result is wrong, or something else was written."""
        over = self.operation.over(self.comm.rank, self.comm.size)
        found = [] if self.send.tobytes() == self.mine else ["the contribution was changed"]
        if not self.gets:
            return found
        length = self.part.stop - self.part.start if over else 0
        want, got = self.before.copy(), self.recv
        if over:
            all_of = functools.reduce(
                self.kind.join, [self.contribution(turn, rank) for rank in range(over)]
            )
            want[:length] = all_of[self.part]
        names = self.kind.dtype.names or ()
        if "hole" in names and not np.array_equal(got["hole"], self.before["hole"]):
            found.append("a hole was written")
        if self.in_place and self.row["name"].startswith("Reduce_scatter"):
            got, want = got[:length], want[:length]  # MPI says nothing of what lies behind
        for field in [name for name in names if name != "hole"] or [...]:
            mine, right = got[field], want[field]
            if self.kind.ours and self.row["method"] not in ("p2p", "rma-p2p"):
                continue
            if not np.array_equal(mine, right, equal_nan=mine.dtype.kind in "fc"):
                found.append(f"round {turn}: {mine[:4]} instead of {right[:4]}")
        return found

    def free(self):
        """The end."""
        if self.request is not None:
            self.request.Free()
        if not isinstance(self.kind.op, MPI.Op):
            self.op.Free()
        if not self.datatype.is_predefined:
            self.datatype.Free()
