"""What an exception leaves behind where the table has none: on one rank, and by name of a hook."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
import weakref

import numpy as np
from cases import parameters, ranks, skip
from errors import raises
from exchange_data import Vector, any_order, names, tables
from mpi4py import MPI
from subjects import make
from table import Cell, Length

from onesided.collectives import (
    Alltoallv_init,
    Bcast_init,
    RequestError,
    empty,
    free,
    sums,
)
from onesided.collectives import request as requests
from onesided.collectives.context import Context
from onesided.collectives.program import LOCAL_CALLS
from onesided.collectives.reduction.messages import Team


class Boom(Exception):
    """Raised once, where a case wants it."""


def once(function, error=Boom):
    """The function, which raises at its first call."""
    left = [1]

    def wrapped(*arguments, **named):
        if left:
            left.pop()
            raise error("as it was wanted")
        return function(*arguments, **named)

    return wrapped


def refuses_all_but_free(request):
    assert request.state == "broken", request.state
    for verb in ("Start", "Wait", "Test", "Get_status", "Open", "Release"):
        error = raises(RequestError, getattr(request, verb), "broken", "Boom", "as it was wanted")
        assert isinstance(error.__cause__, Boom), error.__cause__
    raises(RequestError, lambda: request.Ready(0))


def exchange(comm, method, memory="own", info=None):
    return Vector(comm, tables(comm.size)["uneven"] + 1, method, memory, info)


def ordinary():
    """MPI's own collectives cannot be withdrawn once started."""
    return [name for name in names() if not name.startswith("mpi") and name not in
            ("auto", "rma-pscw", "rma-fence-paper", "rma-lock-paper")]


def strictly_ordered():
    """Of these, the methods that wait for all ranks in Wait."""
    return [name for name in ordinary() if name not in any_order()]


def freed_in_the_middle(comm, moved):
    """Free; where a rank had steps left, nothing that others may still write to is given back."""
    request, told = moved.request, []
    arena, release = Context.of(comm).arena, request.resources.release

    def listen(broken):
        told.append(broken)
        release(broken)

    request.resources.release = listen
    taken = None if arena is None else len(arena._taken)
    request.Free()
    if comm.allreduce(request._done, MPI.MIN) == 0:
        assert told == [True]
        assert arena is None or len(arena._taken) == taken, "control memory has come back"
    moved.free()


# -- exceptions around a round --------------------------------------------------------------------


@ranks(at_least=2)
@parameters(method=ordinary, hook=["_after_wait", "_after_start"])
def case_a_hook_raises(comm, method, hook):
    """In the round of rank 0, while the others have started theirs. On all ranks alike it is in the
    table, before Start in legal programs."""
    moved = exchange(comm, method)
    request, mine = moved.request, comm.rank == 0
    moved.round(0)
    moved.fill(1)
    if mine:
        request._hooked = 1
        setattr(request, hook, once(getattr(request, hook)))
    else:
        request.Start()
    comm.Barrier()
    if mine and hook == "_after_start":
        raises(Boom, request.Start)
    elif mine:
        request.Start()
        raises(Boom, request.Wait)
    if mine:
        refuses_all_but_free(request)
    comm.Barrier()
    freed_in_the_middle(comm, moved)
    again = exchange(comm, method)
    again.round(2)
    again.free()


@ranks(at_least=2)
@parameters(method=ordinary, nodes=["", "1"])
def case_another_call_in_the_middle_of_open(comm, method, nodes):
    """Of a handler, or another thread: it is refused, and the round goes on as it was opened."""
    moved = exchange(comm, method, info={"ranks_per_node": nodes} if nodes else None)
    request = moved.request
    moved.round(0)
    moved.fill(1)
    may_open = request.transport.may_open

    def refuses(rounds):
        raises(RequestError, request.Start, "started")
        raises(RequestError, request.Open, "opened")
        return may_open(rounds)

    request.transport.may_open = refuses
    request.Release()
    comm.Barrier()
    if request.direct and request.Open():
        for outlets in request.outlets:
            for _, part, array in outlets:
                array[...] = moved.send.array[part]
        for chunk in range(len(request.outlets)):
            request.Ready(chunk)
    else:
        request.Start()
    moved.check(1, request.Wait())
    moved.free()


@ranks(at_least=2)
@parameters(method=ordinary, nodes=["", "1"])
def case_an_interrupt_in_free(comm, method, nodes):
    """On one rank, while all agree: the request is freed on all, and Ctrl-C is heard after it."""
    moved = exchange(comm, method, info={"ranks_per_node": nodes} if nodes else None)
    request, heard = moved.request, False
    moved.round(0)
    agreed, largest_rank = request._agreed_to_free, comm.rank == comm.size - 1
    earlier = signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupted(*given):
        os.kill(os.getpid(), signal.SIGINT)
        return agreed(*given)

    if largest_rank:
        request._agreed_to_free = interrupted
    try:
        request.Free()
    except KeyboardInterrupt:
        heard = True
    finally:
        signal.signal(signal.SIGINT, earlier)
    assert heard == largest_rank
    assert request.state == "freed"
    again = exchange(comm, method)
    again.round(1)
    again.free()


@ranks(at_least=2)
@parameters(nodes=["", "1"], by=["Free", "close"])
def case_what_cannot_be_given_back(comm, nodes, by):
    """What else there is is given back all the same: others wait for it. ``close``: of all that a
    communicator has, as at the end."""
    within, info = comm.Dup(), {"ranks_per_node": nodes} if nodes else None
    both = [exchange(within, "rma-notify", info=info) for _ in range(1 if by == "Free" else 2)]
    for moved in both:
        moved.round(0)
    context, resources = Context.of(within), moved.request.resources
    give_back = moved.request.Free if by == "Free" else context.close
    if comm.rank == 0:
        resources.on_release(once(bool))
        raises(Boom, give_back)
    else:
        give_back()
    assert not resources._closing
    assert not context.live
    assert not context.arena._taken
    assert by == "Free" or context.comm == MPI.COMM_NULL
    within.Free()
    again = exchange(comm, "rma-notify")
    again.round(1)
    again.free()


@ranks(at_least=2)
@parameters(which=[0, 1], ahead=[False, True])
def case_requests_that_alternate_outlive_a_broken_one(comm, which, ahead):
    """``ahead``: the others have completed the round, and have started one of the other request."""
    from onesided.collectives import alternate

    count = 5000
    memory = empty(comm, count * comm.size, np.uint8)
    send = np.full(count * comm.size, comm.rank, np.uint8)
    counts = [count] * comm.size
    both = [Alltoallv_init(comm, [send, counts], [memory, counts], method="rma-notify")
            for _ in range(2)]
    alternate(both)
    want = np.repeat(np.arange(comm.size), count)
    for request in both:
        request.Start()
        np.testing.assert_array_equal(request.Wait(), want)
    broken, other = both[which], both[1 - which]
    if ahead:
        broken.Start()
        if comm.rank == 0:
            broken._hooked, broken._after_wait = 1, once(broken._after_wait)
            raises(Boom, broken.Wait)
        else:
            np.testing.assert_array_equal(broken.Wait(), want)
            other.Start()
    elif comm.rank == 0 and broken.Open():
        broken._break(Boom("as it was wanted"))
    comm.Barrier()
    broken.Free()
    for turn in range(3):
        if not (ahead and turn == 0 and comm.rank):
            send[:] = comm.rank + turn
            other.Start()
        np.testing.assert_array_equal(other.Wait(), want + turn)
    other.Free()
    free(memory)


@ranks(at_least=2)
@parameters(method=["rma-linear", "rma-binomial", "rma-pipelined"])
def case_a_thread_hears_the_farewell(comm, method):
    """Ranks below the root have given their round up, while the root's still looks for their
    slots."""
    request = Bcast_init(comm, np.zeros(8), 0, method=method,
                         info={"ranks_per_node": "1", "progress": "manual"})  # fmt: skip
    if comm.rank:
        request._hooked, request._after_start = 1, once(request._after_start)
        raises(Boom, request.Start)
    else:
        links, retire = request.transport._links, request.retire
        for _ in range(links.turns):
            request.Start()
            request.Wait()
        request.Start()

        def late():
            while not links._comm.Iprobe(links.groups[0][0], links._tag):
                pass
            request.advance(LOCAL_CALLS)
            retire()

        request.retire = late
    comm.Barrier()
    request.Free()


@ranks(at_least=2)
@parameters(name=["Allreduce", "Reduce", "Reduce_scatter", "Scan"], method=["p2p", "rma-p2p"],
            count=[10, 10**4], nodes=["", "1"])
def case_memory_of_a_broken_reduction_lives(comm, name, method, count, nodes):
    """A message may still come into it."""
    into, exchange_of = [], Team._exchange

    def watched(team, out, arrays):
        into.extend(weakref.ref(a if a.base is None else a.base) for _, a in arrays)
        exchange_of(team, out, arrays)

    Team._exchange = watched
    try:
        reduced = make(comm, Cell(name, method, Length(8 * count, 0), "i8 PROD wraps", "plain",
                                  root=comm.size - 1, nodes=nodes))  # fmt: skip
    finally:
        Team._exchange = exchange_of
    request = reduced.request
    request._hooked = 1
    request._after_start = once(request._after_start)
    reduced.fill(0)
    raises(Boom, request.Start)
    torn = comm.allreduce(not request._done, op=MPI.LOR)  # else nothing is under way any more
    reduced.free()
    gc.collect()
    assert not torn or all(memory() is not None for memory in into)
    assert comm.allreduce(len(into)) or (nodes, method) == ("", "rma-p2p")


# -- a request that one thread frees while another waits for it ------------------------------------


@ranks(at_least=2)
@parameters(method=["rma-notify", "p2p"])
def case_free_ends_the_wait_of_another_thread(comm, method):
    """Rank 0 does not fill its round, so all give it up, while threads of others wait for data."""
    moved = exchange(comm, method)
    moved.round(0)
    request, raised, waits = moved.request, [], threading.Event()
    drive = request._drive

    def driven():
        waits.set()
        drive()

    def wait():
        raised.append(raises(RequestError, request.Wait, "freed"))

    thread = threading.Thread(target=wait)
    if comm.rank == 0:
        assert request.Open()
    else:
        request._drive = driven
        moved.fill(1)
        request.Start()
        thread.start()
        assert waits.wait(20)
    comm.Barrier()
    request.Free()
    if comm.rank > 0:
        thread.join(20)
        assert not thread.is_alive()
        assert raised, "the wait did not end by an error"
    moved.free()


@ranks(at_least=2)
@parameters(method=ordinary, nodes=["", "1"], place=["before", "inside"])
def case_free_waits_for_a_thread_that_sends_a_chunk(comm, method, nodes, place):
    """What it sends is not given back before; then there is no round any more. A thread that is
    about to send it hears that."""
    if nodes and method not in ("p2p", "rma-notify"):
        skip("windows whose epochs stay open cannot be freed")
    moved = exchange(comm, method, info={"ranks_per_node": nodes} if nodes else None)
    moved.round(0)
    request, raised, inside = moved.request, [], threading.Event()
    send_chunk, release, sent = request.transport.send_chunk, request.resources.release, []

    class Overtaken(bytearray):
        def __setitem__(self, *given):
            inside.set()
            while request.state != "freed":
                time.sleep(0.001)
            super().__setitem__(*given)

    def slow(*given):
        inside.set()
        time.sleep(0.05)
        sent.append(send_chunk(*given))
        return sent[-1]

    def released(torn):
        assert not inside.is_set() or sent
        release(torn)

    def fill():
        raised.append(raises(RequestError, lambda: request.Ready(0), "freed"))

    moved.fill(1)
    request.Release()
    comm.Barrier()
    sends = request.direct and (place == "before" or request.transport.sends_chunks())
    opened = comm.rank == 0 and sends and request.Open()
    thread = threading.Thread(target=fill)
    if opened and place == "before":
        request._written = Overtaken(request._written)
    elif opened:
        request.transport.send_chunk, request.resources.release = slow, released
    if opened:
        thread.start()
        assert inside.wait(20)
    elif comm.rank:
        request.Start()
    if not comm.bcast(opened):
        if comm.rank == 0:
            request.Start()
        request.Wait()
        moved.free()
        skip(f"{method} sends no chunk of an opened round here")
    request.Free()
    if opened:
        thread.join(20)
        assert raised, "Ready was not refused"
    moved.free()


@ranks(at_least=2)
@parameters(method=strictly_ordered)
def case_a_thread_completes_the_earlier_round(comm, method):
    """While the later one is waited for, which completes the earlier one first, too."""
    both = [exchange(comm, method, info={"ranks_per_node": "1"}) for _ in range(2)]
    for turn in range(2):
        for moved in both:
            moved.fill(turn)
            moved.request.Start()
        first = both[0].request
        advance = first.advance

        def meanwhile(level, first=first, advance=advance):
            del first.advance
            thread = threading.Thread(target=first.Wait)
            thread.start()
            thread.join()
            return advance(level)

        first.advance = meanwhile
        both[1].check(turn, both[1].request.Wait())
        both[0].check(turn, first.Wait())
    for moved in both:
        moved.free()


@ranks(at_least=2)
@parameters(method=["mpi", "rma-fence"], comes=["before", "meanwhile"])
def case_free_does_not_wait_for_a_thread_that_waits_for_other_ranks(comm, method, comes):
    """Rank 0 has not come yet, or has an exception in its round: nobody hangs, and nobody's data
    are mixed with what this library agrees on meanwhile. The thread comes before Free, or when it
    has agreed that the round is lost."""
    if (method, comes) == ("mpi", "meanwhile"):
        skip("no round of it is lost: its Start waits")
    moved = exchange(comm, method, info={"ranks_per_node": "1"})
    request, failed = moved.request, []
    moved.round(0)
    moved.fill(1)

    def run():
        try:
            if comes == "before":
                request.Start()
            request.Wait()
        except RequestError as error:
            failed.append(error)

    thread = threading.Thread(target=run)

    def start():
        thread.start()
        while not request._calling:
            time.sleep(0.001)

    def agreed(*given, largest=requests.largest):
        requests.largest = largest
        found = largest(*given)
        start()
        return found

    if comm.rank and comes == "before":
        start()
    elif comm.rank:
        request.Start()
        requests.largest = agreed
    elif method == "rma-fence":
        request.Start()
        request._break(RuntimeError("as it was wanted"))
    if comes == "before":
        Context.of(comm).in_step()  # all are here, and any agreement may be the next
    raises(RequestError, request.Free, "waits in it for other ranks")
    if method == "rma-fence" and comm.rank == 0:
        request.transport._open()
    elif comm.rank == 0:
        run()
    else:
        thread.join(20)
    assert not thread.is_alive()
    assert not failed
    if method == "mpi":
        moved.check(1, request.Wait())
    else:  # all have passed the same fences by now: the windows need not stay
        release = request.resources.release
        request.resources.release = lambda torn: release()
    moved.free()


@parameters(broken=["here", "everywhere"], count=[2, 4])
def case_broken_sums_of_a_freed_communicator(comm, broken, count):
    """What may still come for them goes nowhere: the communicator's memory and number are kept."""
    own, torn = comm.Dup(), len(Context._torn)
    made = sums(own, count)
    assert made.of(1.0)[0] == comm.size
    if broken == "everywhere" or comm.rank == 0:
        made.start()
        made.give_up(Boom())
    own.Free()
    assert len(Context._torn) == torn + 1
    other = comm.Dup()
    assert sums(other, count).of(1.0)[0] == comm.size
    other.Free()
