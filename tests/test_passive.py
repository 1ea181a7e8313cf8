"""The parts of the passive broadcast that need no job: extents, pieces, rests."""

from __future__ import annotations

import numpy as np
import pytest

from onesided.collectives import Extents, PatternError
from onesided.collectives.passive import windows
from onesided.collectives.passive.notices import CLOSING, FAILED, Notices
from onesided.collectives.passive.relay import LOOKS, SHORTEST, SPINS, Backoff
from onesided.collectives.passive.windows import as_displacement, bytes_of, check_root


def test_extents_are_those_of_every_rank():
    extents = Extents((80, 64, 100), (8, 4, 1))
    extents.check(4, 48)
    with pytest.raises(PatternError, match=r"displacement 5 \(of 8 bytes\).* rank 0.* 80 bytes"):
        extents.check(5, 48)
    with pytest.raises(PatternError, match="rank 1, which has 64 bytes"):
        extents.check(2, 60)
    with pytest.raises(PatternError, match="displacement -1"):
        extents.check(-1, 0)
    extents.check(10, 0)


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
    monkeypatch.setattr(windows, "PIECE", 12)
    window, data = Recorder(unit), np.arange(1, 54, dtype=np.uint8)
    windows.put_bytes(window, data, 3, 1, unit)
    assert window.puts == pieces
    assert np.array_equal(window.memory[unit : unit + 53], data)
    assert not window.memory[:unit].any()
    assert not window.memory[unit + 53 :].any()


def test_no_data_need_no_put():
    window = Recorder(1)
    windows.put_bytes(window, np.zeros(0, np.uint8), 3, 0, 1)
    assert window.puts == 0


def test_the_bytes_of_a_buffer():
    assert bytes_of(np.array([1, 256], "<i2")).tolist() == [1, 0, 0, 1]
    assert bytes_of(np.arange(4, dtype="u1").reshape(2, 2).T).tolist() == [0, 1, 2, 3]
    assert bytes_of(np.float32(0.0)).size == 4
    assert bytes_of(b"abc").tolist() == [97, 98, 99]
    assert bytes_of(np.zeros((0, 3))).size == 0
    for wrong in (np.zeros((4, 4))[::2], None, [1, 2], np.array([None]), 5):
        with pytest.raises(PatternError):
            bytes_of(wrong)


def test_displacements_and_roots():
    assert as_displacement(np.int32(7)) == 7
    for wrong in (1.0, "1", None):
        with pytest.raises(PatternError, match="not an integer"):
            as_displacement(wrong)
    check_root(2, np.int64(2))
    with pytest.raises(PatternError, match="rank 2 broadcasts with root 1"):
        check_root(2, 1)


def rests(longest, looks, worked=lambda look: False):
    """The sleeps of so many looks."""
    slept = []
    backoff = Backoff(longest, slept.append)
    for look in range(looks):
        backoff(worked(look))
    return slept


def test_rests_grow_up_to_the_longest():
    slept = rests(0.001, SPINS + 10 * LOOKS)
    assert slept[:4] == pytest.approx([SHORTEST, 2 * SHORTEST, 4 * SHORTEST, 8 * SHORTEST])
    assert slept[-1] == 0.001
    assert len(slept) == 11
    assert max(rests(0.001, 100_000)) == 0.001


def test_rests_stay_short_while_something_is_expected():
    slept = []
    backoff = Backoff(0.001, slept.append)
    for _ in range(SPINS + 100 * LOOKS):
        backoff(False, expecting=True)
    assert max(slept) <= 2 * SHORTEST
    assert len(slept) > 50


def test_no_rest_after_work_and_none_at_all():
    assert rests(0.001, 1000, lambda look: look % SPINS == 0) == []
    assert rests(0, 1000) == []


class Wire:
    """Stands for a communicator of rank 1 of 3: notices wait in lists."""

    rank, size = 1, 3

    def __init__(self):
        self.sent, self.waiting = [], []

    def Isend(self, notice, rank, tag):
        self.sent.append((rank, bytes(notice)))

    def Iprobe(self, source, tag, status):
        if self.waiting:
            status.source = self.waiting[0][0]
        return bool(self.waiting)

    def Recv(self, notice, source, tag):
        notice[:] = np.frombuffer(self.waiting.pop(0)[1], np.uint8)


def told(*kinds, words="words"):
    """What a rank that told these kinds has sent to one other rank."""
    wire = Wire()
    notices = Notices(wire)
    for kind in kinds:
        notices.tell(kind, words)
    assert [rank for rank, _ in wire.sent] == [0, 2] * len(set(kinds))
    return [notice for rank, notice in wire.sent if rank == 0]


def heard(mine, first, second):
    """Rank 1 after it told its own, and heard those of rank 0 and rank 2."""
    wire = Wire()
    notices = Notices(wire)
    for kind in mine:
        notices.tell(kind)
    wire.waiting = [(0, notice) for notice in first] + [(2, notice) for notice in second]
    assert notices.listen() == bool(wire.waiting or first or second)
    return notices


def test_all_close_where_all_said_so_first():
    close, fail, late = told(CLOSING, CLOSING), told(FAILED, CLOSING), told(CLOSING, FAILED)
    assert heard([CLOSING], close, close).all_closing()
    assert heard([CLOSING], close, late).all_closing()  # it promised, and keeps it
    assert heard([CLOSING, FAILED], close, close).all_closing()
    assert not heard([CLOSING], close, fail).all_closing()
    assert not heard([FAILED, CLOSING], close, close).all_closing()
    assert not heard([CLOSING], close, []).all_in()
    assert not heard([CLOSING], close, []).all_closing()
    assert heard([], close, fail).all_in()


@pytest.mark.parametrize("words", ["ArithmeticError: only here", "", "ü" * 1000])
def test_the_words_of_a_failure(words):
    notices = heard([], told(FAILED, words=words), told(CLOSING))
    assert set(notices.failed) == {0}
    assert words.startswith(notices.failed[0].rstrip("\ufffd"))
    assert len(notices.failed[0]) >= min(len(words), 200)
