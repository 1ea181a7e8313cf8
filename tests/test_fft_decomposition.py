"""Geometry of the FFT: who owns what, and which boxes a transpose moves. No MPI."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onesided.collectives.errors import PatternError
from onesided.pencilfft.decomposition import (
    PencilGeometry,
    balanced,
    block,
    choose_grid,
    memory_order,
    on_nodes,
    transpose_boxes,
)
from onesided.pencilfft.passes import chunks
from onesided.pencilfft.stages import AxisTransform, chains, inverse_of, plan_stages


@given(st.integers(0, 200), st.integers(1, 40))
def test_blocks_cover_every_index_once(length, parts):
    ranges = [block(length, parts, index) for index in range(parts)]
    covered = [i for start, stop in ranges for i in range(start, stop)]
    assert covered == list(range(length))
    sizes = [stop - start for start, stop in ranges]
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes) - min(sizes) <= 1
    with pytest.raises(PatternError, match=f"part {parts} of {parts}"):
        block(length, parts, parts)


@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=9),
    st.integers(0, 1000),
    st.integers(0, 1000),
)
def test_chunks_are_whole_blocks_and_long_enough(lengths, nbytes, least):
    stops = [sum(lengths[: k + 1]) for k in range(len(lengths))]
    found = chunks(stops, nbytes, least)
    assert found == sorted(set(found) & set(stops))
    assert found[-1] == stops[-1]
    share = nbytes / stops[-1]
    sizes = [(b - a) * share for a, b in zip([0, *found[:-1]], found, strict=True)]
    assert all(size >= least - 1e-9 for size in sizes[:-1])
    assert chunks(stops, nbytes, 0) == stops


def test_pencils_that_do_not_fit_are_refused():
    first = PencilGeometry((4, 4, 4), (2, 2, 1), (0, 0, 0), (0, 1, 2), 2)
    assert first == PencilGeometry((4, 4, 4), (2, 2, 1), (0, 0, 0), (0, 1, 2), -1)
    assert first.pencil(-2) == first.pencil(1)
    assert first.resized(-1, 5) == first.resized(2, 5)
    with pytest.raises(PatternError, match="axis 0 is split over 2 ranks"):
        PencilGeometry((4, 4, 4), (2, 2, 1), (0, 0, 0), (0, 1, 2), 0)
    with pytest.raises(PatternError, match="no single transpose"):
        transpose_boxes(first, first.pencil(1).pencil(0))


@pytest.mark.parametrize(
    ("size", "free", "expected"),
    [
        (4, (0, 0, 1), (2, 2, 1)),
        (6, (0, 0, 1), (3, 2, 1)),
        (7, (0, 0, 1), (7, 1, 1)),
        (12, (0, 0, 0), (3, 2, 2)),
        (12, (0, 4, 1), (3, 4, 1)),
        (1, (0, 0, 1), (1, 1, 1)),
    ],
)
def test_grids_are_those_of_compute_dims(size, free, expected):
    assert balanced(size, free) == expected


@given(st.integers(1, 96), st.integers(1, 4))
def test_grids_use_every_rank(size, places):
    sizes = balanced(size, (0,) * places)
    assert math.prod(sizes) == size
    assert list(sizes) == sorted(sizes, reverse=True)


def test_grid_arguments():
    shape = (16, 16, 16)
    assert choose_grid(4, shape, (2,)) == (2, 2, 1)
    assert choose_grid(4, shape, (2,), (4,)) == (4, 1, 1)
    assert choose_grid(4, shape, (2,), (-1,)) == (4, 1, 1)
    assert choose_grid(4, shape, (2,), (1, -1)) == (1, 4, 1)
    assert choose_grid(4, shape, (2,), slab=True) == (4, 1, 1)
    assert choose_grid(4, shape, (2,), slab=-2) == (1, 4, 1)
    assert choose_grid(4, shape, (2,), "auto") == (4, 1, 1)
    assert choose_grid(24, shape, (2,), "auto") == (6, 4, 1)
    assert choose_grid(4, shape, (1, 2)) == (4, 1, 1)
    assert choose_grid(64, (4, 1024, 1024), (2,)) == (4, 16, 1)  # (8, 8, 1) leaves half idle
    assert choose_grid(64, (3, 1024, 5), (2,)) == (2, 32, 1)
    assert choose_grid(12, (2, 2, 9), (2,)) == (3, 4, 1)  # some are idle whatever one does


@pytest.mark.parametrize(("arguments", "words"), [
    ({"grid": (2, 1, 2)}, "splits axis 2"), ({"slab": 2}, "slab=2"), ({"slab": 5}, "slab=5"),
])  # fmt: skip
def test_grids_that_do_not_fit_are_refused(arguments, words):
    with pytest.raises(PatternError, match=words):
        choose_grid(4, (16, 16, 16), (2,), **arguments)


def test_memory_order_keeps_the_planes_of_a_transform_together():
    assert memory_order(3, (2, 1)) == (0, 1, 2)
    assert memory_order(3, (0,)) == (1, 0, 2)
    assert memory_order(4, (0,)) == (1, 2, 0, 3)


@pytest.mark.parametrize("forward", [True, False])
def test_one_transform_has_the_factor_of_all_that_are_complex(forward):
    geometry = PencilGeometry((6, 8, 10, 12), (1, 2, 1, 1), (0, 1, 0, 0), (0, 1, 2, 3), 3)
    names = {3: "dct2", 2: "r2c", 0: "c2c", 1: "c2c"}
    transforms = [
        AxisTransform(axis, (kind, True), inverse_of((kind, True)), n, n)
        for (axis, kind), n in zip(names.items(), (12, 10, 6, 8), strict=True)
    ]
    stages = plan_stages(geometry, transforms, np.dtype(float))
    steps = {step.axis: step for each in chains(stages, forward) for step in each}
    assert [steps[axis].normalization(2) for axis in range(4)] == [(0, 1), (0, 1), (2, 48), (2, 1)]
    assert steps[2].normalization(0) == (0, 1)


@pytest.mark.parametrize(
    ("sizes", "shape", "near", "expected"),
    [
        ((4, 3, 1), (9, 9, 9), 4, (3, 4, 1)),
        ((4, 3, 1), (9, 9, 9), 3, (4, 3, 1)),
        ((4, 3, 1), (9, 9, 9), 6, (4, 3, 1)),
        ((3, 2, 1), (9, 9, 9), 3, (2, 3, 1)),
        ((3, 2, 1), (9, 2, 9), 3, (3, 2, 1)),  # a rank would have nothing
        ((1, 4, 3), (9, 9, 9), 2, (1, 6, 2)),
        ((5, 3, 1), (9, 9, 9), 2, (5, 3, 1)),  # nothing fits
        ((12, 1, 1), (12, 9, 9), 4, (12, 1, 1)),
        ((4, 3, 1), (9, 9, 9), 0, (4, 3, 1)),
        ((4, 4, 3, 1), (9, 9, 9, 9), 8, (4, 3, 4, 1)),
    ],
)
def test_the_last_grid_axis_stays_on_a_node(sizes, shape, near, expected):
    assert on_nodes(sizes, shape, near) == expected
