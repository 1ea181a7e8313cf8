"""Blocks of more than 2^31 bytes, memory permitting."""

from __future__ import annotations

import os

import numpy as np
from cases import parameters, ranks, skip

from onesided.collectives import Alltoallv_init, Bcast_init, methods

SIZE = 2**31 + 4099


def free_memory():
    with open("/proc/meminfo") as file:
        for line in file:
            if line.startswith("MemAvailable"):
                return int(line.split()[1]) * 1024
    return 0


def fill(data):
    data[::4096] = np.arange(len(data[::4096])) % 251
    data[-1] = 77


def check(data):
    assert data[-1] == 77
    assert np.array_equal(data[::4096], np.arange(len(data[::4096])) % 251)
    assert data[2**30 + 1] == data[2**31 + 1] == 0


@ranks(at_least=2)
@parameters(method=list(methods()))
def case_one_block_beyond_two_gigabytes(comm, method):
    if comm.bcast(free_memory()) < 4 * SIZE:
        skip("too little memory")
    counts, expected = [0] * comm.size, [0] * comm.size
    if comm.rank == 0:
        counts[1] = SIZE
    if comm.rank == 1:
        expected[0] = SIZE
    send, recv = np.zeros(sum(counts), np.uint8), np.full(sum(expected), 9, np.uint8)
    if comm.rank == 0:
        fill(send)
    with Alltoallv_init(comm, [send, counts], [recv, expected], method=method) as request:
        request.Start()
        request.Wait()
    if comm.rank == 1:
        check(recv)


@ranks(at_least=2, at_most=2)
@parameters(method=[name for name in methods("broadcast") if name != "auto"],
            segment=["", str(1 << 31)])  # fmt: skip
def case_data_beyond_two_gigabytes(comm, method, segment):
    shared = os.statvfs("/dev/shm")
    lacking = free_memory() < 5 * SIZE or shared.f_bavail * shared.f_frsize < SIZE + 2**24
    if comm.bcast(lacking):
        skip("too little memory")
    data = np.full(SIZE, 9 * comm.rank, np.uint8)
    if comm.rank == 0:
        fill(data)
    if segment and method != "rma-pipelined":
        skip("it has no segments")
    info = {"segment_bytes": segment, "ranks_per_node": "1"} if segment else None
    with Bcast_init(comm, data, 0, method=method, info=info) as request:
        request.Start()
        request.Wait()
    check(data)
