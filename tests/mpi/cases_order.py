"""Starts and waits in different orders, late ranks, fast senders and slow readers."""

from __future__ import annotations

import time

import numpy as np
from cases import parameters, ranks
from exchange_data import MEMORY, Boxes, Vector, any_order, names, strict, tables
from mpi4py import MPI

from onesided.collectives import MismatchError, Startall, Waitall, progress


def permuted(items, seed, rank, turn):
    order = np.random.default_rng([seed, rank, turn]).permutation(len(items))
    return [items[i] for i in order]


@parameters(method=any_order, memory=["own", "window", "mixed"])
def case_any_order_of_starts_and_waits(comm, method, memory, seed):
    table = tables(comm.size)["uneven"]
    kinds = MEMORY if memory == "mixed" else [memory]
    exchanges = [Vector(comm, table + i, method, kinds[i % len(kinds)]) for i in range(6)]
    for turn in range(8):
        for exchange in permuted(exchanges, seed, comm.rank, turn):
            exchange.fill(turn)
            exchange.request.Start()
        if turn % 3 == comm.rank % 3:
            time.sleep(0.002)
        for exchange in permuted(exchanges, seed + 1, comm.rank, turn):
            exchange.check(turn, exchange.request.Wait())
    for exchange in exchanges:
        exchange.free()


@parameters(pair=lambda: [(a, b) for a in any_order() for b in any_order() if a < b])
def case_two_methods_in_opposite_order(comm, pair):
    table = tables(comm.size)["uneven"]
    exchanges = [Vector(comm, table, method, MEMORY[i]) for i, method in enumerate(pair)]
    mine = exchanges if comm.rank % 2 else exchanges[::-1]
    for turn in range(3):
        for exchange in mine:
            exchange.fill(turn)
        Startall([exchange.request for exchange in mine])
        for exchange in mine[::-1]:
            exchange.check(turn, exchange.request.Wait())
    for exchange in exchanges:
        exchange.free()


@parameters(method=any_order)
def case_permuted_waitall(comm, method, seed):
    exchanges = [Boxes(comm, (6, 5, 2), method, MEMORY[i % 3]) for i in range(4)]
    for turn in range(4):
        mine = permuted(exchanges, seed, comm.rank, turn)
        for exchange in mine:
            exchange.send[...] = exchange.whole(turn)[exchange.rows]
        Startall([exchange.request for exchange in mine])
        for exchange, got in zip(mine, Waitall([e.request for e in mine]), strict=True):
            exchange.check(turn, got)
    for exchange in exchanges:
        exchange.free()


@ranks(at_least=2)
@parameters(method=any_order, memory=MEMORY)
def case_start_and_test_wait_for_nobody(comm, method, memory):
    """The last rank starts when all others say that they have started, and tested.

    A Start or a Test that waited for the last rank would never return.
    """
    exchange = Vector(comm, tables(comm.size)["uneven"], method, memory)
    exchange.round(0)
    late = comm.size - 1
    for turn in (1, 2):
        exchange.fill(turn)
        if comm.rank == late:
            for rank in range(late):
                assert comm.recv(source=rank) == turn
            exchange.request.Start()
        else:
            exchange.request.Start()
            for _ in range(3):
                exchange.request.Test()
            comm.send(turn, late)
        exchange.check(turn, exchange.request.Wait())
    exchange.free()


@ranks(at_least=2)
@parameters(method=names, memory=MEMORY)
def case_late_ranks_in_turn(comm, method, memory):
    exchange = Vector(comm, tables(comm.size)["uneven"], method, memory)
    for turn in range(2 * comm.size):
        exchange.fill(turn)
        if turn % comm.size == comm.rank:
            time.sleep(0.01)
        exchange.request.Start()
        if (turn + 1) % comm.size == comm.rank:
            time.sleep(0.01)
        got = exchange.request.Wait()
        if (turn + 2) % comm.size == comm.rank:
            time.sleep(0.01)  # a slow reader: nobody may overwrite what it has not read yet
        exchange.check(turn, got)
    exchange.free()


@ranks(at_least=2)
@parameters(method=names, memory=MEMORY)
def case_one_way_with_a_fast_sender_and_a_slow_reader(comm, method, memory):
    exchange = Vector(comm, tables(comm.size)["only from rank 0"], method, memory)
    for turn in range(12):
        exchange.fill(turn)
        exchange.request.Start()
        got = exchange.request.Wait()
        if comm.rank == comm.size - 1:
            before = np.array(got)
            time.sleep(0.005)
            np.testing.assert_array_equal(got, before)
        exchange.check(turn, got)
    exchange.free()


@ranks(at_least=2)
@parameters(method=any_order)
def case_collectives_between_start_and_wait(comm, method):
    exchange = Vector(comm, tables(comm.size)["uneven"], method)
    for turn in range(4):
        exchange.fill(turn)
        if comm.rank % 2:
            comm.Barrier()
            exchange.request.Start()
        else:
            exchange.request.Start()
            comm.Barrier()
        assert comm.allreduce(1) == comm.size
        exchange.check(turn, exchange.request.Wait())
    exchange.free()


@ranks(at_least=2)
@parameters(method=["p2p", "mpi-persistent", "rma-notify", "rma-lock"])
def case_waiting_before_the_partner_may_go_on(comm, method):
    """Two slots and one node: all data have left at Start, so nobody needs the others' Wait."""
    exchange = Vector(comm, tables(comm.size)["uneven"], method)
    for turn in range(4):
        exchange.fill(turn)
        exchange.request.Start()
        if comm.rank == 0:
            exchange.check(turn, exchange.request.Wait())
            for rank in range(1, comm.size):
                comm.send(turn, rank)
        else:
            assert comm.recv(source=0) == turn
            exchange.check(turn, exchange.request.Wait())
    exchange.free()


@ranks(at_least=2)
@parameters(method=any_order)
def case_opposite_waits_of_two(comm, method):
    a, b = (Vector(comm, tables(comm.size)["no self"] + i, method, "window") for i in range(2))
    first, second = (a, b) if comm.rank % 2 else (b, a)
    for turn in range(6):
        for exchange in (a, b):
            exchange.fill(turn)
            exchange.request.Start()
        first.check(turn, first.request.Wait())
        second.check(turn, second.request.Wait())
    a.free()
    b.free()


@parameters(method=strict)
def case_a_wait_out_of_order_completes_the_earlier_rounds(comm, method):
    a, b = (Vector(comm, tables(comm.size)["uneven"], method) for _ in range(2))
    for exchange in (a, b):
        exchange.fill(1)
        exchange.request.Start()
    b.check(1, b.request.Wait())
    assert a.request.state == "active"
    a.check(1, a.request.Wait())
    a.free()
    b.free()


@ranks(at_least=2)
@parameters(method=strict)
def case_what_a_wait_drives_keeps_the_order_of_the_starts(comm, method):
    """As a rank does that finds the earlier round in the hands of the progress thread."""
    a, b = (Vector(comm, tables(comm.size)["uneven"], method) for _ in range(2))
    for turn in range(3):
        for exchange in (a, b):
            exchange.fill(turn)
            exchange.request.Start()
        if comm.rank == 0:
            progress.drive(comm.Iprobe, a.request)
        a.check(turn, a.request.Wait())
        b.check(turn, b.request.Wait())
    a.free()
    b.free()


@ranks(at_least=2)
@parameters(memory=MEMORY)
def case_big_messages_while_a_partner_spins(comm, memory):
    """A partner stuck in a large message needs this rank's progress while it waits for it."""
    exchange = Vector(comm, tables(comm.size)["no self"], "rma-notify", memory)
    other = (comm.rank + 1) % comm.size
    big = np.full(1 << 20, comm.rank, np.float64)
    into = np.empty_like(big)
    for turn in range(3):
        exchange.fill(turn)
        receive = comm.Irecv(into, source=MPI.ANY_SOURCE)
        if comm.rank % 2:
            exchange.request.Start()
            exchange.check(turn, exchange.request.Wait())
            comm.Send(big, other)
        else:
            comm.Send(big, other)
            exchange.request.Start()
            exchange.check(turn, exchange.request.Wait())
        receive.Wait()
        assert into[0] == into[-1] != comm.rank
    exchange.free()


@ranks(at_least=2)
def case_different_collective_calls_are_noticed(comm):
    a = Vector(comm, tables(comm.size)["uneven"], "p2p")
    try:
        if comm.rank == 0:
            a.request.Free()
        else:
            Vector(comm, tables(comm.size)["uneven"], "p2p")
    except MismatchError as error:
        assert "rank 0 is in" in str(error)
    else:
        raise AssertionError("the ranks were in different calls, and nobody noticed")
    a.request.Free()
