"""Partitioned sends: every transport, all orders of marks, late sides, rings, many at a time."""

from __future__ import annotations

import functools
import threading
import time

import numpy as np
from cases import parameters, ranks, skip
from columns import together
from errors import raises
from mpi4py import MPI
from partitioned import (
    BY_A_MARK,
    GUARD,
    METHODS,
    NOBODY,
    RECEIVER,
    SENDER,
    Pair,
    Row,
    expected,
    fits,
    left_to_right,
    meet,
    promised,
    random_order,
    rows,
)
from table import covering

from onesided.collectives import (
    Precv_init,
    Psend_init,
    RequestError,
    empty,
    free,
    progress,
)

TAG = 1000
TURNS = 3
LATE = 0.01  # seconds


@parameters(row=rows)
def case_rounds(comm, row, seed):
    """A ring: every rank sends to the right and receives from the left."""
    pair, word = row.pair(comm), np.zeros(1)
    elsewhere = row["elsewhere"] if comm.rank == 0 and comm.size > 1 and promised() else NOBODY
    for turn in range(TURNS):
        start(pair, row["late"], turn)
        row["order"](pair, turn, seed)
        if row["late"] == RECEIVER:
            time.sleep(LATE)
            pair.make_receive()
            pair.receive.Start()
        if elsewhere == SENDER:
            comm.Recv(word, pair.right, TAG)  # who has got it all
        elif elsewhere == RECEIVER:
            comm.Recv(word, pair.left, TAG)  # who has sent it all
        if row["asked"]:
            for index in range(pair.receives):
                while not pair.receive.Parrived(index):
                    pass
                pair.check_part(turn, index)
        assert pair.receive.Wait() is pair.target
        if row["elsewhere"] == SENDER and pair.left == 0 and comm.rank and promised():
            comm.Send(word, 0, TAG)
        assert pair.send.Wait() is pair.source
        if row["elsewhere"] == RECEIVER and pair.right == 0 and comm.rank and promised():
            comm.Send(word, 0, TAG)
        pair.source[:] = -1  # the buffer is the sender's again
        pair.check(turn)
        pair.target[:] = GUARD
    comm.Barrier()
    assert not progress.unfinished()
    pair.free()


def start(pair, late, turn):
    """Both requests, but for a late receive; they are made in the first round."""
    if late != SENDER:
        pair.make_send()
        pair.send.Start()
    if late == BY_A_MARK and not turn:
        pair.comm.Barrier()  # nobody has met anybody
    if late != RECEIVER:
        pair.make_receive()
        pair.receive.Start()
    if late == BY_A_MARK:
        pair.comm.Barrier()
    if late == SENDER:
        time.sleep(LATE)
        pair.make_send()
        pair.send.Start()


# -- what an exception leaves behind -------------------------------------------------------------

FAULTS = {
    "method": METHODS,
    "culprit": [RECEIVER, SENDER],
    "where": ["marks", "the last mark", "Wait"],
    "marked": [0, 32, 65],
    "before": [0, 2],  # rounds
    "own": [True, False],
    "compiled": [True, False],
}


def faults(comm):
    """Below half of it nobody can be surprised by an end."""
    def possible(row):
        early = row.get("where") in ("marks", "the last mark")
        return fits(row) and not (early and (row.get("marked") == 65 or
                                             row.get("culprit") == RECEIVER))

    return [Row(each) for each in covering(FAULTS, 2, comm.size, possible)]


@parameters(row=faults)
@ranks(at_least=2)
def case_a_round_that_is_given_up(comm, row):
    """Whoever caused it frees its request; the peer is told, or has all there is to get. What comes
    afterwards, in memory beside, is not touched by what was under way."""
    count = 65 * 8
    array = empty(comm, 2 * count, np.int64) if row["own"] else np.zeros(2 * count, np.int64)
    source, mine = np.zeros(count, np.int64), None
    options = {"method": row["method"], "aggregate": 0}
    if comm.rank == 0:
        mine = Psend_init(comm, source, 65, 1, info={"compiled": str(row["compiled"])}, **options)
    elif comm.rank == 1:
        mine = Precv_init(comm, array[:count], 65, 0, **options)
    for turn in range(row["before"] if mine else 0):
        mine.Start()
        source[:] = expected(count, 0, turn)
        if comm.rank == 0:
            mine.Pready_range(0, 64)
        mine.Wait()
    if mine:
        mine.Start()
        source[:] = expected(count, 0, 9)
        if comm.rank == 0 and row["marked"]:
            mine.Pready_range(0, row["marked"] - 1)
    if comm.rank == (row["culprit"] == RECEIVER):
        if row["where"] == "Wait":
            interrupt(mine)
        elif row["where"] == "the last mark":
            fail_to_push(mine, row["marked"])
        mine.Free()
        raises(RequestError, mine.Start, "freed")
    if mine:
        later(comm, row, array[count:])
    if comm.rank == (row["culprit"] == SENDER):
        rest = range(row["marked"] if comm.rank == 0 else 65, 65)
        ended(mine, rest, certain=comm.rank == 1 and row["marked"] < 65)
        mine.Free()
    comm.Barrier()
    swept(comm)
    if row["own"]:
        free(array)


def swept(comm):
    """Receive what was on its way when a round was given up; with the communicator it would go."""
    status = MPI.Status()
    while (message := comm.Improbe(status=status)) is not None:
        message.Recv(bytearray(status.Get_count(MPI.BYTE)))


def interrupt(request):
    """Ctrl-C in Wait."""
    def fault():
        raise KeyboardInterrupt

    request._step = fault
    try:
        request.Wait()
    except KeyboardInterrupt:
        assert request.state == "broken"
        raises(RequestError, request.Wait, "because KeyboardInterrupt was raised")
    else:
        assert request.state == "inactive"  # it was complete before


def fail_to_push(request, marked):
    """Ctrl-C in the push of what the last marks have completed."""
    def fault(*_):
        raise KeyboardInterrupt

    request._check_markable()
    request._may_call = fault
    verb = type(request).Pready_list  # which takes the guard
    raises(KeyboardInterrupt, lambda: verb(request, range(marked, 65)))
    assert request.state in ("active", "broken")  # the second where a thread has heard of it


def ended(request, rest, certain):
    """The rest is marked, and the round ends, with the peer's reason where it cannot end well."""
    try:
        for index in rest:
            request.Pready(index)
        request.Wait()
    except RequestError as error:
        assert "was given up" in str(error), error
        assert request.state == "broken"
    else:
        assert not certain, "nobody has said that the round was given up"


def later(comm, row, beside):
    """Another message into memory beside that of the one that was given up."""
    options = {"method": row["method"], "aggregate": 0}
    source = expected(beside.size, 7, 7)
    if comm.rank == 0:
        with Psend_init(comm, source, 65, 1, **options) as send:
            send.Start()
            send.Pready_range(0, 64)
            send.Wait()
    else:
        with Precv_init(comm, beside, 1, 0, **options) as receive:
            receive.Start()
            receive.Wait()
        assert np.array_equal(beside, source)


@parameters(method=METHODS)
def case_parrived_while_others_are_missing(comm, method):
    pair = Pair(comm, method, 12, 6, count=1200, aggregate=0)
    assert pair.receive.Parrived(0)  # inactive
    for turn in range(TURNS):
        pair.start()
        assert not any(pair.receive.Parrived(q) for q in range(6))
        comm.Barrier()  # nobody marks before all have looked
        for index in (7, 2, 6, 3):
            pair.part(turn, index)
            pair.send.Pready(index)
        while not (pair.receive.Parrived(1) and pair.receive.Parrived(3)):
            pair.send.Test()
        pair.check_part(turn, 1)
        pair.check_part(turn, 3)
        meet(pair)
        assert [pair.receive.Parrived(q) for q in range(6)] == [0, 1, 0, 1, 0, 0]
        assert not pair.receive.Test()
        assert not pair.send.Test()
        comm.Barrier()  # nobody marks more before all have looked
        for index in (0, 1, 4, 5, 8, 9, 10, 11):
            pair.part(turn, index)
            pair.send.Pready(index)
        pair.complete()
        assert all(pair.receive.Parrived(q) for q in range(6))
        pair.check(turn)
    pair.free()


@parameters(method=METHODS)
def case_same_tag_is_matched_in_order(comm, method, seed):
    pairs = [Pair(comm, method, 4, 2, count=256 * (i + 1), tag=5) for i in range(4)]
    for turn in range(TURNS):
        rng = np.random.default_rng([seed, comm.rank, turn])
        for i in rng.permutation(4):
            pairs[i].start()
        for i in rng.permutation(4):
            left_to_right(pairs[i], turn, seed)
        for i in rng.permutation(4):
            pairs[i].complete()
        for pair in pairs:
            pair.check(turn)
    for pair in pairs:
        pair.free()


@parameters(method=METHODS)
def case_never_started_is_no_stone_in_the_way(comm, method, seed):
    """Freed before it was started, it keeps its place in the order; the next ones still match."""
    first = Pair(comm, method, 4, 4, count=64, tag=9)
    first.free()
    second = Pair(comm, method, 4, 4, count=128, tag=9)
    for turn in range(TURNS):
        second.start()
        random_order(second, turn, seed)
        second.complete()
        second.check(turn)
    second.free()


@parameters(method=METHODS)
def case_waiting_while_other_threads_mark(comm, method):
    if MPI.Query_thread() != MPI.THREAD_MULTIPLE:
        skip("the thread level is below multiple")
    pair = Pair(comm, method, 40, 40, count=4000, aggregate=800)
    for turn in range(TURNS):
        pair.start()

        def work(some, turn=turn):
            for index in some:
                pair.part(turn, index)
                pair.send.Pready(index)
                time.sleep(0.0002)

        seen = []

        def look(turn=turn, seen=seen):
            for index in range(40):
                while not pair.receive.Parrived(index):
                    time.sleep(0.0001)
                seen.append(np.array_equal(pair.target[index * 100 : index * 100 + 100],
                    expected(4000, pair.left, turn)[index * 100 : index * 100 + 100]))

        marks = [functools.partial(work, range(k, 40, 4)) for k in range(4)]
        together(*marks, look, pair.complete)
        assert seen == [True] * 40
        pair.check(turn)
    pair.free()


@parameters(method=METHODS)
@ranks(at_least=2)
def case_the_last_mark_is_another_thread_s(comm, method):
    """The main thread of the sender is in a blocking receive from the start."""
    if not promised():
        skip("the thread level is below multiple")
    array, word = empty(comm, 1536, np.int64), np.zeros(1)
    if comm.rank == 0:
        source = expected(1536, 0, 0)
        with Psend_init(comm, source, 32, 1, method=method, aggregate=0) as send:
            for _ in range(2):
                send.Start()

                def mark(send=send):
                    time.sleep(LATE)
                    for index in range(32):
                        send.Pready(index)

                worker = threading.Thread(target=mark)
                worker.start()
                comm.Recv(word, 1, TAG)
                worker.join()
                send.Wait()
    elif comm.rank == 1:
        with Precv_init(comm, array, 4, 0, method=method) as receive:
            for _ in range(2):
                time.sleep(3 * LATE)
                array[:] = 0
                receive.Start()
                receive.Wait()
                assert np.array_equal(array, expected(1536, 0, 0))
                comm.Send(word, 0, TAG)
    comm.Barrier()
    free(array)


@parameters(method=METHODS)
def case_rounds_that_another_thread_asks_for(comm, method):
    """The main thread looks whether all has come, and completes nothing meanwhile."""
    pair = Pair(comm, method, 4, 4, count=64, aggregate=0)
    for turn in range(TURNS):
        pair.start()
        for marks in ([2], [0, 1, 3]):
            for index in marks:
                pair.part(turn, index)
                pair.send.Pready(index)

            def ask(marks=marks):
                while not all(pair.receive.Parrived(index) for index in marks):
                    time.sleep(0.0001)

            worker = threading.Thread(target=ask)
            worker.start()
            while worker.is_alive():
                pair.receive.Get_status()
                pair.send.Get_status()
                time.sleep(0.0001)  # Linux lets ranks that only yield wait for seconds
        pair.complete()
        pair.check(turn)
    pair.free()


@ranks(at_least=2)
def case_a_program_that_keeps_up_has_no_thread(comm):
    """Once the sides know each other, a receive that is waited for leaves nothing to be done."""
    array = empty(comm, 64)
    if comm.rank == 0:
        with Psend_init(comm, np.zeros(64), 4, 1) as send:
            for _ in range(20):
                comm.Barrier()
                send.Start()
                send.Pready_range(0, 3)
                send.Wait()
                assert not progress.unfinished()
    elif comm.rank == 1:
        with Precv_init(comm, array, 4, 0) as receive:
            for turn in range(20):
                receive.Start()
                assert turn == 0 or not progress.unfinished()
                comm.Barrier()
                receive.Wait()
                assert not progress.unfinished()
    else:
        for _ in range(20):
            comm.Barrier()
    free(array)
