"""Partitions and the renumbering of columns: pure, no MPI."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from onesided.sparse.partition import Partition, cuts, index_dtype, ranked, split_columns

WEIGHTS = st.lists(st.integers(0, 50), max_size=60).map(lambda numbers: np.array(numbers, np.int64))
PARTS = st.integers(1, 9)


@given(st.integers(0, 100), PARTS)
def test_even_parts_differ_by_one_at_most_and_cover_everything(size, parts):
    partition = Partition.even(size, parts)
    lengths = partition.lengths()
    assert len(lengths) == parts == partition.parts
    assert lengths.sum() == size == partition.size
    assert lengths.max() - lengths.min() <= 1
    assert list(lengths) == sorted(lengths, reverse=True)


@given(WEIGHTS, PARTS)
def test_balanced_parts_stay_close_to_their_share(weights, parts):
    assume(weights.sum() > 0)
    partition = Partition.balanced(weights, parts)
    assert partition.size == len(weights)
    share = weights.sum() / parts
    for part in range(parts):
        start, stop = partition.range(part)
        assert weights[start:stop].sum() <= share + weights.max()


def test_balanced_cuts_where_half_of_the_weight_is():
    assert Partition.balanced(np.array([3, 1, 1, 1, 1, 1]), 2).starts.tolist() == [0, 2, 6]
    assert Partition.balanced(np.array([1, 1, 10]), 3).starts.tolist() == [0, 2, 3, 3]
    assert Partition.balanced(np.zeros(5, np.int64), 2).starts.tolist() == [0, 3, 5]


@given(WEIGHTS, PARTS, st.lists(st.integers(0, 60), max_size=5))
def test_cuts_of_runs_add_up_to_the_cuts_of_the_whole(weights, parts, bounds):
    assume(weights.sum() > 0)
    bounds = sorted({0, len(weights), *(min(bound, len(weights)) for bound in bounds)})
    total = int(weights.sum())
    whole = sum(
        cuts(weights[start:stop], int(weights[:start].sum()), total, parts)
        for start, stop in itertools.pairwise(bounds)
    )
    assert np.array_equal(whole, Partition.balanced(weights, parts).starts)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=8))
def test_owners_agree_with_ranges(lengths):
    assume(sum(lengths) > 0)
    partition = Partition.from_lengths(np.array(lengths))
    indices = np.arange(partition.size)
    owners = partition.owners(indices)
    for index, owner in zip(indices, owners, strict=True):
        start, stop = partition.range(owner)
        assert start <= index < stop


@pytest.mark.parametrize("kind", [list, "i4", "i8", "u8"])
@pytest.mark.parametrize("starts", [[0], [1, 2], [0, 3, 2], [-1, 0]])
def test_starts_that_are_no_partition_are_refused(starts, kind):
    def given(starts):
        return starts if kind is list else np.array(starts).astype(kind)

    with pytest.raises(ValueError, match="ascend from 0"):
        Partition(given(starts))
    kept = Partition(given([0, 1 << 30, (1 << 30) + 2])).starts
    assert kept.dtype == np.int64
    assert (kept * 4).tolist() == [0, 1 << 32, (1 << 32) + 8]
    with pytest.raises(TypeError, match="float64, not integers"):
        Partition(np.array(starts, float))


def test_sizes_that_cannot_be_partitioned_are_refused():
    with pytest.raises(ValueError, match="-1 indices"):
        Partition.even(-1, 2)
    with pytest.raises(ValueError, match="0 parts"):
        Partition.even(3, 0)


@given(st.data(), st.lists(st.integers(0, 6), min_size=1, max_size=6))
def test_split_columns_puts_owned_first_and_ghosts_by_owner(data, lengths):
    partition = Partition.from_lengths(np.array(lengths))
    assume(partition.size > 0)
    part = data.draw(st.integers(0, partition.parts - 1))
    indices = np.array(
        data.draw(st.lists(st.integers(0, partition.size - 1), min_size=1, max_size=40))
    )
    places, ghosts, counts = split_columns(indices, partition, part)
    start, stop = partition.range(part)
    back = np.concatenate([np.arange(start, stop), ghosts])
    assert np.array_equal(back[places], indices)
    assert ghosts.tolist() == sorted({int(i) for i in indices if not start <= i < stop})
    owners = partition.owners(ghosts)
    assert np.array_equal(np.bincount(owners, minlength=partition.parts), counts)
    assert places.dtype == np.int32


@given(
    st.lists(st.integers(0, 1 << 20), max_size=40),
    st.integers(0, 1 << 33),
    st.sampled_from([np.int64, np.uint64]),
)
def test_ghosts_in_a_short_range_are_ranked_as_sorting_ranks_them(numbers, first, kind):
    for spread in (1, 1 << 18):  # a long range, and one of 5 numbers
        some = np.array([first + number // spread for number in numbers], kind)
        ghosts, place = ranked(some)
        assert ghosts.tolist() == sorted(set(some.tolist()))
        assert ghosts[place].tolist() == some.tolist() if len(some) else not len(place)


def test_ghosts_behind_more_than_32_bits_of_own_columns():
    partition = Partition.from_lengths(np.array([1 << 31, 8]))
    places, ghosts, _ = split_columns(np.array([5, 1, 5, 7]) + (1 << 31), partition, 0)
    assert places.tolist() == [(1 << 31) + place for place in (1, 0, 1, 2)]
    assert ghosts.tolist() == [(1 << 31) + place for place in (1, 5, 7)]
    assert places.dtype == np.int64
    places, ghosts, _ = split_columns(np.zeros(0, np.int32), partition, 1)  # of no rows
    assert len(places) == len(ghosts) == 0
    few = Partition.from_lengths(np.array([5, 1 << 40]))
    assert split_columns(np.array([7, 1 << 40]), few, 0)[0].dtype == np.int32


@pytest.mark.parametrize("parts", [1, 2, 17, 18, 40])
def test_owners_of_few_and_of_many_parts(parts):
    starts = np.sort(np.random.default_rng(parts).integers(0, 1 << 33, parts + 1))
    starts[0] = 0
    partition = Partition(np.append(starts, starts[-1] + 5)[: parts + 1])
    indices = np.append(partition.starts[:-1], np.arange(partition.size - 3, partition.size))
    expected = [
        max(part for part in range(parts) if partition.starts[part] <= index) for index in indices
    ]
    assert partition.owners(indices).tolist() == expected
    small = np.arange(9, dtype=np.int8)
    assert partition.owners(small).tolist() == partition.owners(small.astype(np.int64)).tolist()


@pytest.mark.parametrize("index", [-1, 4])
def test_a_column_that_nobody_owns_is_refused(index):
    with pytest.raises(ValueError, match="4 columns"):
        split_columns(np.array([0, index]), Partition.even(4, 2), 0)


def test_index_dtype_turns_at_two_to_the_31():
    assert index_dtype((1 << 31) - 1) is np.int32
    assert index_dtype(1 << 31) is np.int64
