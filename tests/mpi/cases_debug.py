"""ONESIDED_DEBUG=1: poison, changed send buffers, calls in different orders."""

from __future__ import annotations

import time

import numpy as np
from cases import parameters, ranks
from exchange_data import MEMORY, Vector, names, strict, tables

from onesided.collectives import MismatchError, RequestError
from onesided.collectives.debug import enabled


@parameters(method=names, memory=MEMORY)
def case_data_are_right_and_given_up_memory_is_poisoned(comm, method, memory):
    assert enabled()
    exchange = Vector(comm, tables(comm.size)["uneven"], method, memory)
    previous = None
    for turn in range(6):
        if turn % comm.size == comm.rank:
            time.sleep(0.003)
        exchange.fill(turn)
        exchange.request.Start()
        if previous is not None and memory == "own" and method not in ONE_SLOT and turn % 2:
            poisoned = np.concatenate([
                previous[start : start + count]
                for count, start in zip(exchange.expected, exchange.rdispls, strict=True)
            ])
            assert np.all(poisoned == -1), "the slot of the round before was given up at Start"
        if turn % 2:  # looked at by all before anybody who runs ahead may write into it again
            comm.Barrier()
        previous = exchange.request.Wait()
        exchange.check(turn, previous)
    exchange.free()


ONE_SLOT = [name for name in names() if name.endswith("-paper")]


@parameters(method=names)
def case_a_changed_send_buffer_is_noticed(comm, method):
    exchange = Vector(comm, tables(comm.size)["self only"], method)
    exchange.fill(1)
    exchange.request.Start()
    exchange.send[:] += 1
    try:
        exchange.request.Wait()
    except RequestError as error:
        assert "send buffer was changed" in str(error)
    else:
        raise AssertionError("nobody noticed")
    assert exchange.request.state == "broken"
    exchange.free()


@ranks(at_least=2)
@parameters(method=strict)
def case_different_orders_become_an_error(comm, method):
    a, b = (Vector(comm, tables(comm.size)["uneven"], method) for _ in range(2))
    first = a if comm.rank == 0 else b
    try:
        first.request.Start()
    except MismatchError as error:
        assert "rank 0 is in Start" in str(error)
    else:
        raise AssertionError("nobody noticed")
    a.round(1)
    b.round(1)
    a.free()
    b.free()
