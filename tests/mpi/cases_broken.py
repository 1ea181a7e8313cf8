"""What an exception leaves behind, what Test may do, and late rounds of every size and number."""

from __future__ import annotations

import gc
import time
import weakref

import numpy as np
from cases import parameters, ranks, skip
from exchange_data import Vector, any_order, names, strict, tables
from mpi4py import MPI
from reduction_data import Reduced, Row

from onesided.collectives import (
    Allreduce_init,
    Alltoallv_init,
    Alltoallw_init,
    Get_status_all,
    Get_status_any,
    Get_status_some,
    RequestError,
    Testall,
    empty,
    free,
)
from onesided.collectives.context import Context
from onesided.collectives.reduction.messages import Team

TAG = 9


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


def raises(kind, call, *words):
    try:
        call()
    except kind as error:
        assert all(word in str(error) for word in words), error
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


def refuses_all_but_free(request):
    assert request.state == "broken", request.state
    for verb in ("Start", "Wait", "Test", "Get_status", "Open", "Release"):
        error = raises(RequestError, getattr(request, verb), "broken", "Boom", "as it was wanted")
        assert isinstance(error.__cause__, Boom), error.__cause__


def exchange(comm, method, memory="own", info=None):
    return Vector(comm, tables(comm.size)["uneven"] + 1, method, memory, info)


def ordinary():
    """MPI's own collectives cannot be withdrawn once started."""
    return [name for name in names() if not name.startswith("mpi") and name not in
            ("auto", "rma-pscw", "rma-fence-paper", "rma-lock-paper")]


def freed_in_the_middle(comm, moved):
    """Free; where a rank had steps left, nothing that others may still write to is given back."""
    request, told = moved.request, []
    arena, release = Context.of(comm).arena, request.resources.release

    def listen(broken):
        told.append(broken)
        release(broken)

    request.resources.release = listen
    taken = None if arena is None else arena._taken
    request.Free()
    if comm.allreduce(request._done, MPI.MIN) == 0:
        assert told == [True]
        assert arena is None or arena._taken == taken, "control memory has come back"
    moved.free()


# -- exceptions around a round --------------------------------------------------------------------


@parameters(method=ordinary, hook=["_after_wait", "_before_start", "_after_start"],
            everywhere=[True, False])
def case_a_hook_raises(comm, method, hook, everywhere):
    """In every rank's round, or in that of rank 0 while the others have started theirs; what was
    packed only is packed again by the next Start."""
    moved = exchange(comm, method)
    request = moved.request
    moved.round(0)
    mine = everywhere or comm.rank == 0
    if mine:
        request._hooked = 1
        setattr(request, hook, once(getattr(request, hook)))
    moved.fill(1)
    if not mine:
        request.Start()
    comm.Barrier()
    if hook == "_before_start":
        if mine:
            raises(Boom, request.Start)
            assert request.state == "inactive"
            request.Start()
        moved.check(1, request.Wait())
        moved.free()
        return
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
@parameters(method=ordinary, where=["may_open", "send_chunk", "_fill_chunk", "abandoned"],
            everywhere=[True, False], slots=[2, 1])
def case_between_open_and_ready(comm, method, where, everywhere, slots):
    """On all ranks, or on one while the others have started the same round; and in Open itself,
    when it has waited for the others, or its messages may come."""
    if slots == 1 and not everywhere:
        skip("of one slot the others have to be in Open, too, where it is strictly ordered")
    moved = exchange(comm, method, info={"slots": str(slots)})
    request = moved.request
    moved.round(0)
    mine = everywhere or comm.rank == 0
    moved.fill(1)
    if where == "may_open":
        may_open = request.transport.may_open
        request.transport.may_open = lambda rounds: may_open(rounds) and once(bool)()
    request.Release()
    comm.Barrier()  # into one slot, too, all may write now
    try:
        opened = request.direct and mine and request.Open()
    except Boom:
        opened = True
    if not comm.bcast(opened, 0):
        if opened:
            request.Free()
        skip(f"{method} opens nothing")
    if not mine:
        request.Start()
    elif where == "may_open":
        refuses_all_but_free(request)
    elif where == "abandoned":
        raises(RequestError, request.Wait, "not ready")
    else:
        target = request.transport if where == "send_chunk" else request
        try:
            setattr(target, where, once(getattr(target, where)))
        except AttributeError:
            skip("a method of the compiled core")
        raises(Boom, lambda: request.Ready(0))
        refuses_all_but_free(request)
    comm.Barrier()
    request.Free()
    assert request.state == "freed"
    again = exchange(comm, method)
    for turn in range(3):
        again.round(turn)
    again.free()


@ranks(at_least=2)
@parameters(what=["outlets", "filled_plans"], method=["rma-notify", "rma-fence", "p2p"])
def case_the_first_open_is_interrupted(comm, what, method):
    moved = exchange(comm, method, info={"slots": "2"})
    request = moved.request
    setattr(request.transport, what, once(getattr(request.transport, what)))
    raises(Boom, request.Open)
    assert request.state == "inactive"
    moved.fill(0)
    if request.Open():
        for chunk, outlets in enumerate(request.outlets):
            for _, part, array in outlets:
                array[...] = moved.send[part]
            request.Ready(chunk)
    else:
        request.Start()
    moved.check(0, request.Wait())
    moved.round(1)
    moved.free()


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
        reduced = Reduced(comm, Row(name=name, method=method, bytes=8 * count, nodes=nodes))
    finally:
        Team._exchange = exchange_of
    request = reduced.request
    request._hooked = 1
    request._after_start = once(request._after_start)
    raises(Boom, lambda: reduced.start(0))
    torn = comm.allreduce(not request._done, op=MPI.LOR)  # else nothing is under way any more
    reduced.free()
    gc.collect()
    assert not torn or all(memory() is not None for memory in into)
    assert comm.allreduce(len(into)) or (nodes, method) == ("", "rma-p2p")


# -- Test and its families are local --------------------------------------------------------------


@ranks(at_least=2)
@parameters(method=names, memory=["own", "plain"], verb=["Testall", "Test", "Get_status",
            "Get_status_all", "Get_status_any", "Get_status_some"])
def case_polling_ends(comm, method, memory, verb, options):
    """Of requests of any method, started by everybody."""
    moved = exchange(comm, method, memory, options or None)
    request = moved.request
    ask = {
        "Testall": lambda: Testall([request]), "Test": request.Test,
        "Get_status": request.Get_status, "Get_status_all": lambda: Get_status_all([request]),
        "Get_status_any": lambda: Get_status_any([request]) == (0, True),
        "Get_status_some": lambda: Get_status_some([request]) == [0],
    }[verb]
    for turn in range(3):
        moved.fill(turn)
        request.Start()
        while not ask():
            time.sleep(0)
        if verb.startswith("Get"):
            assert request.state == "active"
            moved.check(turn, request.Wait())
        else:
            assert request.state == "inactive"
            moved.check(turn, request.recvbuf)
    assert Get_status_all([request, MPI.REQUEST_NULL])
    assert Get_status_any([request]) == (MPI.UNDEFINED, True)
    assert Get_status_some([request]) is None
    moved.free()


@ranks(at_least=2)
@parameters(method=any_order, other=strict, memory=["own", "plain"],
            verb=["Test", "Get_status", "Wait"])
def case_a_strict_request_is_not_waited_for(comm, method, other, memory, verb):
    """Rank 0 asks for an any-order request, and sends the others what they are waiting for before
    they go on with the strictly ordered one."""
    strictly, free_one = exchange(comm, other, memory), exchange(comm, method, memory)
    word = np.zeros(1)
    for turn in range(2):
        for moved in (strictly, free_one):
            moved.fill(turn)
        strictly.request.Start()
        free_one.request.Start()
        if comm.rank == 0:
            if verb == "Wait":
                free_one.check(turn, free_one.request.Wait())
            else:
                for _ in range(20):
                    getattr(free_one.request, verb)()
            for peer in range(1, comm.size):
                comm.Sendrecv(word, peer, TAG, word, peer, TAG)
        else:
            comm.Sendrecv(word, 0, TAG, word, 0, TAG)
        if free_one.request.state == "active":
            free_one.check(turn, free_one.request.Wait())
        strictly.check(turn, strictly.request.Wait())
    strictly.free()
    free_one.free()


@ranks(at_least=2)
@parameters(kind=["slots", "window"])
def case_open_drives_mpi(comm, kind):
    """A rendezvous between ranks, of which one is in Open."""
    if comm.rank > 1:
        comm = comm.Split(MPI.UNDEFINED)
    else:
        comm = comm.Split(0)
    if comm == MPI.COMM_NULL:
        return
    moved = exchange(comm, "rma-fence", "window" if kind == "window" else "own", {"slots": "1"})
    long = np.zeros(1 << 22)
    for turn in range(2):
        moved.fill(turn)
        message = comm.Irecv(long, 1, TAG) if comm.rank == 0 else None
        if comm.rank == 1:
            comm.Send(long, 0, TAG)
        if moved.request.Open():
            for chunk, outlets in enumerate(moved.request.outlets):
                for _, part, array in outlets:
                    array[...] = moved.send[part]
                moved.request.Ready(chunk)
        else:
            moved.request.Start()
        moved.check(turn, moved.request.Wait())
        if message is not None:
            message.Wait()
    moved.free()
    comm.Free()


# -- late rounds ----------------------------------------------------------------------------------


def one_waits_first(comm, start, wait):
    for turn in range(2):
        if (comm.rank + turn) % 2 == 0:
            start()
            comm.Barrier()
            wait()
        else:
            time.sleep(0.01)
            start()
            wait()
            comm.Barrier()


@ranks(at_least=2)
@parameters(number=[1, 300])
def case_many_late_rounds(comm, number):
    count = 2048
    memory = empty(comm, number * count * comm.size, np.uint8)
    counts = [count] * comm.size
    send = np.full(count * comm.size, comm.rank + 1, np.uint8)
    parts = memory.reshape(number, -1)
    requests = [Alltoallv_init(comm, [send, counts], [part, counts], method="rma-notify")
                for part in parts]

    def wait():
        for request in requests:
            np.testing.assert_array_equal(
                request.Wait(), np.repeat(np.arange(comm.size) + 1, count))

    one_waits_first(comm, lambda: [request.Start() for request in requests], wait)
    for request in requests:
        request.Free()
    free(memory)


@ranks(at_least=2)
@parameters(offset=[0, 4], count=[1000, 10**5], method=["rma-p2p", "p2p"])
def case_late_reduction(comm, offset, count, method):
    send = np.frombuffer(bytearray(8 * count + 4), "f8", count, offset)
    recv = np.frombuffer(bytearray(8 * count + 4), "f8", count, offset)
    send[:] = comm.rank + 1
    request = Allreduce_init(comm, send, recv, method=method)
    want = comm.size * (comm.size + 1) / 2

    def wait():
        request.Wait()
        assert np.all(recv == want)
        recv[:] = -1

    one_waits_first(comm, request.Start, wait)
    request.Free()


@ranks(at_least=2)
@parameters(axes=[2, 8, 9, 10, 17])
def case_late_box(comm, axes):
    """A slab of so many axes of which no two can be joined."""
    shape = (comm.size, *[2] * (axes - 2), 300 if axes == 2 else 2)
    memory = empty(comm, shape[::-1], np.int64)
    recv = memory.transpose()
    send = np.full(shape, comm.rank + 1, np.int64)
    boxes = [(slice(r, r + 1),) for r in range(comm.size)]
    request = Alltoallw_init(comm, [send, boxes], [recv, boxes], method="rma-notify")
    want = np.arange(comm.size).reshape(-1, *[1] * (axes - 1)) + 1

    def wait():
        assert np.all(request.Wait() == want)

    one_waits_first(comm, request.Start, wait)
    request.Free()
    free(memory)
