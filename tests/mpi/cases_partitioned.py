"""Partitioned sends: every transport, all orders of marks, late sides, rings, many at a time."""

from __future__ import annotations

import threading
import time

import numpy as np
from cases import parameters, ranks, skip
from mpi4py import MPI
from partitioned import (
    GUARD,
    METHODS,
    ORDERS,
    PROMPT,
    Pair,
    able,
    expected,
    left_to_right,
    meet,
    random_order,
)

from onesided.collectives import Precv_init, Psend_init, Startall, Waitall, empty, free
from onesided.collectives.program import COMPILED

#: Partitions of the sender and of the receiver, and the bytes of a group.
COUNTS = [(1, 1, 65536), (8, 8, 0), (64, 64, 4096), (1, 16, 0), (16, 32, 65536), (33, 17, 0),
          (17, 33, 20000), (33, 17, 40000), (12, 4, 32768), (4, 12, 0)]
TURNS = 3


@parameters(method=METHODS, counts=COUNTS)
def case_contents(comm, method, counts, seed):
    """Groups of one partition, of several, of all; a last one that is smaller."""
    able(method)
    fill_in_all_orders(comm, method, counts, True, seed)


@parameters(method=METHODS, counts=[(64, 64, 4096), (17, 33, 20000)])
def case_counted_in_python(comm, method, counts, seed):
    able(method)
    fill_in_all_orders(comm, method, counts, False, seed)


def fill_in_all_orders(comm, method, counts, compiled, seed):
    sends, receives, aggregate = counts
    pair = Pair(comm, method, sends, receives, aggregate=aggregate, compiled=compiled)
    assert pair.send.compiled == (compiled and COMPILED)
    for turn, order in enumerate(ORDERS):
        pair.start()
        order(pair, turn, seed)
        pair.complete()
        pair.source[:] = -1  # the buffer is the sender's again
        pair.check(turn)
    pair.free()


@parameters(method=METHODS, count=[64, 4096, 1 << 17])
def case_sizes_and_orders(comm, method, count, seed):
    able(method)
    pair = Pair(comm, method, 64, 16, count=count, aggregate=count)
    for turn, order in enumerate(ORDERS * 2):
        pair.start()
        order(pair, turn, seed)
        pair.complete()
        pair.source[:] = -1
        pair.check(turn)
        pair.target[:] = GUARD
    pair.free()


@parameters(method=[m for m in METHODS if m != "rma"])
def case_plain_receive_buffer(comm, method, seed):
    able(method)
    pair = Pair(comm, method, 24, 12, count=4800, own=False, aggregate=1600)
    for turn, order in enumerate(ORDERS):
        pair.start()
        order(pair, turn, seed)
        pair.complete()
        pair.check(turn)
    pair.free()


@parameters(method=PROMPT)
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
def case_asking_advances_the_sends_of_this_rank(comm, method):
    """All ranks mark before anybody receives, and then only ask."""
    able(method)
    pair = Pair(comm, method, 8, 4, count=4096, aggregate=0)
    for turn in range(TURNS):
        pair.send.Start()
        pair.fill(turn)
        pair.send.Pready_range(0, 7)
        comm.Barrier()
        pair.receive.Start()
        for index in range(4):
            while not pair.receive.Parrived(index):
                pass
            pair.check_part(turn, index)
        pair.complete()
    pair.free()


@parameters(method=PROMPT)
def case_groups_wait_for_their_last_partition(comm, method):
    """Two partitions of 64 bytes to a group; the last group has one."""
    pair = Pair(comm, method, 5, 5, count=40, aggregate=128)
    for turn in range(TURNS):
        pair.start()
        pair.fill(turn)
        pair.send.Pready_list([0, 2, 4])
        while not pair.receive.Parrived(4):
            pair.send.Test()
        meet(pair)
        assert [pair.receive.Parrived(q) for q in range(5)] == [0, 0, 0, 0, 1]
        comm.Barrier()
        pair.send.Pready_range(1, 1)
        pair.send.Pready(3)
        pair.complete()
        pair.check(turn)
    pair.free()


@parameters(method=METHODS, late=["receiver-init", "receiver-start", "sender-init", "sender-mark"])
@ranks(at_least=2)
def case_late_sides(comm, method, late):
    able(method)
    source, target = np.zeros(1 << 17, np.int64), empty(comm, 1 << 17, np.int64)
    target[:] = GUARD
    comm.Barrier()
    if comm.rank == 0:
        time.sleep(0.05 * (late == "sender-init"))
        with Psend_init(comm, source, 64, 1, method=method) as send:
            for turn in range(TURNS):
                send.Start()
                source[:] = expected(source.size, 0, turn)
                time.sleep(0.02 * (late == "sender-mark"))
                send.Pready_range(0, 31)
                send.Pready_range(32, 63)
                send.Wait()
                source[:] = -1
    elif comm.rank == 1:
        time.sleep(0.05 * (late == "receiver-init"))
        with Precv_init(comm, target, 16, 0, method=method) as receive:
            for turn in range(TURNS):
                time.sleep(0.02 * (late == "receiver-start"))
                receive.Start()
                assert receive.Wait() is target
                assert np.array_equal(target, expected(target.size, 0, turn)), turn
    comm.Barrier()
    free(target)


@parameters(method=METHODS, order=["sends first", "opposite", "waits opposite"])
def case_rings(comm, method, order, seed):
    """Inits, starts and waits in different orders; nothing is collective but the memory."""
    able(method)
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    source, target = np.zeros(65536, np.int64), empty(comm, 65536, np.int64)

    def init_send():
        return Psend_init(comm, source, 32, right, 3, method=method)

    def init_receive():
        return Precv_init(comm, target, 8, left, 3, method=method)

    source[:] = expected(source.size, comm.rank, 0)
    if order == "opposite" and comm.rank % 2:
        receive = init_receive()
        receive.Start()
        send = init_send()
        send.Start()
        send.Pready(31)
    else:
        send = init_send()
        send.Start()
        send.Pready(31)
        receive = init_receive()
        receive.Start()
    for turn in range(TURNS):
        if turn:
            Startall([send, receive][:: 1 if comm.rank % 2 else -1])
            source[:] = expected(source.size, comm.rank, turn)
            send.Pready(31)
        send.Pready_range(0, 30)
        waits = [send, receive]
        Waitall(waits[::-1] if order == "waits opposite" and comm.rank % 2 else waits)
        assert np.array_equal(target, expected(target.size, left, turn))
    send.Free()
    receive.Free()
    free(target)


@parameters(method=METHODS)
def case_same_tag_is_matched_in_order(comm, method, seed):
    able(method)
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
    able(method)
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
def case_many_neighbors(comm, method, seed):
    """Every rank sends to every rank, itself included, three times."""
    able(method)
    pairs = [Pair(comm, method, 9, 3, count=900, aggregate=1600, tag=i, distance=d)
             for d in range(comm.size) for i in range(3)]
    for turn in range(TURNS):
        Startall([pair.receive for pair in pairs])
        Startall([pair.send for pair in pairs])
        for pair in pairs:
            random_order(pair, turn, seed)
        mine = [request for pair in pairs for request in (pair.send, pair.receive)]
        Waitall([mine[i] for i in np.random.default_rng([seed, comm.rank]).permutation(len(mine))])
        for pair in pairs:
            pair.check(turn)
    for pair in pairs:
        pair.free()


@parameters(method=METHODS)
@ranks(at_least=3)
def case_two_ranks_of_many(comm, method):
    """The others call nothing at all (Open MPI's own hangs then)."""
    able(method)
    target = empty(comm, 512, np.int64)
    if comm.rank == 0:
        source = expected(512, 0, 0)
        with Psend_init(comm, source, 8, 1, method=method) as send:
            send.Start()
            send.Pready_list(range(8))
            send.Wait()
    elif comm.rank == 1:
        with Precv_init(comm, target, 8, 0, method=method) as receive:
            receive.Start()
            receive.Wait()
            assert np.array_equal(target, expected(512, 0, 0))
    free(target)


@parameters(method=METHODS)
def case_waiting_while_other_threads_mark(comm, method):
    able(method)
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

        threads = [threading.Thread(target=work, args=(range(k, 40, 4),)) for k in range(4)]
        threads.append(threading.Thread(target=look))
        for thread in threads:
            thread.start()
        pair.complete()
        for thread in threads:
            thread.join()
        assert seen == [True] * 40
        pair.check(turn)
    pair.free()
