"""A request that one thread frees while another waits for it."""

from __future__ import annotations

import threading

from cases import parameters, ranks
from exchange_data import Vector, tables

from onesided.collectives import RequestError


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
