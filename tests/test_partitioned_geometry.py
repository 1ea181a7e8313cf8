"""Groups and counters of partitioned sends; no MPI."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onesided.collectives.errors import PatternError
from onesided.collectives.partitioned.counter import Counter, Grouping, compiled_counter
from onesided.collectives.partitioned.handshake import Parameters, check_fit
from onesided.collectives.program import COMPILED, CREDIT, ENTRIES, HEAD, ROOM, TAIL
from onesided.collectives.steps import _core


@pytest.mark.parametrize(
    ("partitions", "nbytes", "aggregate", "per", "groups"),
    [
        (16, 1 << 20, 65536, 1, 16),
        (4096, 1 << 20, 65536, 256, 16),
        (10, 1000, 300, 3, 4),
        (10, 1000, 0, 1, 10),
        (10, 1000, 99, 1, 10),
        (10, 1000, 1 << 40, 10, 1),
        (10, 0, 65536, 10, 1),
    ],
)
def test_groups(partitions, nbytes, aggregate, per, groups):
    grouping = Grouping.of(partitions, nbytes, aggregate)
    assert (grouping.per, grouping.groups) == (per, groups)
    spans = [grouping.span(group, group + 1) for group in range(groups)]
    assert spans[0][0] == 0
    assert spans[-1][1] == nbytes
    assert all(before[1] == after[0] for before, after in itertools.pairwise(spans))


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 500))
def test_what_covers_a_partition(sends, receives, aggregate):
    nbytes = sends * receives * 4
    grouping = Grouping.of(sends, nbytes, aggregate)
    for index in range(receives):
        start, end = index * sends * 4, (index + 1) * sends * 4
        first, stop = grouping.covering(start, end)
        touching = [g for g in range(grouping.groups)
                    if grouping.span(g, g + 1)[0] < end and start < grouping.span(g, g + 1)[1]]
        assert list(range(first, stop)) == touching


NEEDS_COMPILER = pytest.mark.skipif(not COMPILED, reason="no compiler was there to build it")
COUNTERS = [Counter, pytest.param(compiled_counter, marks=NEEDS_COMPILER)]


@pytest.mark.parametrize("make", COUNTERS)
@given(st.integers(1, 60), st.integers(1, 70), st.randoms(use_true_random=False))
def test_marks_in_any_way_complete_every_group_once(make, partitions, per, random):
    per = min(per, partitions)
    counter = make(Grouping(partitions, partitions * 8, per))
    assert counter.unmarked() == []  # nothing can be marked before the first round
    for _ in range(2):
        counter.reset()
        seen: list[int] = []
        left = list(range(partitions))
        while left:
            index = random.choice(left)
            stop = index + 1
            while stop in left and random.random() < 0.7:
                stop += 1
            some = list(range(index, stop))
            kind = random.randrange(3)
            if kind == 0:
                some = [index]
            elif kind == 1:
                some = sorted({*some, random.choice(left)})
            one = make is Counter and len(some) == 1
            assert counter.mark(some[0] if one else np.array(some)) == -1
            left = [value for value in left if value not in some]
            assert counter.missing == len(left)
            assert counter.unmarked() == left
            done = [g for g in range(-(-partitions // per)) if not any(
                p // per == g for p in left)]
            while counter.waiting:
                seen += range(*counter.take())
            assert sorted(seen) == done
        assert sorted(seen) == list(range(-(-partitions // per)))


@pytest.mark.parametrize("make", COUNTERS)
def test_what_is_marked_already_changes_nothing(make):
    counter = make(Grouping(8, 64, 2))
    counter.reset()
    one = (lambda index: index) if make is Counter else (lambda index: np.array([index]))
    assert counter.mark(one(5)) == -1
    assert counter.mark(one(5)) == 5
    assert counter.mark(np.arange(2, 7)) == 5
    assert counter.mark(np.array([1, 5, 0])) == 5
    assert counter.mark(np.array([1, 3, 1])) == 1
    assert counter.unmarked() == [0, 1, 2, 3, 4, 6, 7]
    assert (counter.missing, counter.waiting) == (7, 0)
    counter.close()
    assert (counter.missing, counter.waiting) == (0, 0)
    assert counter.mark(one(0)) == 0


@pytest.mark.parametrize("make", COUNTERS)
def test_groups_beside_each_other_leave_together(make):
    counter = make(Grouping(8, 64, 1))
    counter.reset()
    assert counter.mark(np.array([5, 1, 2, 7, 4])) == -1
    assert [counter.take() for _ in range(3)] == [(1, 3), (4, 6), (7, 8)]
    assert counter.waiting == 0


@NEEDS_COMPILER
def test_the_compiled_counter_refuses_what_is_not_there():
    counter = compiled_counter(Grouping(8, 64, 2))
    refused = []
    counter.bind(lambda: None, refused.append, lambda *ends: refused.append(ends))
    counter.pready(3)  # before a round
    counter.reset()
    for wrong in (-1, 8, 1 << 80, "x", None, 2.0):
        counter.pready(wrong)
    counter.pready(3)
    counter.pready(3)
    assert refused == [3, -1, 8, 1 << 80, "x", None, 2.0, 3]
    refused.clear()
    wrong_ranges = [(0, 8), (-1, 2), (5, 4), (2, 3), (0, "x"), (0.0, 1), (), (1,), (1, 2, 3)]
    for wrong in wrong_ranges:
        counter.pready_range(*wrong)
    counter.pready_range(0, 2)
    counter.pready_range(4, 7)
    assert refused == wrong_ranges
    assert counter.missing == 0
    counter.reset()
    for wrong in (-1, 8):
        assert counter.mark(np.array([3, wrong])) == wrong
    assert counter.missing == 8
    with pytest.raises(IndexError):
        counter.take()
    with pytest.raises(ValueError, match="64"):
        counter.connect(bytearray(63), bytes(64), bytearray(768))
    with pytest.raises(ValueError, match="700 for a board"):
        counter.connect(bytearray(64), bytes(64), bytearray(700))
    with pytest.raises(BufferError):
        counter.connect(bytes(64), bytes(64), bytearray(768))


WORDS = ENTRIES + ROOM


@NEEDS_COMPILER
def test_marks_between_two_rounds_do_not_use_the_credit_of_the_first():
    """A worker may mark between the reset and the credit of the next round; it must stay."""
    source, target = np.arange(8, dtype=np.int64), np.zeros(8, np.int64)
    board = np.zeros(WORDS, np.int64)
    counter, told = compiled_counter(Grouping(8, 64, 1)), []
    counter.bind(lambda: told.append(counter.waiting), lambda *_: None, lambda *_: None)
    counter.connect(target, source, board)
    counter.reset()
    board[CREDIT] = 1
    counter.expect(1)
    counter.pready_range(0, 7)
    assert (target == source).all()
    assert board[HEAD] == 1
    assert not told
    source += 100
    counter.reset()
    counter.pready(0)
    assert (target == source - 100).all()
    assert (counter.waiting, told) == (1, [1])  # told once in a round that something stays
    counter.pready(1)
    counter.expect(2)
    counter.drain()
    assert (target == source - 100).all()
    board[CREDIT] = 2
    counter.drain()
    assert (target[:2] == source[:2]).all()
    assert (counter.waiting, told) == (0, [1])


@NEEDS_COMPILER
def test_a_full_board_is_told_of_once():
    board = np.zeros(WORDS, np.int64)
    counter, told = compiled_counter(Grouping(200, 200, 1)), []
    counter.bind(lambda: told.append(counter.waiting), lambda *_: None, lambda *_: None)
    counter.connect(bytearray(200), bytes(200), board)
    for number in (1, 2):
        told.clear()
        counter.reset()
        board[CREDIT] = number
        counter.expect(number)
        for index in range(0, 200, 2):
            counter.pready(index)
        assert told == [1]
        assert counter.waiting == 100 - ROOM
        board[TAIL] = board[HEAD]
        counter.drain()
        assert counter.waiting == 0
        board[TAIL] = board[HEAD]


@NEEDS_COMPILER
def test_misuse_of_the_compiled_counter():
    """Whatever Python can call is refused, not executed."""
    for wrong in ((0, 8, 1), (4, -1, 1), (4, 8, 0), (4, 8, 5)):
        with pytest.raises(ValueError, match="to a group"):
            _core.Counter(*wrong)
    with pytest.raises(TypeError):
        _core.Counter.__new__(_core.Counter)
    counter = _core.Counter(4, 8, 2)
    counter.reset()
    for wrong in (np.zeros(2, np.int32), bytearray(3), "xy"):
        with pytest.raises(TypeError):
            counter.mark(wrong)
    memory = bytearray(8 * WORDS + 1)
    with pytest.raises(ValueError, match="for a board"):
        counter.connect(bytearray(32), bytes(32), memoryview(memory)[1:])
    assert (counter.missing, counter.waiting) == (4, 0)
    counter.pready(0)  # nothing is bound, and nothing is complete
    with pytest.raises(TypeError):
        counter.pready(1)


def test_sides_that_fit():
    def side(kind, nbytes=64):
        return Parameters(0, 5, nbytes, kind, 7, 65536, "auto")

    for kinds in (("<f8", "<f8"), ("<f8", "|u1"), ("|V8", "<i4"), ("|S1", "|u1"), ("|i1", "<f4")):
        check_fit(side(kinds[0]), side(kinds[1]), 0, 1)
    with pytest.raises(PatternError, match="rank 3 sends float64 with tag 5, rank 1 receives int"):
        check_fit(side("<f8"), side("<i8"), 3, 1)
    with pytest.raises(PatternError, match="rank 3 sends 64 bytes with tag 5, rank 1 receives 32"):
        check_fit(side("<f8"), side("<i8", 32), 3, 1)
