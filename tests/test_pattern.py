"""Pure geometry of exchanges: blocks, bounds, overlaps. No rank but this one."""

from __future__ import annotations

import array
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpi4py import MPI

from onesided.collectives import PatternError, UnsupportedError
from onesided.collectives.buffers import recv_boxes, send_boxes, vector
from onesided.collectives.copies import as_bytes, copies_between
from onesided.collectives.hints import Hints
from onesided.collectives.pattern import (
    Block,
    blocks_of_boxes,
    blocks_of_counts,
    check_counts,
    check_disjoint,
    one_piece,
)
from onesided.collectives.program import joined_axes


def test_blocks_without_elements_are_left_out():
    blocks = blocks_of_counts([2, 0, 3], [5, 0, 7], [0, 1, 2], [0, 0, 0])
    assert [(b.peer, b.box, b.size) for b in blocks] == [
        (0, (slice(5, 7),), 2), (2, (slice(7, 10),), 3)
    ]
    assert blocks_of_counts([4], [0], [MPI.PROC_NULL], [0]) == ()


def test_boxes_are_completed():
    (block,) = blocks_of_boxes([None, (slice(1, 3), slice(None, 2))], (4, 5, 6), "send")
    assert block.peer == 1
    assert block.box == (slice(1, 3), slice(0, 2), slice(0, 6))
    assert block.shape == (2, 2, 6)
    assert block.size == 24
    assert blocks_of_boxes([(slice(2, 2),)], (4,), "send") == ()


@pytest.mark.parametrize(
    ("counts", "displs", "words"),
    [([-1], [0], "negative"), ([3], [-1], "out of bounds"), ([3], [1], r"\[1, 4\).*3 elements"),
     ([1], [2**63], "out of bounds")],
)
def test_blocks_out_of_bounds(counts, displs, words):
    with pytest.raises(PatternError, match=words):
        check_counts(counts, displs, 3, "recv")


boxes = st.lists(
    st.tuples(st.integers(0, 6), st.integers(1, 4), st.integers(0, 6), st.integers(1, 4)),
    min_size=2, max_size=8,
)


@given(boxes)
def test_overlaps_are_found_exactly(rectangles):
    blocks, cover = [], np.zeros((10, 10), int)
    for peer, (row, height, column, width) in enumerate(rectangles):
        box = (slice(row, row + height), slice(column, column + width))
        cover[box] += 1
        blocks.append(Block(peer, 0, box, (height, width)))
    if cover.max() > 1:
        with pytest.raises(PatternError, match="overlap"):
            check_disjoint(blocks)
    else:
        check_disjoint(blocks)


@given(st.permutations([0, 1, 2]), st.tuples(*[st.integers(0, 4)] * 3))
def test_one_piece(order, shape):
    whole = np.zeros(shape)
    assert one_piece(whole.transpose(order))
    assert sorted(as_bytes(whole.transpose(order)).shape) == [whole.nbytes]
    if all(extent > 1 for extent in shape):
        assert not one_piece(np.zeros([2 * n for n in shape])[::2].transpose(order))
        assert not one_piece(np.zeros(shape)[:, :-1].transpose(order))


def test_copies_match_elements_in_c_order():
    target, source = np.zeros((2, 3)), np.arange(6.0).reshape(2, 3)
    ((into, out),) = copies_between(target, source)
    assert into is target
    assert out is source
    first, then = copies_between(target, np.arange(6.0).reshape(3, 2).T[::-1].T)
    for into, out in (first, then):
        assert into.shape == out.shape
        into[...] = out
    np.testing.assert_array_equal(target, np.arange(6.0).reshape(3, 2)[:, ::-1].reshape(2, 3))


def test_a_copy_has_as_few_axes_as_it_can():
    """One contiguous block is one axis, and the target's fastest axis is the innermost."""
    def axes(target, source):
        return joined_axes(target.shape, target.strides, source.strides)

    whole = np.zeros((2, 3, 4), "u1")
    assert axes(whole, whole) == [(24, 1, 1)]
    assert axes(whole[:1, :1, :1], whole[:1, :1, :1]) == [(1, 0, 0)]
    assert axes(whole.T, whole.T) == [(24, 1, 1)]
    assert axes(whole[:, :2], whole[:, :2]) == [(2, 12, 12), (8, 1, 1)]
    assert axes(whole[:, :, :2], whole[:, :, 2:]) == [(6, 4, 4), (2, 1, 1)]
    turned = np.zeros((4, 3, 2), "u1").T
    assert axes(turned, whole) == [(4, 6, 1), (3, 2, 4), (2, 1, 12)]


@given(st.permutations([0, 1, 2]), st.tuples(*[st.integers(1, 4)] * 3), st.data())
def test_the_axes_of_a_copy_reach_every_element_once(order, shape, data):
    """Of boxes of larger arrays in any orders of their axes: followed by strides alone."""
    boxes = []
    for turned in ((0, 1, 2), order):
        outer = [shape[axis] + data.draw(st.integers(0, 2)) for axis in turned]
        whole = np.arange(int(np.prod(outer)), dtype=np.int32).reshape(outer)
        box = tuple(slice(outer[i] - shape[axis], None) for i, axis in enumerate(turned))
        boxes.append(whole[box].transpose(np.argsort(turned)))
    target, source = boxes
    axes = joined_axes(shape, target.strides, source.strides)
    assert len(axes) <= 3
    steps = list(itertools.product(*[range(extent) for extent, _, _ in axes]))
    to, out = ([sum(i * axis[side] for i, axis in zip(step, axes, strict=True)) for step in steps]
               for side in (1, 2))

    def at(array):
        """By distance from the first element, in bytes, the place in the box."""
        places = itertools.product(*[range(extent) for extent in shape])
        return {int(np.dot(place, array.strides)): place for place in places}

    targets, sources = at(target), at(source)
    assert sorted(to) == sorted(targets)
    assert [targets[a] for a in to] == [sources[b] for b in out]


SPECS = [
    lambda d, c, s: [d, c],
    lambda d, c, s: [d, c, s],
    lambda d, c, s: [d, (c, s)],
    lambda d, c, s: [d, c, s, MPI.DOUBLE],
    lambda d, c, s: [d, (c, s), "d"],
    lambda d, c, s: (d, tuple(c), np.array(s), MPI.DOUBLE),
    lambda d, c, s: [memoryview(d), np.array(c), None, MPI.DOUBLE],
]


@pytest.mark.parametrize("form", SPECS)
def test_forms_of_a_vector_specification(form):
    data = np.arange(6.0)
    got = vector(form(data, [1, 2, 3], [0, 1, 3]), 3, "send")
    assert got.counts == [1, 2, 3]
    assert got.displs == [0, 1, 3]
    assert np.shares_memory(got.flat, data)


def test_even_blocks_and_types():
    assert vector(np.zeros((2, 3)), 3, "send").counts == [2, 2, 2]
    assert vector(array.array("f", [1, 2]), 2, "recv").flat.dtype == np.float32
    assert vector([np.zeros(16, "u1"), [1, 1], None, MPI.DOUBLE], 2, "send").flat.shape == (2,)
    assert vector([np.zeros(4, "f4"), 2], 2, "send").counts == [2, 2]
    with pytest.raises(PatternError, match=r"7 elements .* 3 blocks"):
        vector(np.zeros(7), 3, "send")
    triple = MPI.DOUBLE.Create_contiguous(3).Commit()
    holes = MPI.DOUBLE.Create_vector(2, 1, 2).Commit()
    try:
        side = vector([np.zeros(6), [1, 1], None, triple], 2, "send")
        assert (side.counts, side.displs, side.flat.dtype) == ([3, 3], [0, 3], np.float64)
        with pytest.raises(PatternError, match=r"out of bounds of the 2 elements"):
            vector([np.zeros(6), [1, 2], None, triple], 2, "send")
        with pytest.raises(UnsupportedError, match="holes"):
            vector([np.zeros(6), [1, 1], None, holes], 2, "send")
    finally:
        triple.Free()
        holes.Free()


def test_receive_boxes():
    side = recv_boxes([((2, 3), "f4"), [(slice(0, 2),)]], 1)
    assert side.array is None
    assert side.shape == (2, 3)
    assert send_boxes([np.zeros((4, 4))[::2], [None]], 1).blocks == ()
    for wrong in (np.zeros((4, 4))[::2], np.zeros((4, 4))[:, 1:]):
        with pytest.raises(PatternError, match="not contiguous"):
            recv_boxes([wrong, [None]], 1)
    with pytest.raises(PatternError, match="overlap"):
        recv_boxes([np.zeros(4), [(slice(0, 3),), (slice(2, 4),)]], 2)


def test_hints():
    assert Hints.of(None) == Hints.of({"other": "x"}) == Hints()
    strict = "mpi_assert_strict_persistent_collective_ordering"
    assert Hints.of({strict: "true", "slots": "1", "ranks_per_node": "2"}) == Hints(2, 1, True)
    for key, text in itertools.product(["slots", "ranks_per_node"], ["0", "-1", "two", ""]):
        with pytest.raises(PatternError, match=key):
            Hints.of({key: text})
