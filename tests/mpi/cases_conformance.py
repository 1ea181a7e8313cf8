"""What every transport keeps: the life of a persistent request (MPI-4.1 section 7.13), and data."""

from __future__ import annotations

import array

import numpy as np
from cases import parameters, ranks
from exchange_data import MEMORY, Vector, names, tables

from onesided.collectives import (
    Alltoallv_init,
    RequestError,
    Startall,
    Waitall,
    methods,
)


def raises(kind, call, *words):
    """The error that the call must raise, with these words in it."""
    try:
        call()
    except kind as error:
        for word in words:
            if word not in str(error):
                raise AssertionError(f"{word!r} is not in {error!s}") from error
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


@parameters(method=names, memory=MEMORY)
def case_data_in_every_pattern(comm, method, memory):
    for name, table in tables(comm.size).items():
        exchange = Vector(comm, table, method, memory)
        for turn in range(3):
            try:
                exchange.round(turn)
            except AssertionError as error:
                raise AssertionError(f"pattern {name!r}: {error}") from error
        exchange.free()


@parameters(method=names)
def case_with_statement(comm, method):
    exchange = Vector(comm, tables(comm.size)["uneven"], method)
    with exchange.request as request:
        exchange.round(1)
    raises(RequestError, request.Start, "freed")


@parameters(method=names)
def case_startall_and_waitall(comm, method):
    table = tables(comm.size)["uneven"]
    exchanges = [Vector(comm, table + i, method) for i in range(3)]
    requests = [exchange.request for exchange in exchanges]
    raises(RequestError, lambda: Startall([requests[0], requests[0]]), "twice")
    requests[1].Start()
    raises(RequestError, lambda: Startall(requests), "nothing has been started")
    assert not requests[0].active
    requests[1].Wait()
    for turn in range(4):
        for exchange in exchanges:
            exchange.fill(turn)
        Startall(requests[::-1])
        for exchange, got in zip(exchanges, Waitall(requests), strict=True):
            exchange.check(turn, got)
    for exchange in exchanges:
        exchange.free()


@parameters(method=names)
def case_counts_are_copied(comm, method):
    counts = np.full(comm.size, 3)
    displs = 3 * np.arange(comm.size)
    send = np.repeat(np.arange(comm.size), 3) + 100.0 * comm.rank
    recv = np.zeros(3 * comm.size)
    request = Alltoallv_init(comm, [send, counts, displs], [recv, counts, displs], method=method)
    counts[:] = 99
    displs[:] = -5
    for _ in range(2):
        recv[:] = -1
        request.Start()
        assert request.Wait() is recv
        np.testing.assert_array_equal(recv, np.repeat(100.0 * np.arange(comm.size) + comm.rank, 3))
    request.Free()


@parameters(method=names)
def case_slots_take_turns(comm, method):
    exchange = Vector(comm, tables(comm.size)["uneven"], method)
    seen = []
    for turn in range(6):
        exchange.fill(turn)
        exchange.request.Start()
        got = exchange.request.Wait()
        exchange.check(turn, got)
        seen.append(got.ctypes.data)
        got[:] = GARBAGE  # the slot is the caller's until the next start
    if method in PRINTED:
        assert len(set(seen)) == 1, "the printed algorithms have one receive buffer"
    elif sum(exchange.expected):
        assert seen[::2] == seen[:1] * 3
        assert seen[1::2] == seen[1:2] * 3
        assert seen[0] != seen[1], "two slots are used in turn"
    exchange.free()


GARBAGE = 123456789
PRINTED = [name for name in names() if name.endswith("-paper")]


@ranks(at_least=3)
@parameters(method=names)
def case_overlapping_communicators(comm, method):
    low = comm.Split(0 if comm.rank < comm.size - 1 else 1, comm.rank)
    high = comm.Split(0 if comm.rank > 0 else 1, -comm.rank)
    exchanges = [Vector(c, tables(c.size)["uneven"], method) for c in (low, high, comm)]
    for turn in range(3):
        for exchange in exchanges:
            exchange.round(turn)
    low.Free()  # the requests have a communicator of their own
    high.Free()
    for exchange in exchanges:
        exchange.round(7)
    for exchange in exchanges:
        exchange.free()


@parameters(method=names)
def case_buffers_of_other_kinds(comm, method):
    size = comm.size
    send = array.array("i", [comm.rank * 10 + p for p in range(size)])
    recv = bytearray(4 * size)
    request = Alltoallv_init(comm, send, [recv, [1] * size, None, "i"], method=method)
    request.Start()
    assert request.Wait() is recv
    assert list(memoryview(recv).cast("i")) == [p * 10 + comm.rank for p in range(size)]
    request.Free()
    record = np.dtype([("a", "i4"), ("b", "f8")])
    data = np.zeros(2 * size, record)
    data["a"], data["b"] = comm.rank, np.arange(2 * size)
    request = Alltoallv_init(comm, data, None, method=method)
    request.Start()
    got = request.Wait()
    assert got.dtype == record
    np.testing.assert_array_equal(got["a"], np.repeat(np.arange(size), 2))
    request.Free()


def case_methods_are_described(comm):
    for name, method in methods().items():
        assert method.name == name
        assert method.summary
        assert callable(method.load())
