"""Partitioned sends: misuse, sides that do not fit, boards, what is given back."""

from __future__ import annotations

import functools
import threading
import time
from unittest import mock

import numpy as np
from cases import parameters, ranks, skip
from columns import together
from errors import agreed, raises
from mpi4py import MPI
from partitioned import METHODS, Pair, at_once, random_order

from onesided.collectives import (
    MethodError,
    PartitionedMethod,
    PatternError,
    Precv_init,
    Psend_init,
    RequestError,
    ResourceError,
    Startall,
    UnsupportedError,
    Waitall,
    debug,
    empty,
    free,
    progress,
)
from onesided.collectives.partitioned import handshake
from onesided.collectives.partitioned import request as requests
from onesided.collectives.partitioned.channel import Sender

TURNS = 3


@parameters(method=METHODS)
def case_life_and_misuse(comm, method):
    pair = Pair(comm, method, 8, 4, count=64, aggregate=0)
    send, receive = pair.send, pair.receive
    assert send.state == receive.state == "inactive"
    assert send.Wait() is pair.source
    assert send.Test()
    for mark in (lambda: send.Pready(0), lambda: send.Pready_range(0, 1),
                 lambda: send.Pready_list([0])):
        raises(RequestError, mark, "an inactive request cannot be marked ready")
    raises(RequestError, lambda: receive.Pready(0), "a receive has no partition to mark")
    pair.start()
    assert send.active
    raises(RequestError, send.Start, "started")
    raises(RequestError, receive.Free, "freed")
    pair.fill(0)
    send.Pready(3)
    raises(RequestError, lambda: send.Pready(3), "partition 3 is marked ready twice")
    raises(RequestError, lambda: send.Pready_range(1, 6), "partition 3 is marked ready twice")
    raises(RequestError, lambda: send.Pready_list([1, 3]), "partition 3 is marked ready twice")
    raises(RequestError, lambda: send.Pready_list([5, 1, 5]), "partition 5 is marked ready twice")
    for index in (-1, 8, 1 << 40):
        raises(RequestError, lambda index=index: send.Pready(index), f"no partition {index}")
        raises(RequestError, lambda index=index: send.Pready_list([1, index]), "no partition")
        raises(RequestError, lambda index=index: receive.Parrived(index), "no partition")
    raises(RequestError, lambda: send.Pready_range(0, 8), "no partition 8")
    raises(RequestError, lambda: send.Pready_range(5, 4), "from 5 to 4")
    raises(RequestError, lambda: send.Pready(1.5), "no partition 1.5")
    raises(RequestError, lambda: send.Pready_list([0.5]), "no list of partitions")
    raises(RequestError, lambda: send.Parrived(0), "a send")
    send.Pready_list([])
    assert not send.Test()
    assert send.waiting_for() == "7 partitions to be marked (0, 1, 2, 4, 5, 6, 7)"
    assert not send.Get_status()
    send.Pready_list(np.array([0, 1, 2, 4]))
    send.Pready_range(5, 7)
    raises(RequestError, send.Free, "freed")
    pair.complete()
    pair.check(0)
    pair.free()
    send.Free()
    for call in (send.Start, send.Wait, send.Test, lambda: send.Pready(0),
                 lambda: receive.Parrived(0), receive.Start):
        raises(RequestError, call, "freed")


@parameters(method=METHODS, what=["sizes", "types"],
            seen=["Start", "Wait", "Test", "Parrived"])
def case_sides_that_disagree(comm, method, what, seen):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    target, source = empty(comm, 96, np.int64), np.zeros(64, "i8" if what == "sizes" else "f8")
    send = Psend_init(comm, source, 4, right, 2, method=method)
    receive = Precv_init(comm, target if what == "sizes" else target[:64], 4, left, 2,
                         method=method)  # fmt: skip
    out, into = ("512 bytes", "768") if what == "sizes" else ("float64", "int64")
    wanted = [f"rank {comm.rank} sends {out} with tag 2, rank {right} receives {into}",
              f"rank {left} sends {out} with tag 2, rank {comm.rank} receives {into}"]
    if seen == "Start":
        comm.Barrier()
        time.sleep(0.01)
        comm.Barrier()

    def complete(request):
        request.Start()
        if request is send:
            request.Pready_range(0, 3)
        while seen == "Test" and not request.Test():
            pass
        while seen == "Parrived" and request is receive:
            request.Parrived(0)
        request.Wait()

    for request, text in zip((send, receive), wanted, strict=True):
        raises(PatternError, lambda request=request: complete(request), text)
        parrived = seen == "Parrived" and request is receive  # which leaves the round to Wait
        assert parrived or request.state == "broken"
        for call in () if parrived else (request.Start, request.Wait, request.Test):
            raises(PatternError, call, text)
        request.Free()
    free(target)


def case_methods_that_disagree(comm):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for wishes, kind, text in [
        (("p2p", "p2p-gather"), MethodError, "the sender wants p2p, the receiver p2p-gather"),
        (("rma", "auto"), UnsupportedError, "rma: the receive buffer is not in memory from empty"),
    ]:
        send = Psend_init(comm, np.zeros(64), 4, right, method=wishes[0])
        receive = Precv_init(comm, np.zeros(64), 4, left, method=wishes[1])
        for request in (send, receive):
            raises(kind, lambda request=request: fail(request), text)
            request.Free()
    source, target = np.arange(640.0), np.zeros(640)  # the wish of one side is enough
    with Psend_init(comm, source, 10, right, method="p2p") as send, \
            Precv_init(comm, target, 5, left) as receive:
        Startall([send, receive])
        send.Pready_range(0, 9)
        Waitall([send, receive])
        assert send.method == receive.method == "p2p"
        assert np.array_equal(source, target)


def case_bad_arguments(comm):
    data = np.zeros(64)
    peer = comm.rank
    tag_bound = comm.Get_attr(MPI.TAG_UB)
    for init in (Psend_init, Precv_init):
        for arguments, text in [
            ((data, 0, peer), "partitions must be"),
            ((data, -1, peer), "partitions must be"),
            ((data, 2.0, peer), "partitions must be"),
            ((data, 65, peer), "do not divide a buffer of 64"),
            ((data, 7, peer), "7 partitions do not divide"),
            ((data, 4, comm.size), "no rank"),
            ((data, 4, MPI.ANY_SOURCE), "no rank"),
            ((data, 4, peer, MPI.ANY_TAG), "tag must be"),
            ((data, 4, peer, tag_bound + 1), "tag must be"),
            ((data[::2], 4, peer), "not contiguous"),
            ((np.array([None] * 4), 4, peer), "Python objects"),
            ((3, 4, peer), "is no buffer"),
        ]:
            raises(PatternError, lambda init=init, a=arguments: init(comm, *a), text)
        raises(MethodError, lambda init=init: init(comm, data, 4, peer, method="smoke"),
               "no method 'smoke'; the methods are auto, rma")
        raises(PatternError, lambda init=init: init(comm, data, 4, peer, aggregate=-1), "aggregate")
    fixed = np.zeros(4)
    fixed.flags.writeable = False
    raises(PatternError, lambda: Precv_init(comm, fixed, 4, peer), "read-only")


def case_buffer_specifications(comm):
    """As mpi4py reads them: the count is that of a partition."""
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    whole, room = np.arange(-5.0, 24) + comm.rank, np.zeros(28)
    source, target = whole[5:], room[4:]
    wanted = np.arange(24.0) + left
    for out, into, parts, used in [
        ([source, MPI.DOUBLE], [target, MPI.DOUBLE], 4, 24),
        ([source, 3, MPI.DOUBLE], [target, 6, "d"], (4, 2), 12),
        ((source, 3), [target, 96, MPI.BYTE], (8, 2), 24),
        ([whole, 3, 5, MPI.DOUBLE], [target, (3, 0), MPI.DOUBLE], 8, 24),
        ([whole, (3, 5), MPI.DOUBLE], target, 8, 24),
        ((whole, [3, 5]), [room, 3, 4, "d"], 8, 24),
        (memoryview(source), target, 6, 24),
    ]:
        sends, receives = parts if isinstance(parts, tuple) else (parts, parts)
        target[:] = -1
        with Psend_init(comm, out, sends, right) as send, \
                Precv_init(comm, into, receives, left) as receive:
            Startall([send, receive])
            send.Pready_range(0, sends - 1)
            send.Wait()
            receive.Wait()
        assert (target[:used] == wanted[:used]).all(), parts
        assert (target[used:] == -1).all(), parts
    for wrong, text in [([source, 7, MPI.DOUBLE], "24"), ([source, -1, MPI.DOUBLE], "count"),
                        ([source, 3, -1, MPI.DOUBLE], "negative"), ([source, (3, 13)], "24"),
                        ([source, "nothing"], "no MPI type code")]:
        raises(PatternError, lambda wrong=wrong: Psend_init(comm, wrong, 4, right), text)


class Closed(Sender):
    """An end that cannot be opened."""

    def open(self):
        raise ResourceError("no more of it")


class Unmade(Sender):
    """An end that cannot be made."""

    def __init__(self, *given):
        raise MemoryError("no more of it")


@parameters(method=METHODS, culprit=["sender", "receiver"], end=[Closed, Unmade])
@ranks(at_least=2)
def case_one_side_fails_alone(comm, method, culprit, end):
    """While it makes its end: the peer learns it, and raises as well."""
    target = empty(comm, 64, np.int64)
    side = None
    if comm.rank == 0:
        side = Psend_init(comm, np.zeros(64, np.int64), 4, 1, method=method)
    elif comm.rank == 1:
        side = Precv_init(comm, target, 4, 0, method=method)
    ends = PartitionedMethod.ends
    if comm.rank == (culprit == "receiver"):
        PartitionedMethod.ends = lambda method: (end, end)
    try:
        if side is not None:
            kinds = ResourceError, MemoryError  # the latter where it was met
            raises(kinds, lambda: fail(side), "no more of it")
            raises((*kinds, RequestError), side.Wait, "no more of it")
            assert side.state == "broken"
            side.Free()
    finally:
        PartitionedMethod.ends = ends
    comm.Barrier()
    again = Pair(comm, method, 4, 4, count=64)
    again.start()
    random_order(again, 1, 0)
    again.complete()
    again.check(1)
    again.free()
    free(target)


@parameters(inside=["a mark", "a step", "the matching", "Free"], compiled=[True, False])
def case_in_the_middle_of_a_call(comm, inside, compiled):
    """A signal handler, or a step, is refused, or does what it wants, but waits for nothing; and
    what it has interrupted ends as if nothing had been."""
    pair, said = Pair(comm, "auto", 4, 4, count=64, aggregate=0, compiled=compiled), []
    send, matching = pair.send, pair.send.matching
    owner, name = {"a mark": (send, "_check_markable"), "a step": (send, "_step"),
                   "the matching": (matching, "_receive"), "Free": (send, "_retire")}[inside]
    real = getattr(owner, name)

    def interrupted():
        setattr(owner, name, real)
        verbs = (send.Test,) if inside == "the matching" else (send.Test, send.Wait)
        for call in (send.Free, *verbs, lambda: send.Pready(3), lambda: pair.receive.Parrived(0),
                     matching.probe, lambda: send.advance(2),
                     lambda: matching.give_slot(pair.left, matching.take_slot(pair.left))):
            try:
                call()
            except RequestError as error:
                said.append(str(error))
        return real()

    pair.start()
    pair.fill(0)
    setattr(owner, name, interrupted)
    if inside == "a mark":
        send.Pready_list([0])
    while inside != "Free" and not said:
        send.Test()
        matching.probe()
    if inside == "Free":
        send.Free()
        raises(RequestError, pair.receive.Wait, "was given up")
    else:
        assert send.state == "active"
        send.Pready_list(send._counter.unmarked())
        pair.complete()
        pair.check(0)
    assert "in the middle of a call" in said[0], said
    assert all("in the middle of a call" in text or "was given up" in text for text in said), said
    pair.free()


@parameters(verb=["Start", "Parrived", "Pready_list", "a letter"])
def case_what_an_interrupt_leaves(comm, verb):
    """Nothing that has been counted or has come is lost without an error of the request."""
    pair = Pair(comm, "p2p", 4, 4, count=64, aggregate=0, compiled=False)
    send, receive, matching = pair.send, pair.receive, pair.send.matching

    def fault(*_):
        raise KeyboardInterrupt

    def starts(*_):
        receive.Start()
        raise AssertionError("a request was started in the middle of a call of it")

    if verb == "Start":
        with mock.patch.object(requests, "as_index", starts):
            raises(RequestError, lambda: receive.Parrived(0), "in the middle of a call")
        assert receive.state == "inactive"
    if verb == "a letter":
        with mock.patch.object(matching, "_read", fault):
            interrupted(lambda: until(matching.probe))
    pair.start()
    comm.Barrier()  # a later start might hear of what is given up below
    pair.fill(0)
    if verb in ("Start", "a letter"):
        send.Pready_range(0, 3)
        pair.complete()
        pair.check(0)
    elif verb == "Pready_list":
        with mock.patch.object(send._counter, "mark", fault):
            interrupted(lambda: send.Pready_list([0, 1]))
        raises(RequestError, send.Wait, "was interrupted")
        send.Free()
        raises(RequestError, receive.Wait, "was given up after KeyboardInterrupt")
    else:
        while receive._end is None:
            receive.Parrived(0)
        with mock.patch.object(receive._end, "arrived", fault):
            interrupted(lambda: receive.Parrived(0))
        raises(RequestError, lambda: receive.Parrived(0), "was interrupted")
        raises(RequestError, receive.Wait, "was interrupted")
        receive.Free()
        raises(RequestError, lambda: until(send.Test), "was given up after KeyboardInterrupt")
    pair.free()


def interrupted(call):
    raises(KeyboardInterrupt, call)


def until(call):
    while True:
        call()


@parameters(method=METHODS, met=[False, True])
def case_freed_while_another_thread_waits(comm, method, met):
    """What it waits for ends there, where nothing is under way, too."""
    if MPI.Query_thread() != MPI.THREAD_MULTIPLE:
        skip("the thread level is below multiple")
    pair, found = Pair(comm, method, 4, 4, count=64), []
    if met:
        pair.start()
        pair.send.Pready_range(0, 3)
        pair.complete()
    pair.send.Start()

    def wait():
        try:
            pair.send.Wait()
        except RequestError as error:
            found.append(str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.01)
    pair.send.Free()
    thread.join(10)
    assert "freed" in found[0], found
    pair.free()


def case_begun_by_another_thread_in_the_middle_of_start(comm):
    """Who owes something is helped, whichever call it was that found the peer."""
    pair = Pair(comm, "rma", 65, 1, count=65, aggregate=0)  # more groups than a board has entries
    receive = pair.receive
    for turn in range(2):
        if turn:
            run = receive.guard.run

            def late(act, *given, run=run):
                receive.guard.run = run
                receive.Parrived(0)
                return run(act, *given)

            receive.guard.run = late
        receive.Start()
        assert turn == 0 or progress.unfinished()
        comm.Barrier()
        pair.send.Start()
        at_once(pair, turn, 0)
        pair.complete()
        pair.check(turn)
    pair.free()


def case_names_of_arguments(comm):
    """Compiled or not, the verbs take the same."""
    for compiled in (True, False):
        pair = Pair(comm, "auto", 8, 4, count=64, compiled=compiled)
        pair.start()
        pair.fill(0)
        pair.send.Pready(partition=3)
        pair.send.Pready_range(low=4, high=7)
        pair.send.Pready_range(0, high=1)
        pair.send.Pready_list(partitions=[2])
        raises(RequestError, lambda pair=pair: pair.send.Pready(partition=3), "marked ready twice")
        for call in (pair.send.Pready, pair.send.Pready_range):
            raises(TypeError, lambda call=call: call(0, nothing=1))
        pair.complete()
        pair.check(0)
        pair.free()
        raises(RequestError, lambda pair=pair: pair.send.Pready(partition=3), "freed")


def case_statuses(comm):
    pair = Pair(comm, "auto", 8, 4, count=64, tag=7)
    status = MPI.Status()
    pair.receive.Wait(status)  # nothing was started
    assert (status.source, status.tag) == (MPI.ANY_SOURCE, MPI.ANY_TAG)
    pair.start()
    at_once(pair, 0, 0)
    pair.receive.Wait(status)
    assert (status.source, status.tag, status.Get_count(MPI.INT64_T)) == (pair.left, 7, 64)
    pair.send.Wait(status=status)
    assert (status.source, status.tag) == (MPI.ANY_SOURCE, MPI.ANY_TAG)
    assert pair.receive.Get_status()
    assert pair.send.Test(status)
    pair.free()


def case_info_of_both_sides(comm):
    """The same keys are known to both; a value that makes no sense is an error."""
    for init in (Psend_init, Precv_init):
        raises(PatternError, lambda init=init: init(comm, np.zeros(4), 4, comm.rank,
               info={"progress": "soon"}), "'progress' is 'soon'")
        with init(comm, np.zeros(4), 4, MPI.PROC_NULL,
                  info={"progress": "manual", "compiled": "false", "unknown": "1"}) as request:
            assert not request._by_thread


def case_first_requests_of_many_threads(comm):
    """They share one matching of the communicator."""
    if MPI.Query_thread() != MPI.THREAD_MULTIPLE:
        skip("the thread level is below multiple")
    fresh, found = comm.Dup(), []
    go = threading.Barrier(8)

    def make(number):
        go.wait()
        found.append((number, Psend_init(fresh, np.zeros(4), 4, comm.rank, number)))

    together(*[functools.partial(make, number) for number in range(8)])
    assert len({id(request.matching) for _, request in found}) == 1
    for number, send in found:
        with Precv_init(fresh, np.ones(4), 4, comm.rank, number) as receive:
            Startall([send, receive])
            send.Pready_range(0, 3)
            send.Wait()
            assert (receive.Wait() == 0).all()
        send.Free()
    fresh.Free()


def case_nobody(comm):
    """MPI.PROC_NULL on both sides: everything completes."""
    send = Psend_init(comm, np.zeros(8), 4, MPI.PROC_NULL)
    receive = Precv_init(comm, np.ones(8), 4, MPI.PROC_NULL)
    for _ in range(TURNS):
        Startall([receive, send])
        assert receive.Parrived(3)
        assert not send.Test()
        send.Pready_range(0, 3)
        assert (receive.Wait() == 1).all()
        send.Wait()
    send.Free()
    receive.Free()


@parameters(method=METHODS, own=[True, False])
def case_nothing_to_send(comm, method, own):
    pair = Pair(comm, method, 3, 2, count=0, own=own)
    for _ in range(TURNS):
        pair.start()
        assert not pair.send.Test()  # nothing is marked
        assert not pair.receive.Test()
        assert not pair.receive.Parrived(1)
        comm.Barrier()
        pair.send.Pready_range(0, 2)
        pair.complete()
        assert all(pair.receive.Parrived(q) for q in range(2))
        assert pair.send.state == pair.receive.state == "inactive"
    pair.free()


def case_memory_of_a_receive_that_was_never_started(comm):
    """A sender may still store there: it has been told the place."""
    peer = comm.rank
    memory = empty(comm, 64)
    receive = Precv_init(comm, memory, 4, peer)
    raises(RequestError, lambda: free(memory), "still use this memory")
    receive.Free()
    Psend_init(comm, np.zeros(64), 4, peer).Free()
    free(memory)


@parameters(own=[True, False], late=["sender", "receiver"])
@ranks(at_least=2)
def case_nothing_is_left_on_a_freed_communicator(comm, own, late):
    """What the sides have told each other is not taken for a message of the next communicator,
    which may get the number of the freed one."""
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for turn in range(TURNS):
        before = comm.Dup()
        if own:  # a communicator of the package's own
            free(empty(before, 8))
        send = Psend_init(before, np.zeros(8), 4, right)
        if late == "receiver" and comm.rank == 0:
            time.sleep(0.02)
        receive = Precv_init(before, np.zeros(8), 4, left)
        if late == "sender" and comm.rank == 0:
            time.sleep(0.02)
        send.Free()
        receive.Free()
        before.Free()
        after = comm.Dup()
        got, status = np.zeros(4096, np.uint8), MPI.Status()
        request = after.Irecv([got, MPI.BYTE], MPI.ANY_SOURCE, MPI.ANY_TAG)
        after.Send([np.full(9, turn + 1, np.uint8), MPI.BYTE], right, 5)
        request.Wait(status)
        assert (status.Get_count(MPI.BYTE), status.source, status.tag) == (9, left, 5)
        assert (got[:9] == turn + 1).all()
        after.Free()


@parameters(method=["p2p", "p2p-gather"])
@ranks(at_least=2)
def case_tags_are_used_again(comm, method):
    """Once all that was sent under them has been received: a receive that is late keeps its own."""
    data, target = np.zeros(64), np.zeros((2, 64))
    with mock.patch.object(handshake, "SLOTS", 2):
        if comm.rank == 0:
            for turn in range(6):
                data[:] = turn
                with Psend_init(comm, data, 8, 1, turn, method=method, aggregate=1024) as send:
                    send.Start()
                    send.Pready_range(0, 7)
                    send.Wait()
        elif comm.rank == 1:
            late = Precv_init(comm, target[0], 4, 0, 0, method=method)
            for turn in range(1, 6):
                with Precv_init(comm, target[1], 4, 0, turn, method=method) as receive:
                    raises(ResourceError, lambda: Precv_init(comm, data, 4, 0), "at most 2")
                    receive.Start()
                    assert (receive.Wait() == turn).all()
            late.Start()
            assert (late.Wait() == 0).all()
            late.Free()
        comm.Barrier()


@parameters(method=["p2p", "p2p-gather"])
@ranks(at_least=2)
def case_tags_of_a_peer_that_has_failed_are_not(comm, method):
    """What it has sent for a round that the receive has not started may be under way."""
    own, data, found = comm.Dup(), np.zeros(64), []
    with mock.patch.object(handshake, "SLOTS", 2):
        if comm.rank == 0:
            send = Psend_init(own, data, 8, 1, method=method, aggregate=0)
            for last in (7, 3):
                send.Start()
                send.Pready_range(0, last)
                if last == 7:
                    send.Wait()
            send.Free()
            for turn in (1, 2, 3):
                data[:] = turn
                with Psend_init(own, data, 8, 1, method=method, aggregate=0) as send:
                    send.Start()
                    send.Pready_range(0, 7)
                    send.Wait()
        elif comm.rank == 1:
            receive = Precv_init(own, data, 8, 0, method=method)
            receive.Start()
            receive.Wait()
            while not receive.matching.failures:
                receive.matching.probe()
            receive.Free()
            for turn in (1, 2, 3):
                with Precv_init(own, data, 8, 0, method=method) as receive:
                    receive.Start()
                    found.append((turn, set(receive.Wait())))
    own.Barrier()
    own.Free()
    assert all(values == {turn} for turn, values in found), found


def case_boards_are_used_again(comm):
    """Many more links one after the other than an array has boards."""
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    source, target = np.zeros(64), empty(comm, 64, links=2)
    for turn in range(40):
        with Psend_init(comm, source, 4, right, method="rma") as send, \
                Precv_init(comm, target, 4, left) as receive:
            for again in range(2):
                Startall([send, receive])
                source[:] = 100 * turn + 10 * again + comm.rank
                send.Pready_range(0, 3)
                send.Wait()
                assert (receive.Wait() == 100 * turn + 10 * again + left).all()
    free(target)


def case_more_receives_than_links(comm):
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    alone = node.size == comm.size
    node.Free()
    if not alone:
        skip("links are counted on a node, and there are several")
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    source, target = np.zeros(64), empty(comm, 64, links=2)
    unstarted = [Precv_init(comm, target, 4, left, tag=1) for _ in range(2)]
    third = Precv_init(comm, target, 4, left, tag=2)
    first = Psend_init(comm, source, 4, right, tag=2, method="rma")
    for request in (third, first):
        raises(UnsupportedError, lambda request=request: fail(request), "all links of it are in")
    for request in [*unstarted, third, first]:
        request.Free()
    for request in [Psend_init(comm, source, 4, right, tag=1) for _ in range(2)]:
        request.Free()
    free(target)


def fail(request):
    request.Start()
    while not request.Test():
        pass


def case_links_of_an_array(comm):
    for wrong in (-1, 1.5, "many"):
        raises(PatternError, lambda wrong=wrong: empty(comm, 8, links=wrong), "links must be")
    many = 10**12 if comm.rank == 0 else 32
    agreed(comm, PatternError, lambda: empty(comm, 8, links=many), "links must be")
    array = empty(comm, 8, links=0)
    array[:] = comm.rank
    assert array.shape == (8,)
    free(array)


@parameters(method=METHODS)
def case_debugging(comm, method):
    """A partition that changes after its mark, and a receive buffer that is read too early."""
    if not debug.enabled():
        skip("debugging is off")
    pair = Pair(comm, method, 4, 4, count=64, aggregate=0)
    pair.fill(0)
    pair.start()
    assert (pair.target == -1).all()
    comm.Barrier()
    pair.send.Pready_range(0, 3)
    pair.source[17] += 1
    raises(RequestError, pair.send.Wait, "partitions [1] were changed")
    pair.receive.Wait()
    comm.Barrier()  # a send that is freed broken tells its peer, whose round is complete now
    pair.free()
