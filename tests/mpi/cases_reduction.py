"""Reductions and the barrier beside the table: bits, every predefined operation, mistakes."""

from __future__ import annotations

import contextlib
import time
from unittest import mock

import numpy as np
from cases import parameters, ranks
from errors import agreed
from exchange_data import info_of
from mpi4py import MPI
from subjects import make
from table import REDUCTIONS, Cell, Length

from onesided import collectives
from onesided.collectives import MismatchError, PatternError, UnsupportedError, methods
from onesided.collectives.broadcast import board
from onesided.collectives.reduction import folds, messages, shared
from onesided.collectives.steps import COPY, REDUCE

LATE = 0.05  # seconds
ROUNDS = 3


def names():
    """Every method of reductions."""
    return list(methods("reduction"))


@contextlib.contextmanager
def folds_by_calls(wanted):
    """No loop of the compiled core takes the types of this rank: MPI reduces them."""
    original = folds.Fold.__init__

    def slow(fold, op, element):
        original(fold, op, element)
        fold.quick = False

    if wanted:
        folds.Fold.__init__ = slow
    try:
        yield
    finally:
        folds.Fold.__init__ = original


@parameters(name=REDUCTIONS, method=names, nbytes=[shared.LONG, board.TWICE])
def case_the_compiled_core_is_not_everywhere(comm, name, method, nbytes, options):
    with folds_by_calls(comm.rank == 0):
        reduced = make(comm, Cell(name, method, Length(nbytes, 0), "i8 PROD wraps", "plain"),
                       options)  # fmt: skip
    for turn in range(ROUNDS):
        reduced.round(turn)
    reduced.free()


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


@ranks(at_least=2)
def case_an_exscan_computes_nothing_that_nobody_gets(comm):
    """The ends: the first rank has nothing to add, the last nobody to send to."""
    with collectives.Exscan_init(comm, np.ones(9), np.zeros(9), method="p2p") as request:
        (chain,) = request.transport.plans()[0]
        kinds = [step[0] for step in chain]
        request.Start()
        received = request.Wait()
    assert comm.rank == 0 or np.all(received == comm.rank)
    come = sum(comm.rank >= 1 << step for step in range((comm.size - 1).bit_length()))
    if comm.rank in (0, comm.size - 1):
        assert kinds.count(COPY) + kinds.count(REDUCE) == come, kinds


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


# -- mistakes --------------------------------------------------------------------------------------


@parameters(method=names)
def case_mistakes(comm, method):
    three, four = np.zeros(3), np.zeros(4)

    def told(call, *words, kind=PatternError):
        agreed(comm, kind, call, *words)

    def allreduce(*given):
        return collectives.Allreduce_init(comm, *given, method=method)

    told(lambda: allreduce(three, np.zeros(3), MPI.BAND), "MPI.BAND")
    told(lambda: allreduce(three, np.zeros(3), MPI.MAXLOC), "does not take")
    told(lambda: allreduce(three, np.zeros(3), MPI.REPLACE), "MPI.REPLACE")
    told(lambda: allreduce(three, four), "3 elements")
    told(lambda: allreduce(three, np.zeros(3, np.float32)))
    told(lambda: allreduce(four[:3], four[1:]), "overlap")
    told(lambda: allreduce(three, np.broadcast_to(0.0, 3)), "read-only")
    told(lambda: allreduce(three, np.zeros(3), None))
    for code, word in [("S5", "no MPI type"), ("U5", "no MPI type"), ("M8[s]", "no MPI type"),
                       ("m8[D]", "no MPI type"), (">f8", "byte order")]:  # fmt: skip
        told(lambda code=code: allreduce(np.zeros(3, code), np.zeros(3, code)), word)
    op, one = MPI.Op.Create(lambda *_: None), MPI.DOUBLE.Create_resized(0, 16).Commit()
    pair = MPI.DOUBLE.Create_contiguous(2).Commit()
    told(lambda: allreduce([four, 2, one], [np.zeros(4), 2, pair], op), "8 bytes, 16 apart")
    late = MPI.DOUBLE.Create_hindexed([1], [8]).Create_resized(0, 16).Commit()
    told(lambda: allreduce([four, 2, one], [np.zeros(4), 2, late], op), "another")
    copy = one.Dup()
    allreduce([four, 2, one], [np.zeros(4), 2, copy], op).Free()
    for each in (op, one, pair, late, copy):
        each.Free()
    room = np.zeros(32, np.uint8)
    told(lambda: allreduce([room, 1, MPI.DOUBLE_INT], [room.copy(), 1, MPI.LONG_INT], MPI.MAXLOC))
    if MPI.VERSION < 4 and "mpi" in method:
        with mock.patch.object(messages, "INT_MAX", 2):
            told(lambda: allreduce(three, np.zeros(3)), "beyond 2", kind=UnsupportedError)
    told(lambda: collectives.Reduce_init(comm, three, np.zeros(3), root=comm.size, method=method))
    told(lambda: collectives.Reduce_scatter_init(comm, four, four[:1], [9] * comm.size,
                                                 method=method))  # fmt: skip
    for counts in ("1" * comm.size, ["a"] * comm.size, [1.5] * comm.size, 5, [-1] * comm.size):
        told(lambda counts=counts: collectives.Reduce_scatter_init(
            comm, np.zeros(comm.size), np.zeros(1), counts, method=method), "recvcount")
    if comm.size > 1:  # counts, types and roots that differ are in the table
        told(lambda: collectives.Reduce_scatter_block_init(
            comm, MPI.IN_PLACE, np.zeros(comm.size + 1), method=method), "cannot be split evenly")
        op = MPI.MIN if comm.rank == 1 else MPI.MAX
        told(lambda: allreduce(np.zeros(3), np.zeros(3), op), "MPI.MAX", "MPI.MIN",
             kind=(MismatchError, PatternError))  # fmt: skip
    with allreduce(np.ones(2), np.zeros(2)) as request:
        request.Start()
        assert np.all(request.Wait() == comm.size)


@parameters(given=["none", "array", "generator"])
def case_counts_of_a_reduce_scatter(comm, given):
    """They are asked for, or hold as they were when they were read."""
    mine, all_of_them = comm.rank + 1, np.arange(1, comm.size + 1)
    counts = {"array": all_of_them, "generator": iter(all_of_them)}.get(given)
    send = np.arange(comm.size * (comm.size + 1) // 2, dtype=float)
    recv = np.zeros(mine)
    with collectives.Reduce_scatter_init(comm, send, np.empty(mine), counts) as request:
        all_of_them[:] = 7
        with request.like(send, recv) as other:
            other.Start()
            other.Wait()
    start = comm.rank * mine // 2
    assert np.array_equal(recv, comm.size * send[start : start + mine])


@parameters(call=["Allreduce_init", "Scan_init", "Reduce_scatter_block_init"])
def case_none_says_in_place(comm, call):
    """As mpi4py has it, and exchanges."""
    memory = np.ones(4 * comm.size)
    with getattr(collectives, call)(comm, None, memory) as request:
        request.Start()
        request.Wait()
    assert memory[0] == (comm.rank + 1 if call == "Scan_init" else comm.size)
