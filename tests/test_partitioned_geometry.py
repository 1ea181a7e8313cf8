"""Groups and counters of partitioned sends; no MPI."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onesided.collectives.partitioned.counter import Counter
from onesided.collectives.partitioned.grouping import Grouping
from onesided.collectives.partitioned.letter import LENGTH, Letter


@pytest.mark.parametrize(
    ("partitions", "nbytes", "aggregate", "per", "groups", "last"),
    [
        (16, 1 << 20, 65536, 1, 16, 1),
        (4096, 1 << 20, 65536, 256, 16, 256),
        (10, 1000, 300, 3, 4, 1),
        (10, 1000, 0, 1, 10, 1),
        (10, 1000, 99, 1, 10, 1),
        (10, 1000, 1 << 40, 10, 1, 10),
        (10, 0, 65536, 10, 1, 10),
    ],
)
def test_groups(partitions, nbytes, aggregate, per, groups, last):
    grouping = Grouping.of(partitions, nbytes, aggregate)
    assert (grouping.per, grouping.groups, grouping.last) == (per, groups, last)
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


@given(st.integers(1, 60), st.integers(1, 70), st.randoms(use_true_random=False))
def test_marks_in_any_way_complete_every_group_once(partitions, per, random):
    counter = Counter(Grouping(partitions, partitions * 8, min(per, partitions)))
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
                told = counter.mark(index)
            elif kind == 1:
                told = counter.mark_range(index, stop - 1)
            else:
                some = sorted({*some, random.choice(left)})
                told = counter.mark_list(np.array(some))
            left = [value for value in left if value not in some]
            assert counter.missing == len(left)
            assert counter.unmarked() == left
            done = [g for g in range(counter.grouping.groups) if not any(
                p // counter.grouping.per == g for p in left)]
            fresh = [g for g in done if g not in seen]
            assert told == bool(fresh)
            while counter.waiting:
                seen += range(*counter.take())
            assert sorted(seen) == done
        assert sorted(seen) == list(range(counter.grouping.groups))


def test_groups_beside_each_other_leave_together():
    counter = Counter(Grouping(8, 64, 1))
    counter.reset()
    counter.mark_list(np.array([5, 1, 2, 7, 4]))
    assert [counter.take() for _ in range(3)] == [(1, 3), (4, 6), (7, 8)]
    assert counter.waiting == 0
    assert counter.first_ready(2, 6) == 2
    assert counter.first_ready(6, 6) == -1


def test_letters_survive_the_post():
    letter = Letter(1, 5, 1 << 40, 7, 65536, 1 << 27, -1, 1, 0xFFFFFFFFFFFFFFFF, 3, 2, 128)
    words = letter.packed()
    assert words.size == LENGTH
    again = Letter.unpacked(words)
    assert again.key == letter.key == "ffffffffffffffff0000000000000003"
    assert (again.method, again.nbytes, again.offset) == (-1, 1 << 40, 128)
