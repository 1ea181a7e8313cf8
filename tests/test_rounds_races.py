"""Rounds of several ranks that are threads of one process, so that they really race; no MPI.

The steps are those of the transports. Run in a build with a sanitizer of threads
(``make test-sanitize``) these tests show every access that no counter and no lock puts in order.
"""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from rounds_worlds import load, stand_in

from onesided.collectives.program import CREDIT, ENTRIES, HEAD, ROOM, TAIL, TOLD, PythonRounds
from onesided.collectives.steps import _core, call, copy, tell, wait_for

compiled = pytest.mark.skipif(_core is None, reason="no compiled core is installed")
LIMIT = 60  # seconds until a thread is taken to hang
LARGE = 1 << 18  # bytes from which copies give up the interpreter lock


def made(kind, plans, credit=None, by_thread=True):
    """A request of plans; ``by_thread``: late rounds are helped by the thread of the core."""

    request = stand_in(kind)()
    load(request, plans, tuple(range(len(plans))), credit)
    request._by_thread = int(by_thread and kind is not PythonRounds)
    return request


def together(*bodies):
    """Run each in a thread of its own; raise what any of them raises."""
    errors = []

    def run(body):
        try:
            body()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(body,), daemon=True) for body in bodies]
    for thread in threads:
        thread.start()
    end = time.monotonic() + LIMIT
    while any(thread.is_alive() for thread in threads) and not errors:
        assert time.monotonic() < end, "a thread hangs"
        time.sleep(0.001)
    if errors:
        raise errors[0]


KINDS = [PythonRounds, *([_core.Rounds] if _core is not None else [])]


class Everybody:
    """An exchange of all with all: two slots, or one and credits; written and read by steps, so
    that a sanitizer sees both sides."""

    def __init__(self, kind, ranks, nbytes, slots):
        self.ranks, self.slots = ranks, slots
        self.send = np.zeros((ranks, ranks, nbytes), np.uint8)
        self.recv = np.zeros((slots, ranks, ranks, nbytes), np.uint8)
        self.read = np.zeros((ranks, ranks, nbytes), np.uint8)
        self.arrived, self.credits = (np.zeros((ranks, ranks, 8), np.int64) for _ in range(2))
        self.requests = [made(kind, [self.plan(rank, slot) for slot in range(slots)])
                         for rank in range(ranks)]

    def plan(self, me, slot):
        chains = []
        if self.slots == 1:  # the owner has read the round before
            chains.append([tell(self.credits[me, p, :1]) for p in range(self.ranks)])
        for peer in range(self.ranks):
            chain = [wait_for(self.credits[peer, me, :1])] if self.slots == 1 else []
            chain += [copy(self.recv[slot, peer, me], self.send[me, peer]),
                      tell(self.arrived[peer, me, :1])]
            chains.append(chain)
        for peer in range(self.ranks):
            chains.append([wait_for(self.arrived[me, peer, :1]),
                           copy(self.read[me, peer], self.recv[slot, me, peer])])
        return chains

    def run(self, me, rounds, pause):
        request = self.requests[me]
        for turn in range(rounds):
            for peer in range(self.ranks):
                self.send[me, peer] = 100 + 40 * turn + 7 * me + peer & 0xFF
            request.Start()
            if pause and (turn + me) % 3 == 0:
                time.sleep(pause)  # the thread of the core helps meanwhile
            request.Wait()
            for peer in range(self.ranks):
                want = 100 + 40 * turn + 7 * peer + me & 0xFF
                assert (self.read[me, peer] == want).all(), (me, peer, turn)


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize(("ranks", "nbytes", "rounds"), [(2, 24, 60), (3, 1000, 40),
                                                        (2, LARGE + 24, 30)])
@pytest.mark.parametrize("kind", KINDS)
def test_ranks_that_are_threads(kind, ranks, nbytes, rounds, slots):
    exchange = Everybody(kind, ranks, nbytes, slots)
    together(*[lambda me=me: exchange.run(me, rounds, 0.003) for me in range(ranks)])


@pytest.mark.parametrize("nbytes", [24, LARGE + 24])
@pytest.mark.parametrize("kind", KINDS)
def test_threads_that_look_at_a_request_and_help_it(kind, nbytes):
    """One thread waits; another advances the request and asks about it, at any moment."""
    exchange = Everybody(kind, 2, nbytes, 1)
    over = threading.Event()
    looks = []

    def look():
        while not over.is_set():
            for request in exchange.requests:
                request.advance(len(looks) % 2 == 0)
                looks.append((request.late(), request._done, request._state, request.stands()))
            time.sleep(0.0005)

    def run(me):
        exchange.run(me, 40, 0.001)

    def first():
        try:
            run(0)
        finally:
            over.set()

    together(first, lambda: run(1), look)
    assert looks


@compiled
def test_late_rounds_come_and_go_while_the_thread_helps():
    """Many requests are late at a time, are completed in any order, and are dropped."""
    count = 40
    cells = np.zeros((count, 2, 8), np.int64)
    data = np.zeros((count, 2, 64), np.uint8)
    rng = np.random.default_rng(1)

    def late():
        for turn in range(1, 16):
            requests = [made(_core.Rounds, [[[wait_for(cells[i, 0, :1], 0, turn),
                                              copy(data[i, 1], data[i, 0]),
                                              tell(cells[i, 1, :1], 0, turn)]]])
                        for i in range(count)]
            for request in requests:
                request.Start()
                assert request.late() or request._done
            for i in rng.permutation(count):
                requests[i].Wait()

    def open_them():
        for turn in range(1, 16):
            opened = made(_core.Rounds, [[[tell(cells[i, 0, :1], 0, turn) for i in range(count)]]])
            opened.Start()
            opened.Wait()
            done = made(_core.Rounds, [[[wait_for(cells[i, 1, :1], 0, turn)
                                         for i in range(count)]]])
            done.Start()
            done.Wait()

    together(late, open_them)


@compiled
@pytest.mark.parametrize(("partitions", "part", "per"), [(48, 8, 1), (200, 40, 7),
                                                        (12, LARGE + 8, 1), (9, LARGE, 2)])
def test_several_threads_mark_the_partitions_of_one_send(partitions, part, per):
    """The counter of a partitioned send, its board, and a receiver that is a round."""
    threads, rounds, groups = 3, 12, -(-partitions // per)
    assert groups <= ROOM
    source, target, got = (np.zeros(partitions * part, np.uint8) for _ in range(3))
    board = np.zeros(ENTRIES + ROOM, np.int64)
    counter = _core.Counter(partitions, part, per)
    ready, over = threading.Barrier(threads + 1), threading.Barrier(threads + 1)

    def push():
        """Groups that could not leave do so when they are drained at the end."""

    def refuse(*arguments, **names):
        raise ValueError(arguments)

    counter.bind(push, refuse, refuse)
    counter.connect(target, source, board)

    def empty_the_board():
        board[TAIL] = board[HEAD]

    receiver = made(_core.Rounds, [[[
        tell(board[CREDIT : CREDIT + 1]), wait_for(board[TOLD : TOLD + 1], groups),
        call(empty_the_board, serves=False), copy(got, target),
    ]]])  # fmt: skip

    def mark(me):
        rng = np.random.default_rng([me, partitions])
        mine = np.arange(me, partitions, threads)
        for turn in range(1, rounds + 1):
            ready.wait(LIMIT)
            for index in rng.permutation(mine).tolist():
                source[index * part : (index + 1) * part] = turn + index & 0xFF
                counter.pready(index)
            over.wait(LIMIT)

    def own():
        for turn in range(1, rounds + 1):
            counter.reset()
            counter.expect(turn)
            receiver.Start()
            ready.wait(LIMIT)
            over.wait(LIMIT)
            while counter.waiting or counter.copying:
                counter.drain()
            receiver.Wait()
            want = (turn + np.arange(partitions) & 0xFF).astype(np.uint8)
            assert np.array_equal(got.reshape(partitions, part), np.repeat(want, part).reshape(
                partitions, part)), turn

    together(own, *[lambda me=me: mark(me) for me in range(threads)])
    counter.disconnect()
