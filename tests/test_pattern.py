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
from onesided.collectives.buffers import recv_boxes, send_boxes, simple, typed, vector
from onesided.collectives.pattern import (
    Block,
    as_bytes,
    blocks_of_boxes,
    blocks_of_counts,
    check_disjoint,
    copies_between,
    one_piece,
)
from onesided.collectives.steps import joined_axes


def test_blocks_without_elements_are_left_out():
    blocks = blocks_of_counts([2, 0, 3], [5, 0, 7], [0, 1, 2], [0, 0, 0])
    assert [(b.peer, b.box, b.size) for b in blocks] == [
        (0, (slice(5, 7),), 2), (2, (slice(7, 10),), 3)
    ]
    assert blocks_of_counts([4], [0], [MPI.PROC_NULL], [0]) == ()


def test_boxes_are_completed():
    boxes = [None, (slice(1, 3), slice(None, 2))]
    (block,) = blocks_of_boxes(boxes, (4, 5, 6), "send", [0, 1], [0, 0])
    assert block.peer == 1
    assert block.box == (slice(1, 3), slice(0, 2), slice(0, 6))
    assert block.shape == (2, 2, 6)
    assert block.size == 24
    assert blocks_of_boxes([(slice(2, 2),)], (4,), "send", [0], [0]) == ()


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


def blocks(spec, peers=None):
    """By block, where it starts in the array and how many elements it has; and the array."""
    peers = range(len(spec.pieces)) if peers is None else peers
    side = spec.side(list(peers), [0] * len(peers))
    return [(b.box[0].start, b.size) for b in side.blocks], side.array


@pytest.mark.parametrize("form", SPECS)
def test_forms_of_a_vector_specification(form):
    data = np.arange(6.0)
    got, memory = blocks(vector(form(data, [1, 2, 3], [0, 1, 3]), 3, "send"))
    assert got == [(0, 1), (1, 2), (3, 3)]
    assert np.shares_memory(memory, data)


def test_even_blocks_and_types():
    assert blocks(vector(np.zeros((2, 3)), 3, "send"))[0] == [(0, 2), (2, 2), (4, 2)]
    assert blocks(vector(array.array("f", [1, 2]), 2, "recv"))[1].dtype == np.float32
    eight = [np.zeros(16, "u1"), [1, 1], None, MPI.DOUBLE]
    assert blocks(vector(eight, 2, "send"))[1].shape == (2,)
    assert blocks(vector([np.zeros(4, "f4"), 2], 2, "send"))[0] == [(0, 2), (2, 2)]
    assert blocks(vector([np.zeros(9), (2, 3)], 3, "send"))[0] == [(0, 2), (3, 2), (6, 2)]
    assert blocks(vector(np.zeros(7), 3, "send"))[0] == [(0, 3), (3, 2), (5, 2)]
    with pytest.raises(PatternError, match="a tuple is"):
        vector([np.zeros(9), (1, 2, 3)], 3, "send")


def test_forms_of_a_simple_specification():
    data = np.arange(12.0)
    for spec, start, count in (
        (data, 0, 4), ([data, 2], 0, 2), ([data, (2, 3)], 3, 2), ([data, [2, 3], "d"], 3, 2),
        ([data, 2, 3, MPI.DOUBLE], 3, 2), ([data, MPI.DOUBLE], 0, 4), ([data, None, 3, "d"], 3, 3),
        ([data.tobytes(), 2, "d"], 0, 2), ([None, 0, "d"], 0, 0),
    ):  # fmt: skip
        got, _ = blocks(simple(spec, 3, "send"))
        assert got == [(start + i * count, count) for i in range(3) if count]
    assert blocks(simple([data, 2], 1, "send"), [0, -1, 2])[0] == [(0, 2)] * 2
    for wrong, words in (([data, 5], "out of bounds"), ([data, -1], "negative"),
                         ([data, (1, -1)], "negative"), ([data, 1.5], "not an integer"),
                         ([None, 1, "d"], "out of bounds"), (data[:7], "7 elements .* 3 blocks")):
        with pytest.raises(PatternError, match=words):
            simple(wrong, 3, "send")


@pytest.fixture
def types():
    """Three numbers in a row, two with a hole between them, and two in the wrong order."""
    made = [MPI.DOUBLE.Create_contiguous(3), MPI.DOUBLE.Create_vector(2, 1, 2),
            MPI.DOUBLE.Create_indexed_block(1, [1, 0])]
    yield [kind.Commit() for kind in made]
    for kind in made:
        kind.Free()


def test_derived_types(types):
    triple, holes, turned = types
    spec = vector([np.zeros(6), [1, 1], None, triple], 2, "send")
    assert blocks(spec)[0] == [(0, 3), (3, 3)]
    with pytest.raises(PatternError, match=r"out of bounds of the 2 elements"):
        vector([np.zeros(6), [1, 2], None, triple], 2, "send")
    data = np.arange(12.0)
    for kind, displs, want in (
        (holes, [0, 2], [0, 2, 6, 8]), (holes, [2, 0], [6, 8, 0, 2]),
        (turned, [1, 3], [3, 2, 7, 6]),
    ):  # fmt: skip
        spec = vector([data, [1, 1], displs, kind], 2, "send")
        side = spec.side([0, 1], [0, 0])
        side.before()
        assert side.array.tolist() == want
        with pytest.raises(UnsupportedError, match="holes"):
            spec.elements()
        target = np.full(12, -1.0)
        into = vector([target, [1, 1], displs, kind], 2, "recv").side([0, 1], [0, 0])
        assert into.array is None
        into.after(np.array(want, float))
        assert [target[int(place)] for place in want] == want
        assert np.count_nonzero(target == -1) == 8
    with pytest.raises(PatternError, match="out of bounds"):
        vector([data, [1, 1], [0, 4], holes], 2, "send")


def test_a_type_for_every_block(types):
    _, holes, _ = types
    data = np.arange(12.0)
    plain = typed([data, ([2, 1], [8, 40]), [MPI.DOUBLE, "d"]], 2, "send").side([0, 1], [0, 0])
    assert [b.box[0] for b in plain.blocks] == [slice(1, 3), slice(5, 6)]
    mixed = typed([data, [2, 1], [8, 40], ["d", "i"]], 2, "send").side([0, 1], [0, 0])
    assert mixed.array.dtype == np.uint8
    assert [b.element for b in mixed.blocks] == [np.float64, np.int32]
    at = MPI.Get_address(data)
    for spec in ([data, [1, 2], [8, 40], [holes, "d"]],
                 [MPI.BOTTOM, [1, 2], [at + 8, at + 40], [holes, "d"]]):
        side = typed(spec, 2, "send").side([0, 1], [0, 0])
        side.before()
        assert side.array.tolist() == [1, 3, 5, 6]
    for wrong in ([data, [1], [8, 8], ["d", "d"]], [data, [1, 1], [8, 96], ["d", "d"]],
                  [data, [1, 1], [0, 8], ["d"]]):
        with pytest.raises(PatternError):
            typed(wrong, 2, "send")


def test_receive_boxes():
    side = recv_boxes([((2, 3), "f4"), [(slice(0, 2),)]], [0], [0])
    assert side.array is None
    assert side.shape == (2, 3)
    assert send_boxes([np.zeros((4, 4))[::2], [None]], [0], [0]).blocks == ()
    for wrong in (np.zeros((4, 4))[::2], np.zeros((4, 4))[:, 1:]):
        with pytest.raises(PatternError, match="not contiguous"):
            recv_boxes([wrong, [None]], [0], [0])
    with pytest.raises(PatternError, match="overlap"):
        recv_boxes([np.zeros(4), [(slice(0, 3),), (slice(2, 4),)]], [0, 1], [0, 0])
