"""Partitioned sends: every transport, all orders of marks, late sides, rings, mistakes."""

from __future__ import annotations

import itertools
import threading
import time

import numpy as np
from cases import parameters, ranks, skip
from mpi4py import MPI

from onesided.collectives import (
    MethodError,
    PatternError,
    Precv_init,
    Psend_init,
    RequestError,
    Startall,
    UnsupportedError,
    Waitall,
    empty,
    free,
    partitioned_methods,
)

METHODS = ["auto", *partitioned_methods()]
#: Partitions of the sender and of the receiver, and the bytes of a group.
COUNTS = [(1, 1, 65536), (8, 8, 0), (64, 64, 4096), (1, 16, 0), (16, 32, 65536), (33, 17, 0),
          (17, 33, 20000), (33, 17, 40000), (12, 4, 32768), (4, 12, 0)]
PARTS = 33 * 17 * 64  # divided by all of them
TURNS = 3
GUARD = -7


def able(method):
    """Skip where the MPI's own partitioned send is not to be trusted, with its reason."""
    if method == "mpi":
        from onesided.collectives.partitioned.transports.mpi import distrust

        if distrust():
            skip(distrust())


def expected(stop, source, turn, start=0):
    return np.arange(start, stop, dtype=np.int64) * 3 + (1000003 * source + 7919 * turn)


class Pair:
    """A send to the right and a receive from the left, with guards around the receive buffer."""

    def __init__(self, comm, method, sends, receives, count=PARTS, aggregate=65536, tag=0,
                 own=True, distance=1):
        self.comm, self.count = comm, count
        self.right = (comm.rank + distance) % comm.size
        self.left = (comm.rank - distance) % comm.size
        self.source = np.zeros(count, np.int64)
        shape = count + 16
        self.shared = empty(comm, shape, np.int64) if own else None
        self.around = np.zeros(shape, np.int64) if self.shared is None else self.shared
        self.around[:] = GUARD
        self.target = self.around[8 : 8 + count]
        self.sends, self.receives = sends, receives
        options = {"method": method, "aggregate": aggregate}
        self.send = Psend_init(comm, self.source, sends, self.right, tag, **options)
        self.receive = Precv_init(comm, self.target, receives, self.left, tag, **options)

    def start(self):
        Startall([self.receive, self.send])

    def fill(self, turn):
        self.source[:] = expected(self.count, self.comm.rank, turn)

    def part(self, turn, index):
        """Fill one partition of the send buffer; mark it afterwards."""
        size = self.count // self.sends
        start, stop = index * size, (index + 1) * size
        self.source[start:stop] = expected(stop, self.comm.rank, turn, start)

    def check(self, turn):
        assert np.array_equal(self.target, expected(self.count, self.left, turn)), (
            turn, np.flatnonzero(self.target != expected(self.count, self.left, turn))[:4])
        assert (self.around[:8] == GUARD).all()
        assert (self.around[8 + self.count :] == GUARD).all()

    def check_part(self, turn, index):
        size = self.count // self.receives
        start, stop = index * size, (index + 1) * size
        part = self.target[start:stop]
        assert np.array_equal(part, expected(stop, self.left, turn, start)), index

    def complete(self):
        Waitall([self.send, self.receive])

    def free(self):
        self.send.Free()
        self.receive.Free()
        if self.shared is not None:
            self.target = self.around = None
            free(self.shared)
            self.shared = None


def meet(pair):
    """A barrier that goes on sending: groups that gather leave while their rank tests."""
    barrier = pair.comm.Ibarrier()
    while not barrier.Test():
        pair.send.Test()


#: The MPI's own may send when all is ready, and MPICH does.
PROMPT = [method for method in METHODS if method != "mpi"]


def left_to_right(pair, turn, seed):
    for index in range(pair.sends):
        pair.part(turn, index)
        pair.send.Pready(index)


def reversed_order(pair, turn, seed):
    for index in reversed(range(pair.sends)):
        pair.part(turn, index)
        pair.send.Pready(index)


def random_order(pair, turn, seed):
    for index in np.random.default_rng([seed, turn, pair.comm.rank]).permutation(pair.sends):
        pair.part(turn, index)
        pair.send.Pready(index)


def at_once(pair, turn, seed):
    pair.fill(turn)
    pair.send.Pready_range(0, pair.sends - 1)


def in_lists(pair, turn, seed):
    order = np.random.default_rng([seed, turn, pair.comm.rank]).permutation(pair.sends)
    pair.fill(turn)
    for some in np.array_split(order, 3):
        pair.send.Pready_list(some)


def in_ranges(pair, turn, seed):
    rng = np.random.default_rng([seed, turn, pair.comm.rank])
    cuts = np.unique([0, pair.sends, *rng.integers(0, pair.sends, 4)])
    ranges = list(itertools.pairwise(cuts))
    for low, stop in [ranges[i] for i in rng.permutation(len(ranges))]:
        for index in range(low, stop):
            pair.part(turn, index)
        pair.send.Pready_range(low, stop - 1)


def from_threads(pair, turn, seed, threads=4):
    order = np.random.default_rng([seed, turn, pair.comm.rank]).permutation(pair.sends)
    pair.fill(turn)
    errors = []

    def work(some):
        try:
            for index in some:
                pair.send.Pready(int(index))
        except Exception as error:
            errors.append(error)

    workers = [threading.Thread(target=work, args=(some,))
               for some in np.array_split(order, threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not errors, errors


ORDERS = [left_to_right, reversed_order, random_order, at_once, in_lists, in_ranges, from_threads]


@parameters(method=METHODS, counts=COUNTS)
def case_contents(comm, method, counts, seed):
    """Groups of one partition, of several, of all; a last one that is smaller."""
    able(method)
    sends, receives, aggregate = counts
    pair = Pair(comm, method, sends, receives, aggregate=aggregate)
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
    size, right, left = comm.size, (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    source, target = np.zeros(65536, np.int64), empty(comm, 65536, np.int64)

    def init_send():
        return Psend_init(comm, source, 32, right, 3, method=method)

    def init_receive():
        return Precv_init(comm, target, 8, left, 3, method=method)

    if order == "opposite" and comm.rank % 2:
        receive = init_receive()
        receive.Start()
        send = init_send()
        send.Start()
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
        ready = turn == 0 and not (order == "opposite" and comm.rank % 2)
        send.Pready_range(0, 30 if ready else 31)
        waits = [send, receive]
        Waitall(waits[::-1] if order == "waits opposite" and comm.rank % 2 else waits)
        # the partition that was marked first may have left before it was filled
        got, want = target, expected(target.size, (comm.rank - 1) % size, turn)
        early = turn == 0 and not (order == "opposite" and left % 2)
        last = target.size - target.size // 32 if early else target.size
        assert np.array_equal(got[:last], want[:last])
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


@parameters(method=METHODS)
def case_life_and_misuse(comm, method):
    able(method)
    pair = Pair(comm, method, 8, 4, count=64, aggregate=0)
    send, receive = pair.send, pair.receive
    assert send.state == receive.state == "inactive"
    assert send.Wait() is pair.source
    assert send.Test()
    for wrong in (lambda: send.Pready(0), lambda: send.Pready_range(0, 1),
                  lambda: send.Pready_list([0]), lambda: receive.Pready(0)):
        raises(RequestError, wrong, "inactive" if wrong is not None else "")
    pair.start()
    assert send.active
    raises(RequestError, send.Start, "started")
    raises(RequestError, send.Free, "freed")
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
    if threading.active_count() == 1:
        raises(RequestError, send.Wait, r"7 partitions are not ready (0, 1, 2, 4, 5, 6, 7)")
    send.Pready_list(np.array([0, 1, 2, 4]))
    send.Pready_range(5, 7)
    pair.complete()
    pair.check(0)
    pair.free()
    send.Free()
    for call in (send.Start, send.Wait, send.Test, lambda: send.Pready(0),
                 lambda: receive.Parrived(0), receive.Start):
        raises(RequestError, call, "freed")


def raises(kind, call, text):
    try:
        call()
    except kind as error:
        assert text in str(error) or text == "inactive", (text, str(error))
    else:
        raise AssertionError(f"{kind.__name__} with {text!r} was expected")


@parameters(method=METHODS, seen=["Start", "Wait", "Test"])
def case_sizes_that_disagree(comm, method, seen):
    able(method)
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    target = empty(comm, 96, np.int64)
    send = Psend_init(comm, np.zeros(64, np.int64), 4, right, 2, method=method)
    receive = Precv_init(comm, target, 4, left, 2, method=method)
    wanted = [f"rank {comm.rank} sends 512 bytes with tag 2, rank {right} receives 768",
              f"rank {left} sends 512 bytes with tag 2, rank {comm.rank} receives 768"]
    if seen == "Start":
        comm.Barrier()
        time.sleep(0.01)
        comm.Barrier()
    for request, text in zip((send, receive), wanted, strict=True):
        try:
            request.Start()
            if request is send:
                request.Pready_range(0, 3)
            if seen == "Test":
                while not request.Test():
                    pass
            request.Wait()
        except PatternError as error:
            assert str(error) == text, error
        else:
            raise AssertionError("no error")
        assert request.state == "inactive"
        raises(PatternError, request.Start, text)
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
            try:
                request.Start()
                while not request.Test():
                    pass
            except kind as error:
                assert text in str(error), error
            else:
                raise AssertionError("no error")
            request.Free()


def case_one_wish_is_enough(comm, seed):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    source, target = np.arange(640.0), np.zeros(640)
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
            ((data[::2], 4, peer), "contiguous"),
            ((np.array([None] * 4), 4, peer), "Python objects"),
            ((3, 4, peer), "no contiguous buffer"),
        ]:
            raises(PatternError, lambda init=init, a=arguments: init(comm, *a), text)
        raises(MethodError, lambda init=init: init(comm, data, 4, peer, method="smoke"),
               "no method 'smoke'; the methods are auto, rma")
        raises(PatternError, lambda init=init: init(comm, data, 4, peer, aggregate=-1), "aggregate")
    fixed = np.zeros(4)
    fixed.flags.writeable = False
    raises(PatternError, lambda: Precv_init(comm, fixed, 4, peer), "cannot be written")


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


@parameters(method=[m for m in METHODS if m not in ("rma", "mpi")])
def case_nothing_to_send(comm, method):
    pair = Pair(comm, method, 3, 2, count=0, own=False)
    for _ in range(TURNS):
        pair.start()
        pair.send.Pready_range(0, 2)
        pair.complete()
    pair.free()


def case_memory_in_use_is_not_freed(comm):
    pair = Pair(comm, "rma", 4, 4, count=64)
    pair.start()
    at_once(pair, 0, 0)
    pair.complete()
    raises(RequestError, lambda: free(pair.shared), "still use this memory")
    pair.free()


@parameters(method=METHODS)
def case_beside_other_messages(comm, method, seed):
    """Messages of the caller with the same tag are not disturbed."""
    able(method)
    pair = Pair(comm, method, 8, 8, count=800, aggregate=800, tag=0)
    for turn in range(TURNS):
        value, got = np.full(3, turn + 10 * comm.rank), np.zeros(3, np.int64)
        request = comm.Irecv([got, MPI.INT64_T], pair.left, 0)
        pair.start()
        random_order(pair, turn, seed)
        comm.Send([value, MPI.INT64_T], pair.right, 0)
        pair.complete()
        request.Wait()
        assert (got == turn + 10 * pair.left).all()
        pair.check(turn)
        comm.Barrier()
    pair.free()
