"""Buffers that the table has not: counts that change, and memory of other kinds."""

from __future__ import annotations

import array

import numpy as np
from cases import parameters
from exchange_data import names

from onesided.collectives import (
    Alltoallv_init,
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
