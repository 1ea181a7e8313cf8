"""A broadcast of more than 2^31 bytes, memory permitting."""

from __future__ import annotations

import os

import numpy as np
from broadcast_data import info_of, names
from cases import parameters, ranks, skip
from cases_large import SIZE, free_memory

from onesided.collectives import Bcast_init


@ranks(at_least=2, at_most=2)
@parameters(method=[name for name in names() if name != "auto"])
def case_data_beyond_two_gigabytes(comm, method, options):
    shared = os.statvfs("/dev/shm")
    lacking = free_memory() < 5 * SIZE or shared.f_bavail * shared.f_frsize < SIZE + 2**24
    if comm.bcast(lacking):
        skip("too little memory")
    data = np.full(SIZE, 9, np.uint8)
    if comm.rank == 0:
        data[::4096] = np.arange(len(data[::4096])) % 251
        data[-1] = 77
    with Bcast_init(comm, data, 0, method=method, info=info_of(options)) as request:
        request.Start()
        request.Wait()
    assert data[-1] == 77
    assert np.array_equal(data[::4096], np.arange(len(data[::4096])) % 251)
    assert data[2**30 + 1] == 9
