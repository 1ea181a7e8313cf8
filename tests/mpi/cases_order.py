"""Starts and waits in different orders, late ranks, fast senders and slow readers."""

from __future__ import annotations

import time

import numpy as np
from cases import parameters, ranks
from exchange_data import MEMORY, Vector, any_order, names, strict, tables
from mpi4py import MPI

from onesided.collectives import MismatchError, Startall, progress


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
