"""The parts of the passive broadcast that need no job: pieces of data, and notices."""

from __future__ import annotations

import random
import threading
from collections import defaultdict, deque

import numpy as np
import pytest

from onesided.collectives.passive import windows
from onesided.collectives.passive.notices import CLOSING, FAILED, Notices


class Recorder:
    """Stands for a window: what was put where."""

    def __init__(self, units):
        self.memory, self.unit, self.puts = np.zeros(100, np.uint8), units, 0

    def Put(self, origin, target, place):
        data, count, _ = origin
        start, also, _ = place
        assert len(data) == count == also
        assert target == 3
        self.memory[start * self.unit : start * self.unit + count] = data
        self.puts += 1


@pytest.mark.parametrize(("unit", "pieces"), [(1, 5), (4, 5), (5, 6), (16, 4), (20, 3)])
def test_long_data_are_put_in_pieces(monkeypatch, unit, pieces):
    """At most 12 bytes each, or one unit, and every piece begins at a unit."""
    monkeypatch.setattr(windows, "LARGEST_PIECE", 12)
    window, data = Recorder(unit), np.arange(1, 54, dtype=np.uint8)
    windows.put_bytes(window, data, 3, 1, unit)
    assert window.puts == pieces
    assert np.array_equal(window.memory[unit : unit + 53], data)
    assert not window.memory[:unit].any()
    assert not window.memory[unit + 53 :].any()


def test_the_bytes_of_a_buffer():
    assert windows.bytes_of(np.array([1, 256], "<i2")).tolist() == [1, 0, 0, 1]
    assert windows.bytes_of(np.arange(4, dtype="u1").reshape(2, 2).T).tolist() == [0, 1, 2, 3]
    assert windows.bytes_of(np.float32(0.0)).size == 4
    assert windows.bytes_of(b"abc").tolist() == [97, 98, 99]


# -- notices ---------------------------------------------------------------------------------------


class Wires:
    """Stands for the network between so many ranks; messages of a pair stay in order."""

    def __init__(self, size):
        self.waiting = defaultdict(deque)  # by source and target
        self.count = 0
        self.notices = [Notices(Endpoint(self, rank, size)) for rank in range(size)]

    def deliver(self):
        """Everybody listens until nothing is on its way."""
        while any([notices.listen() for notices in self.notices]) or any(self.waiting.values()):
            pass


class Endpoint:
    """Stands for a communicator on one rank."""

    def __init__(self, wires, rank, size):
        self.wires, self.rank, self.size = wires, rank, size

    def Isend(self, notice, rank, tag):
        self.wires.count += 1
        self.wires.waiting[self.rank, rank].append(bytes(notice))

    def Iprobe(self, source, tag, status):
        there = [a for (a, b), line in self.wires.waiting.items() if b == self.rank and line]
        if there:
            status.source = random.choice(there)
        return bool(there)

    def Recv(self, notice, source, tag):
        line = self.wires.waiting[source, self.rank].popleft()
        notice[:] = np.frombuffer(line, np.uint8)


@pytest.mark.parametrize("first", [0, 1, 7])
def test_one_failure_is_told_with_few_messages(first):
    """All hear the words, and fail themselves because of it."""
    random.seed(first)
    size = 8
    wires = Wires(size)
    wires.notices[first].tell(FAILED, "it was me")
    wires.deliver()
    for rank, notices in enumerate(wires.notices):
        assert rank == first or notices.failed == {first: "it was me"}
        if rank != first:
            notices.tell(FAILED, "because of another")
    wires.deliver()
    assert all(notices.all_in() and not notices.all_closing() for notices in wires.notices)
    assert all(notices.failed for notices in wires.notices[1:])
    assert wires.count <= 4 * (size - 1)


@pytest.mark.parametrize("seed", range(300))
def test_all_ranks_find_the_same(seed):
    """Whoever tells what, in which order, and hears it when: all close, or nobody does."""
    random.seed(seed)
    size = random.choice((1, 2, 3, 4, 5, 8))
    wires = Wires(size)
    plans = [random.choice([[CLOSING]] * 6 + [[FAILED], [CLOSING, FAILED]]) for _ in range(size)]
    steps = [rank for rank, plan in enumerate(plans) for _ in plan] + [None] * random.randint(0, 30)
    random.shuffle(steps)
    told, closes = defaultdict(list), True
    for rank in steps:
        if rank is None:
            random.choice(wires.notices).listen()
        else:
            assert len(told) == size or not any(each.all_closing() for each in wires.notices)
            kind = plans[rank][len(told[rank])]
            told[rank].append(kind)
            closes &= kind == CLOSING or wires.notices[0].all_closing()
            wires.notices[rank].tell(kind, f"words of {rank}")
    wires.deliver()
    found = {notices.all_closing() for notices in wires.notices}
    assert len(found) == 1
    assert all(notices.all_in() for notices in wires.notices)
    assert found == {closes}  # a failure counts unless it is decided by then that all close
    if all(plan == [CLOSING] for plan in plans):
        assert wires.count <= 2 * (size - 1)
    if found == {False}:  # everybody can say why
        assert all(
            notices.failed or FAILED in plan
            for notices, plan in zip(wires.notices, plans, strict=True)
        )


def test_a_notice_is_told_once():
    wires = Wires(3)
    for kind in (CLOSING, FAILED):
        wires.notices[1].tell(kind)
        told = wires.count
        wires.notices[1].tell(kind)
        assert wires.count == told


def test_a_failure_counts_also_where_it_cannot_be_told(monkeypatch):
    """MPI may be what has failed on the rank that decides."""
    wires = Wires(3)
    for notices in wires.notices[1:]:
        notices.tell(CLOSING)

    def broken(*_):
        raise ArithmeticError

    monkeypatch.setattr(Endpoint, "Isend", broken)
    with pytest.raises(ArithmeticError):
        wires.notices[0].tell(FAILED)
    monkeypatch.undo()
    wires.deliver()
    assert not any(notices.all_closing() for notices in wires.notices)


def test_an_interrupt_loses_no_notice(monkeypatch):
    wires = Wires(2)
    for notices in wires.notices:
        notices.tell(CLOSING)

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(wires.notices[0], "_read", interrupt)
    with pytest.raises(KeyboardInterrupt):
        wires.notices[0].listen()
    monkeypatch.undo()
    assert not wires.notices[0].all_in()
    wires.notices[0].listen()
    assert wires.notices[0].all_in()


def test_notices_leave_in_the_order_in_which_they_are_told():
    """The main thread closes while the Broadcaster fails: what was told first comes first."""
    entered, go, sent = threading.Event(), threading.Event(), []

    class Slow(Endpoint):
        def Isend(self, notice, rank, tag):
            if not entered.is_set():
                entered.set()
                go.wait(10)
            sent.append((rank, int(notice[0])))

    notices = Notices(Slow(None, 1, 3))
    threads = [threading.Thread(target=notices.tell, args=(kind,)) for kind in (CLOSING, FAILED)]
    threads[0].start()
    assert entered.wait(10)
    threads[1].start()
    threads[1].join(0.2)
    go.set()
    for thread in threads:
        thread.join(10)
    assert [kind for rank, kind in sent if rank == 0] == [CLOSING, FAILED]


@pytest.mark.parametrize("words", ["ArithmeticError: only here", "", "ü" * 1000, "\udcff"])
def test_the_words_of_a_failure(words):
    wires = Wires(3)
    wires.notices[2].tell(FAILED, words)
    wires.notices[0].tell(CLOSING)
    wires.notices[1].tell(CLOSING)
    wires.deliver()
    for notices in wires.notices[:2]:
        assert set(notices.failed) == {2}
        told = words.encode(errors="replace").decode()
        assert told.startswith(notices.failed[2].rstrip("\ufffd"))
        assert len(notices.failed[2]) >= min(len(words), 200)
