"""ONESIDED_DEBUG=1 for broadcasts: poison, changed buffers of the root, calls in other orders."""

from __future__ import annotations

import time

from broadcast_data import MEMORY, Cast, names
from cases import parameters, ranks
from cases_conformance import raises

from onesided.collectives import MismatchError, RequestError
from onesided.collectives.debug import enabled


@parameters(method=names, memory=MEMORY)
def case_data_are_right_and_poisoned_before(comm, method, memory):
    assert enabled()
    for count in (0, 999, 50_000):
        cast = Cast(comm, count, 0, method, memory)
        for turn in range(4):
            if turn % comm.size == comm.rank:
                time.sleep(0.002)
            cast.round(turn)
        cast.free()


@ranks(at_least=2)
@parameters(method=["rma-binomial", "p2p"])
def case_what_is_to_be_filled_is_poisoned(comm, method):
    cast = Cast(comm, 1000, 0, method)
    cast.fill(1)
    if comm.rank == 0:
        comm.Barrier()  # the others have started
    cast.request.Start()
    if comm.rank:
        assert set(cast.buffer.tolist()) <= {0xFF, *cast.data(1).tolist()}
        assert cast.buffer[0] == 0xFF
        comm.Barrier()
    cast.request.Wait()
    cast.check(1)
    cast.free()


@parameters(method=names)
def case_a_changed_buffer_of_the_root_is_noticed(comm, method):
    cast = Cast(comm, 1000, 0, method)
    cast.fill(1)
    cast.request.Start()
    if comm.rank == 0:
        cast.buffer[999] += 1
        raises(RequestError, cast.request.Wait, "changed while the request was active")
    else:
        cast.request.Wait()
    comm.Barrier()
    cast.free()


@ranks(at_least=2)
def case_other_orders_of_strict_requests(comm):
    first, second = (Cast(comm, 10, 0, "mpi") for _ in range(2))
    mine = first if comm.rank % 2 else second
    raises(MismatchError, mine.request.Start, "Start of mpi request")
    first.free()
    second.free()
