"""Buffers that the table has not: memory of other kinds, and other buffers for the same pattern."""

from __future__ import annotations

import array

import numpy as np
from cases import parameters, ranks
from errors import agreed, raises
from exchange_data import names
from mpi4py import MPI

from onesided.collectives import (
    Alltoallv_init,
    PatternError,
    RequestError,
)


@parameters(method=names)
def case_buffers_of_other_kinds(comm, method):
    size = comm.size
    send = array.array("i", [comm.rank * 10 + p for p in range(size)])
    apart = MPI.INT.Create_resized(0, 8).Commit()
    for step, kind in ((1, "i"), (2, apart)):
        recv = bytearray(4 * size * step)
        with Alltoallv_init(comm, send, [recv, [1] * size, None, kind], method=method) as request:
            request.Start()
            raises(BufferError, lambda recv=recv: recv.append(0))
            assert request.Wait() is recv
            found = list(memoryview(recv).cast("i"))[::step]
            assert found == [p * 10 + comm.rank for p in range(size)]
            raises(BufferError, lambda recv=recv: recv.append(0))
    apart.Free()
    record = np.dtype([("a", "i4"), ("b", "f8")])
    data = np.zeros(2 * size, record)
    data["a"], data["b"] = comm.rank, np.arange(2 * size)
    with Alltoallv_init(comm, data, None, method=method) as request:
        request.Start()
        got = request.Wait()
        assert got.dtype == record
        np.testing.assert_array_equal(got["a"], np.repeat(np.arange(size), 2))


@ranks(at_least=2)
@parameters(what=["more", "type", "freed"])
def case_another_pattern_is_refused_on_all_ranks(comm, what):
    last = comm.rank == comm.size - 1
    sent, counts = np.ones(8 * comm.size), [8] * comm.size
    with Alltoallv_init(comm, [sent, counts], None, method="p2p") as request:
        if what == "more" and last:
            counts = [7, *counts[1:]]
        if what == "type" and last:
            sent = sent.astype(np.int64)
        if what == "freed":
            request.Free()
            raises(RequestError, lambda: request.like([sent, counts], None), "freed")
            return
        agreed(comm, PatternError, lambda: request.like([sent, counts], None), "blocks are others")
        with request.like([np.full(8 * comm.size, 2.0), [8] * comm.size], None) as other:
            other.Start()
            assert np.all(other.Wait() == 2)
