"""Requests used by several threads."""

from __future__ import annotations

import threading

from cases import parameters, ranks, skip
from exchange_data import Vector, any_order, tables
from mpi4py import MPI

from onesided.collectives import RequestError


def together(workers):
    """Run the functions in threads; the first exception is raised here."""
    errors = []

    def guarded(worker):
        try:
            worker()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@parameters(method=any_order)
def case_a_request_per_thread(comm, method):
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        skip("this MPI does not allow several threads")
    exchanges = [Vector(comm, tables(comm.size)["uneven"] + i, method) for i in range(3)]

    def worker(exchange):
        for turn in range(15):
            exchange.round(turn)

    together([lambda e=e: worker(e) for e in exchanges])
    for exchange in exchanges:
        exchange.free()


@parameters(method=["rma-notify", "p2p"])
def case_start_in_one_thread_wait_in_another(comm, method):
    exchange = Vector(comm, tables(comm.size)["uneven"], method)
    for turn in range(5):
        exchange.fill(turn)
        together([exchange.request.Start])
        got = []
        together([lambda got=got: got.append(exchange.request.Wait())])
        exchange.check(turn, got[0])
    exchange.free()


@parameters(method=["rma-notify", "p2p"])
def case_two_threads_wait_for_one_request(comm, method):
    """One of them completes it, the other finds it inactive."""
    exchange = Vector(comm, tables(comm.size)["uneven"], method)
    for turn in range(10):
        exchange.fill(turn)
        exchange.request.Start()
        together([exchange.request.Wait] * 2)
        exchange.check(turn, exchange.request.recvbuf)
    exchange.free()


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
