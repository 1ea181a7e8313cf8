"""Reductions and the barrier: results, order of the ranks, bits, types, mistakes, and progress.

One table of operations (``OPERATIONS``) says what each rank contributes and what it gets; data
encode the round and the rank. Nothing is compared with the code under test.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from cases import parameters, ranks, skip
from mpi4py import MPI

from onesided import collectives
from onesided.collectives import MismatchError, OnesidedError, PatternError, methods

ROUNDS = 3
LATE = 0.05  # seconds


def names():
    """Every method of reductions."""
    return list(methods("reduction"))


def any_order():
    """Those whose ranks never wait for a call of another's, but at completion."""
    return [name for name, method in methods("reduction").items() if method.any_order]


@dataclass(frozen=True)
class Operation:
    """``part``: by rank, what it gets of the vector of ``count`` elements, ``over``: by rank, how
    many of the first contributions are reduced."""

    part: Callable[[int, int, int], slice]
    over: Callable[[int, int], int]
    rooted: bool = False
    scattered: bool = False

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
    "Reduce_scatter": Operation(_uneven, lambda rank, size: size, scattered=True),
    "Reduce_scatter_block": Operation(_even, lambda rank, size: size, scattered=True),
    "Scan": Operation(_whole, lambda rank, size: rank + 1),
    "Exscan": Operation(_whole, lambda rank, size: rank),
}


def info_of(options):
    """Emulated nodes where the options ask for them."""
    return {key: options[key] for key in ("ranks_per_node",) if key in options} or None


class Reduced:
    """One request: its buffers, what is contributed in a round, and what must come of it."""

    def __init__(self, comm, name, method, count, *, in_place=False, root=0, op=MPI.SUM,
                 info=None, datatype=None, dtype=np.int64, width=1):  # fmt: skip
        self.comm, self.name, self.op, self.width = comm, name, op, width
        self.operation = OPERATIONS[name]
        size, rank = comm.size, comm.rank
        if name == "Reduce_scatter_block":
            count = count // size * size
        self.count, self.root = count, root
        self.gets = not self.operation.rooted or rank == root
        self.part = self.operation.part(rank, count, size)
        self.in_place = in_place and self.gets
        room = count if self.in_place else self.part.stop - self.part.start
        self.send = np.zeros(count * width, dtype)
        self.recv = np.full(room * width, 77, dtype) if self.gets else None

        def spec(array):
            return array if array is None or datatype is None else [array, datatype]

        sent = MPI.IN_PLACE if self.in_place else spec(self.send)
        arguments = [sent, spec(self.recv)]
        if name == "Reduce_scatter":
            arguments.append(self.operation.counts(count, size))
        arguments.append(op)
        if self.operation.rooted:
            arguments.append(root)
        make = getattr(collectives, f"{name}_init")
        self.request = make(comm, *arguments, method=method, info=info)

    def contribution(self, turn, rank):
        """Small whole numbers, exact in every type and sum."""
        index = np.arange(self.count * self.width)
        return ((index * 7 + rank * 5 + turn * 3) % 11 + 1).astype(self.send.dtype)

    def start(self, turn):
        """Contribute."""
        mine = self.contribution(turn, self.comm.rank)
        if self.in_place:
            self.recv[:] = mine
        else:
            self.send[:] = mine
            if self.recv is not None:
                self.recv[:] = 77
        self.request.Start()

    def check(self, turn):
        """The result, and that nothing else was written."""
        over = self.operation.over(self.comm.rank, self.comm.size)
        if not self.in_place:
            mine = self.contribution(turn, self.comm.rank)
            assert np.array_equal(self.send, mine), "the contribution was changed"
        if not self.gets:
            return
        got = self.recv[: (self.part.stop - self.part.start) * self.width]
        if not over:
            want = self.contribution(turn, self.comm.rank) if self.in_place else 77
            assert np.all(got == want), "a rank that gets nothing"
            return
        contributions = [self.contribution(turn, rank) for rank in range(over)]
        want = functools.reduce(self.joined, contributions)
        want = want[self.part.start * self.width : self.part.stop * self.width]
        assert np.array_equal(got, want), (
            f"{self.name} of {self.count}, round {turn}: {got[:4]} instead of {want[:4]}"
        )

    def joined(self, left, right):
        """Of two contributions."""
        if self.width == 4:
            return (left.reshape(-1, 2, 2) @ right.reshape(-1, 2, 2)).reshape(-1)
        return left + right if self.op == MPI.SUM else np.maximum(left, right)

    def round(self, turn):
        """All of a round."""
        self.start(turn)
        answer = self.request.Wait()
        assert answer is None or answer is self.recv
        self.check(turn)

    def free(self):
        """The end."""
        self.request.Free()


# -- results -------------------------------------------------------------------------------------


@parameters(method=names, count=[3, 20_000])
def case_the_same_bits_on_all_ranks_and_in_all_rounds(comm, method, count, options):
    random = np.random.default_rng(comm.rank)
    send = random.standard_normal(count) * 10.0 ** random.integers(-12, 12, count)
    recv = np.zeros(count)
    seen = []
    with collectives.Allreduce_init(comm, send, recv, method=method, info=info_of(options)) as each:
        for _ in range(ROUNDS):
            each.Start()
            each.Wait()
            seen.append(recv.tobytes())
    assert np.any(recv != send) or comm.size == 1
    assert len(set(seen)) == 1, "rounds differ"
    assert len(set(comm.allgather(seen[0]))) == 1, "ranks differ"


NUMBERS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", "g", "F", "D", "?"]
PREDEFINED = {
    "SUM": NUMBERS[:-1], "PROD": NUMBERS[:-1], "MAX": NUMBERS[:11], "MIN": NUMBERS[:11],
    "LAND": [*NUMBERS[:8], "?"], "LOR": [*NUMBERS[:8], "?"], "LXOR": [*NUMBERS[:8], "?"],
    "BAND": NUMBERS[:8], "BOR": NUMBERS[:8], "BXOR": NUMBERS[:8],
}  # fmt: skip


@parameters(method=names, op=PREDEFINED)
def case_predefined_operations_and_types(comm, method, op):
    """Against the MPI's own."""
    assert PREDEFINED[op]
    for code in PREDEFINED[op]:
        send = np.random.default_rng(comm.rank).integers(0, 3, 9).astype(np.dtype(code))
        got, want = np.empty_like(send), np.empty_like(send)
        with collectives.Allreduce_init(comm, send, got, getattr(MPI, op), method=method) as each:
            each.Start()
            each.Wait()
        comm.Allreduce(send, want, getattr(MPI, op))
        assert np.array_equal(got, want), (code, got, want)


PAIRS = {
    "FLOAT_INT": [("value", "f4"), ("index", "i4")],
    "DOUBLE_INT": [("value", "f8"), ("index", "i4")],
    "LONG_INT": [("value", "i8"), ("index", "i4")],
    "TWOINT": [("value", "i4"), ("index", "i4")],
    "SHORT_INT": [("value", "i2"), ("index", "i4")],
    "LONG_DOUBLE_INT": [("value", "g"), ("index", "i4")],
}


@parameters(method=names, kind=PAIRS)
def case_pairs(comm, method, kind):
    """The largest and the least value, and the lowest rank that has it."""
    datatype, dtype = getattr(MPI, kind), np.dtype(PAIRS[kind], align=True)
    assert dtype.itemsize == datatype.Get_extent()[1]
    send, got = np.zeros(12, dtype), np.zeros(12, dtype)
    values = np.random.default_rng(3).integers(0, 3, (comm.size, 12))
    send["value"], send["index"] = values[comm.rank], comm.rank
    for op, best in ((MPI.MAXLOC, np.argmax), (MPI.MINLOC, np.argmin)):
        with collectives.Allreduce_init(
            comm, [send.view("u1"), datatype], [got.view("u1"), datatype], op, method=method
        ) as each:
            each.Start()
            each.Wait()
        where = best(values, axis=0)
        assert np.array_equal(got["index"], where)
        assert np.array_equal(got["value"], values[where, np.arange(12)].astype(dtype["value"]))


# -- the barrier ---------------------------------------------------------------------------------


@ranks(at_least=2)
@parameters(method=names)
def case_nobody_passes_a_barrier_before_all_have_come(comm, method, options):
    with collectives.Barrier_init(comm, method=method, info=info_of(options)) as barrier:
        for turn in range(2 * comm.size):
            if turn % comm.size == comm.rank:
                time.sleep(LATE / 4)
            came = time.monotonic()
            barrier.Start()
            barrier.Wait()
            went = time.monotonic()
            times = comm.allgather((came, went))
            assert max(came for came, _ in times) <= min(went for _, went in times)


# -- who runs ahead, who is late -------------------------------------------------------------------


# -- mistakes --------------------------------------------------------------------------------------


def told(comm, call, kinds=PatternError):
    """The error that every rank must get."""
    try:
        made = call()
    except kinds as error:
        words = str(error)
    except OnesidedError as error:
        words = f"not {kinds}: {error!r}"
    else:
        made.Free()
        words = ""
    everywhere = comm.allgather(words)
    assert all(everywhere), everywhere
    assert not any(text.startswith("not ") for text in everywhere), everywhere
    return words


@parameters(method=names)
def case_mistakes(comm, method):
    three, four = np.zeros(3), np.zeros(4)
    allreduce = functools.partial(collectives.Allreduce_init, comm, method=method)
    assert "MPI.BAND" in told(comm, lambda: allreduce(three, np.zeros(3), MPI.BAND))
    assert "does not take" in told(comm, lambda: allreduce(three, np.zeros(3), MPI.MAXLOC))
    assert "MPI.REPLACE" in told(comm, lambda: allreduce(three, np.zeros(3), MPI.REPLACE))
    assert "3 elements" in told(comm, lambda: allreduce(three, four))
    told(comm, lambda: allreduce(three, np.zeros(3, np.float32)))
    assert "overlap" in told(comm, lambda: allreduce(four[:3], four[1:]))
    assert "read-only" in told(comm, lambda: allreduce(three, np.broadcast_to(0.0, 3)))
    told(comm, lambda: collectives.Reduce_init(comm, three, np.zeros(3), root=comm.size,
                                               method=method))
    told(comm, lambda: collectives.Reduce_scatter_init(comm, four, four[:1], [9] * comm.size,
                                                       method=method))
    told(comm, lambda: allreduce(three, np.zeros(3), None))


@ranks(at_least=2)
@parameters(method=names)
def case_ranks_that_differ(comm, method):
    """Both values are in the words of every rank."""
    odd, kinds = comm.rank == 1, (MismatchError, PatternError)
    count = 4 if odd else 3
    allreduce = functools.partial(collectives.Allreduce_init, comm, method=method)
    words = told(comm, lambda: allreduce(np.zeros(count), np.zeros(count)), kinds)
    assert "3 elements" in words
    assert "4 elements" in words
    op = MPI.MIN if odd else MPI.MAX
    words = told(comm, lambda: allreduce(np.zeros(3), np.zeros(3), op), kinds)
    assert "MPI.MAX" in words
    assert "MPI.MIN" in words
    kind = np.float32 if odd else np.float64
    told(comm, lambda: allreduce(np.zeros(3, kind), np.zeros(3, kind)), kinds)
    root = 1 if odd else 0
    told(comm, lambda: collectives.Reduce_init(comm, np.zeros(3), np.zeros(3), root=root,
                                               method=method), kinds)
    with allreduce(np.ones(2), np.zeros(2)) as works:
        works.Start()
        assert np.all(works.Wait() == comm.size)


@ranks(at_least=4, at_most=4)
def case_nodes_that_do_not_follow_the_ranks(comm):
    """Commuting operations do not mind; others are told."""
    shuffled = comm.Split(0, (0, 2, 1, 3)[comm.rank])
    info = {"ranks_per_node": "2"}
    try:
        for method in any_order():
            reduced = Reduced(shuffled, "Allreduce", method, 9, info=info)
            reduced.round(1)
            reduced.free()
    finally:
        shuffled.Free()


def case_counts_of_a_reduce_scatter_are_asked_for(comm):
    mine = comm.rank + 1
    send = np.arange(comm.size * (comm.size + 1) // 2, dtype=float)
    recv = np.zeros(mine)
    with collectives.Reduce_scatter_init(comm, send, recv) as request:
        request.Start()
        request.Wait()
    start = comm.rank * mine // 2
    assert np.array_equal(recv, comm.size * send[start : start + mine])


def case_memory_that_is_not_aligned(comm):
    """Elements at odd addresses, which vector units may not like."""
    if comm.size == 1:
        skip("nothing is reduced")
    room = np.zeros(8 * 40 + 1, np.uint8)
    send = room[1:].view(np.uint8)
    send[:] = np.arange(40.0).view(np.uint8)
    recv = np.zeros(8 * 40 + 3, np.uint8)
    with collectives.Allreduce_init(
        comm, [send, MPI.DOUBLE], [recv[3:], MPI.DOUBLE], method="rma-p2p"
    ) as request:
        request.Start()
        request.Wait()
    assert np.array_equal(recv[3:].copy().view(float), comm.size * np.arange(40.0))
