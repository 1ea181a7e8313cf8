"""Faces and boxes of halos; no MPI."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from halo_data import World, same
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from onesided.collectives.errors import PatternError
from onesided.collectives.halo.decomposition import (
    Decomposition,
    bytes_off,
    choose_dims,
    order_by_node,
    read_sizes,
)
from onesided.collectives.halo.faces import (
    CORNERS,
    GHOSTS,
    Place,
    block_faces,
    grid_faces,
    is_empty,
    links_between,
    listed_faces,
    read_width,
)

few = settings(max_examples=40)


@st.composite
def worlds(draw):
    """Blocks that have what their neighbors need."""
    axes = draw(st.integers(1, 4))
    gridded = draw(st.integers(1, axes))
    most = 3 if axes < 4 else 2
    layers = [draw(st.tuples(st.integers(0, 2), st.integers(0, 2))) for _ in range(gridded)]
    sizes = []
    for axis in range(axes):
        parts = draw(st.integers(1, most)) if axis < gridded else 1
        least = max(layers[axis]) if axis < gridded else 1
        sizes.append(tuple(draw(st.integers(least, least + 2)) for _ in range(parts)))
    layers += [(0, 0)] * (axes - gridded)
    periods = tuple(draw(st.booleans()) for _ in range(gridded))
    return World(tuple(sizes), periods, tuple(layers))


@st.composite
def thin_worlds(draw):
    """Blocks of any size: thinner than their halos, without layers, around an axis many times."""
    axes = draw(st.integers(1, 3))
    most = (6, 3, 2)[axes - 1]
    layers = tuple(draw(st.tuples(st.integers(0, 4), st.integers(0, 4))) for _ in range(axes))
    some = st.lists(st.integers(0, 3), min_size=1, max_size=most).filter(any)
    sizes = tuple(tuple(draw(some)) for _ in range(axes))
    return World(sizes, tuple(draw(st.booleans()) for _ in range(axes)), layers)


def faces_of(world, ghosts, corners):
    """The faces of all ranks, which know their own arrays only."""
    return [
        grid_faces(world.shape(coords), world.layers, Place(world.dims, world.periods, coords),
                   ghosts, corners)
        for coords in world.coordinates
    ]


def faces_between(world, ghosts, corners, more=None):
    """The faces of all ranks, which know the sizes of all blocks."""
    starts = [(0, *itertools.accumulate(sizes)) for sizes in world.sizes]
    found = []
    for coords in world.coordinates:
        links = [links_between(starts[axis], place, world.layers[axis], world.periods[axis],
                               0 if more is None else more[axis])
                 for axis, place in enumerate(coords)]
        found.append(block_faces(links, (), (), Place(world.dims, world.periods, coords), ghosts,
                                 corners))
    return found


def are_apart(faces):
    """No ghost comes from two, and none is sent before it has come."""
    last = max((part.stop for face in faces for part in (*face.send, *face.recv)), default=0)
    came = np.full((last,) * max((len(face.recv) for face in faces), default=1), -1)
    for face in faces:
        if (came[face.recv] >= 0).any():
            return False
        came[face.recv] = face.stage
    return all((came[face.send] < face.stage).all() for face in faces)


def exchanged(arrays, everyone):
    """What the ranks' arrays show afterwards; every message is expected, none is missing."""
    for stage in sorted({face.stage for faces in everyone for face in faces}):
        now = [(rank, face) for rank, faces in enumerate(everyone) for face in faces
               if face.stage == stage]
        out = {(rank, face.rank, face.send_key): arrays[rank][face.send].copy()
               for rank, face in now if not is_empty(face.send)}
        for rank, face in now:
            if not is_empty(face.recv):
                arrays[rank][face.recv] = out.pop((face.rank, rank, face.recv_key))
        assert not out


@few
@given(worlds(), st.sampled_from(sorted(GHOSTS)), st.sampled_from(CORNERS))
def test_grids(world, ghosts, corners):
    everyone = faces_of(world, ghosts, corners)
    assert all(map(are_apart, everyone))
    arrays = [world.before(coords, 1) for coords in world.coordinates]
    exchanged(arrays, everyone)
    for array, coords in zip(arrays, world.coordinates, strict=True):
        assert same(array, world.after(coords, 1, ghosts)), coords


@few
@given(thin_worlds(), st.sampled_from(sorted(GHOSTS)), st.sampled_from(CORNERS))
def test_blocks_of_any_size(world, ghosts, corners):
    """Every ghost of a block that has layers comes, from whoever owns it; no other block is
    told anything."""
    everyone = faces_between(world, ghosts, corners)
    assert all(map(are_apart, everyone))
    arrays = [world.before(coords, 1) for coords in world.coordinates]
    exchanged(arrays, everyone)
    for array, coords, faces in zip(arrays, world.coordinates, everyone, strict=True):
        if all(world.sizes[axis][place] for axis, place in enumerate(coords)):
            assert same(array, world.after(coords, 1, ghosts)), coords
        else:
            assert not faces


@few
@given(worlds(), st.sampled_from(sorted(GHOSTS)), st.sampled_from(CORNERS))
def test_what_one_rank_knows_is_enough(world, ghosts, corners):
    """Where blocks have what their neighbors need, both ways find the same boxes."""
    assume(len(world.periods) == len(world.sizes) and all(map(min, world.sizes)))
    known = [[(face.rank, face.send, face.recv, face.stage) for face in faces]
             for faces in faces_between(world, ghosts, corners)]
    assert known == [[(face.rank, face.send, face.recv, face.stage) for face in faces]
                     for faces in faces_of(world, ghosts, corners)]


@few
@given(thin_worlds(), st.lists(st.booleans(), min_size=3, max_size=3))
def test_a_point_more_at_the_end(world, along):
    """The last block that has layers gets it; faces of such a field are those of any other."""
    more = [int(one and not periodic)
            for one, periodic in zip(along, world.periods, strict=False)]
    last = [max(n for n, size in enumerate(sizes) if size) for sizes in world.sizes]
    sizes = tuple(tuple(size + (place == last[axis]) * more[axis]
                        for place, size in enumerate(sizes))
                  for axis, sizes in enumerate(world.sizes))
    longer = World(sizes, world.periods, world.layers)
    everyone = faces_between(world, "all", "direct", more)
    arrays = [longer.before(coords, 1) for coords in longer.coordinates]
    exchanged(arrays, everyone)
    for array, coords in zip(arrays, longer.coordinates, strict=True):
        if all(sizes[axis][place] for axis, place in enumerate(coords)):
            assert same(array, longer.after(coords, 1)), coords
    usual = faces_between(world, "all", "direct")
    assert [[(face.rank, face.send_key) for face in faces] for faces in everyone] == [
        [(face.rank, face.send_key) for face in faces] for faces in usual]


@pytest.mark.parametrize(("shape", "ranks", "wanted"), [
    ((64, 64), 4, (4, 1)), ((2, 3), 6, (2, 3)), ((1, 8), 4, (1, 4)), ((2, 2), 16, (4, 4)),
    ((3,), 5, (5,)), ((4, 64), 4, (1, 4)),
])
def test_dims_that_are_chosen(shape, ranks, wanted):
    assert choose_dims(shape, ranks, ((2, 2),) * len(shape)) == wanted


def test_the_reference_is_that_of_pad():
    """One periodic rank: the array as NumPy pads it."""
    world = World(((4,), (5,)), (True, True), ((2, 1), (1, 3)))
    padded = np.pad(world.values(3), world.layers, mode="wrap")
    assert same(world.after((0, 0), 3), padded)
    ended = World(((4,), (5,)), (False, False), ((2, 1), (1, 3)))
    padded = np.pad(world.values(3), world.layers, constant_values=113)
    assert same(ended.after((0, 0), 3), padded)


def decomposed(shape, nodes, sizes=None, dims=None, rank=0):
    return Decomposition(shape, 1, rank, nodes, False, dims, None, sizes, True)


@few
@given(st.integers(1, 50), st.integers(1, 60))
def test_cuts(extent, parts):
    (starts,) = decomposed((extent,), [0] * parts).starts
    assert (starts[0], starts[-1], len(starts)) == (0, extent, parts + 1)
    sizes = [stop - start for start, stop in itertools.pairwise(starts)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1


@few
@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.data())
def test_blocks_in_any_order_of_ranks(dims, data):
    """Every rank has one place; no order that is chosen has more faces between nodes."""
    size = math.prod(dims)
    per_node = data.draw(st.sampled_from([n for n in range(1, size + 1) if size % n == 0]))
    nodes = data.draw(st.permutations([rank // per_node for rank in range(size)]))
    periodic = data.draw(st.lists(st.booleans(), min_size=len(dims), max_size=len(dims)))
    areas = data.draw(st.lists(st.integers(1, 9), min_size=len(dims), max_size=len(dims)))
    order = order_by_node(dims, periodic, areas, nodes)
    if order:
        assert sorted(order) == list(range(size))
        placed = [nodes[rank] for rank in order]
        assert bytes_off(dims, periodic, areas, placed) < bytes_off(dims, periodic, areas, nodes)
    for rank in range(size):
        here = decomposed([3 * n + 1 for n in dims], nodes, dims=dims, rank=rank)
        assert here.place.neighbor((0,) * len(dims)) == rank
        assert here.part(rank, here.shape) == here.box


@pytest.mark.parametrize(("dims", "per_node", "before", "after"), [
    ((4, 4), 4, 24, 16), ((2, 8), 4, 20, 12), ((4, 4, 4), 16, 96, 64), ((8, 8), 16, 48, 32),
    ((16,), 4, 6, 6), ((3, 3), 2, 18, 18),
])  # fmt: skip
def test_faces_between_nodes(dims, per_node, before, after):
    """Counted: a grid that is not periodic, ranks in order on nodes of one size."""
    nodes = [rank // per_node for rank in range(math.prod(dims))]
    order = order_by_node(dims, [False] * len(dims), [1] * len(dims), nodes)
    placed = [nodes[rank] for rank in order or range(len(nodes))]
    assert bytes_off(dims, [False] * len(dims), [1] * len(dims), nodes) == before
    assert bytes_off(dims, [False] * len(dims), [1] * len(dims), placed) == after


def test_sizes_of_blocks():
    assert read_sizes([[2, 5], (3,)], (7, 3)) == ((2, 5), (3,))
    blocks = decomposed((7, 3), [0, 0], [[2, 5], [3]])
    assert [blocks.part(rank, (7, 3))[0] for rank in range(2)] == [slice(0, 2), slice(2, 7)]
    refused("not the cells of blocks", read_sizes, [[7]], (7, 3))
    refused("a grid with 7", read_sizes, [[3, 3], [3]], (7, 3))
    blocks = decomposed((7, 3), [0] * 3, [[0, 7, 0], [3]])
    staggered = [blocks.part(rank, (8, 4))[0] for rank in range(3)]
    assert staggered == [slice(0, 0), slice(0, 8), slice(7, 7)]
    refused("a grid with 7", read_sizes, [[8, -1], [3]], (7, 3))


def refused(text, call, *arguments):
    with pytest.raises(PatternError, match=text):
        call(*arguments)


def test_bad_widths():
    for width in (-1, "2", 1.5, [1], [1, 2, 3], [(1, 2, 3), 1], [1, None], [(1, -1), 0], None):
        refused("width", read_width, width, (8, 8), 2)
    refused("the grid has 1 axes only", read_width, [1, 1], (8, 8), 1)
    refused("4 and 5 ghost layers on axis 0", read_width, [(4, 5), 0], (8, 8), 2)
    assert read_width(2, (8, 8), 1) == ((2, 2), (0, 0))
    assert read_width(np.array([1, 2]), (8, 8), 2) == ((1, 1), (2, 2))


def test_blocks_that_are_too_small():
    here = Place((2, 1), (True, False), (0, 0))
    refused("1 layers of its own on axis 0, and a neighbor needs 2", grid_faces, (5, 9), 2, here)
    assert len(grid_faces((9, 5), 2, here)) == 2  # nobody needs anything along axis 1
    refused("a grid of 2 axes", grid_faces, (9,), 2, here)


INSIDE, BELOW = (slice(2, 4), slice(2, 6)), (slice(0, 2), slice(2, 6))


@pytest.mark.parametrize(("entry", "text"), [
    (3, "neighbor 0 is 3"),
    ((1, INSIDE), "neighbor 0 is"),
    ((4, INSIDE, BELOW), "neighbor 0 is rank 4; there are 4 ranks"),
    ((-7, INSIDE, BELOW), "neighbor 0 is rank -7"),
    ((1.0, INSIDE, BELOW), "the rank of neighbor 0 is 1.0"),
    ((1, (slice(2, 9), slice(2, 6)), BELOW), "out of bounds of its extent 8"),
    ((1, INSIDE, (slice(-2, 0),)), "out of bounds"),
    ((1, INSIDE, (slice(0, 2, 2),)), "step 2"),
    ((1, INSIDE, (slice(2),) * 3), "3 slices"),
    ((1, INSIDE, 5), "the receive box for neighbor 0 .* is 5"),
    ((1, (7, 8), BELOW), "not a tuple of slices"),
    ((1, INSIDE, (slice(0, 1.5),)), "not integers"),
    ((1, INSIDE, BELOW, "north"), "the tag of neighbor 0"),
    ((1, INSIDE, BELOW, 0, 1), "neighbor 0 is"),
])
def test_bad_neighbors(entry, text):
    refused(text, listed_faces, [entry], (8, 8), 4)


def test_bad_lists_of_neighbors():
    refused("not a list", listed_faces, 3, (8, 8), 4)
    refused("tag 5 occurs twice for rank 1", listed_faces,
            [(1, INSIDE, None, 5), (1, None, BELOW, 5)], (8, 8), 4)
    refused("tag 1 occurs twice", listed_faces,
            [(1, INSIDE, None, 1), (1, None, BELOW)], (8, 8), 4)


def test_boxes_that_overlap():
    def check(*neighbors):
        listed_faces(neighbors, (8, 8), 4)

    check((1, INSIDE, BELOW), (2, INSIDE, None), (1, INSIDE, (slice(6, 8),)))  # sends may overlap
    refused("receive blocks from rank 1 .* and from rank 2 .* overlap", check,
            (1, INSIDE, BELOW), (2, None, (slice(1, 2), slice(5, 8))))
    refused("receive box from rank 2 .* and the send box for rank 1 .* overlap", check,
            (1, INSIDE, BELOW), (2, None, (slice(3, 8), slice(5, 8))))


def test_ways_to_write_a_box():
    whole = (slice(1, 3), slice(0, 8))
    for box in [(slice(1, 3),), slice(1, 3), [slice(1, 3)], (slice(1, 3), slice(None))]:
        assert listed_faces([(1, box, None)], (8, 8), 4)[0].send == whole


@few
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30)), max_size=12))
def test_tags_default_to_the_order(entries):
    """Entries without a tag count those of the same rank."""
    assume(entries)
    neighbors = [(rank, slice(3 * n, 3 * n + 1), slice(3 * n + 1, 3 * n + 2))
                 for n, (rank, _) in enumerate(entries)]
    found = listed_faces(neighbors, (40,), 4)
    assert are_apart(found)
    for rank in range(4):
        keys = [face.send_key for face in found if face.rank == rank]
        assert keys == list(range(len(keys)))
        assert keys == [face.recv_key for face in found if face.rank == rank]
