"""A request that one thread frees while another waits for it."""

from __future__ import annotations

import threading
import time

import pytest
from cases import parameters, ranks
from exchange_data import Vector, tables

from onesided.collectives import RequestError
from onesided.collectives.context import Context


@ranks(at_least=2)
@parameters(method=["rma-notify", "p2p"])
def case_free_ends_the_wait_of_another_thread(comm, method):
    """Rank 0 does not fill its round, so all give it up, while threads of others wait for data."""
    exchange = Vector(comm, tables(comm.size)["uneven"] + 1, method)
    exchange.round(0)
    request, raised, waits = exchange.request, [], threading.Event()
    drive = request._drive

    def driven():
        waits.set()
        drive()

    def wait():
        try:
            request.Wait()
        except RequestError as error:
            raised.append(str(error))

    thread = threading.Thread(target=wait)
    if comm.rank == 0:
        assert request.Open()
    else:
        request._drive = driven
        exchange.fill(1)
        request.Start()
        thread.start()
        assert waits.wait(20)
    comm.Barrier()
    request.Free()
    if comm.rank > 0:
        thread.join(20)
        assert not thread.is_alive()
        assert raised, "the wait did not end by an error"
        assert "freed" in raised[0], raised
    exchange.free()


@ranks(at_least=2)
@parameters(method=["mpi", "rma-fence"])
def case_free_does_not_wait_for_a_thread_that_waits_for_other_ranks(comm, method):
    """Rank 0 has not come yet, or has an exception in its round: nobody hangs, and nobody's data
    are mixed with what this library agrees on meanwhile."""
    info = {"ranks_per_node": "1"}
    exchange = Vector(comm, tables(comm.size)["uneven"] + 1, method, info=info)
    request, failed = exchange.request, []
    exchange.round(0)
    exchange.fill(1)

    def run():
        try:
            request.Start()
            request.Wait()
        except RequestError as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    if comm.rank:
        thread.start()
        while not request._calling:
            time.sleep(0.001)
    elif method == "rma-fence":
        request.Start()
        request._break(RuntimeError("as it was wanted"))
    Context.of(comm).in_step()  # all are here, and any agreement may be the next
    with pytest.raises(RequestError, match="waits in it for other ranks"):
        request.Free()
    if method == "rma-fence" and comm.rank == 0:
        request.transport._open()
    elif comm.rank == 0:
        run()
    else:
        thread.join(20)
    assert not thread.is_alive()
    assert not failed
    if method == "mpi":
        exchange.check(1, request.Wait())
    else:  # all have passed the same fences by now: the windows need not stay
        release = request.resources.release
        request.resources.release = lambda torn: release()
    exchange.free()
