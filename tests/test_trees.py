"""Broadcasts without MPI: trees, whose ranks are served once, and segments of rounds in a row."""

from __future__ import annotations

from itertools import pairwise

import pytest

from onesided.apps.papers.forecast import steps
from onesided.collectives import MethodError, PatternError
from onesided.collectives.broadcast.board import SHORT, TWICE, Segments
from onesided.collectives.trees import (
    Place,
    children,
    in_binomial_tree,
    in_chain,
    leaders,
    orders,
    parent,
    ranks_from,
)

SIZES = [*range(1, 18), 31, 32, 33, 96]


@pytest.mark.parametrize("order", orders())
@pytest.mark.parametrize("size", SIZES)
def test_steps_are_those_of_a_simulation(size, order):
    """In each step every rank that has the data serves its next child."""
    todo = {0: list(children(0, size, 0, order))}
    step = 0
    while any(todo.values()):
        step += 1
        for rank in [rank for rank, left in todo.items() if left]:
            child = todo[rank].pop(0)
            todo[child] = list(children(child, size, 0, order))
    assert steps(size, order) == step


def test_the_steps_of_the_paper():
    assert [steps(size, "low-bit-first") for size in (8, 16, 32, 96)] == [6, 10, 15, 22]
    assert [steps(size) for size in (8, 16, 32, 96)] == [3, 4, 5, 7]


@pytest.mark.parametrize("size", SIZES)
def test_no_order_needs_fewer_steps_than_the_default(size):
    assert steps(size) == (size - 1).bit_length() <= steps(size, "low-bit-first")


def test_the_order_of_the_children():
    assert children(3, 8, 3) == (7, 5, 4)
    assert children(3, 8, 3, "low-bit-first") == (4, 5, 7)
    assert children(4, 7, 0) == (6, 5)


@pytest.mark.parametrize(("rank", "size", "root"), [(0, 0, 0), (4, 4, 0), (-1, 4, 0), (0, 4, 4)])
def test_ranks_outside_the_tree(rank, size, root):
    with pytest.raises(PatternError, match=f"rank {rank} and root {root}"):
        children(rank, size, root)
    with pytest.raises(PatternError, match=f"of {size} ranks"):
        parent(rank, size, root)


def test_an_unknown_order():
    for call in (lambda: children(0, 2, 0, "random"), lambda: steps(2, "random")):
        with pytest.raises(MethodError, match="largest-first, low-bit-first"):
            call()


# -- places among any ranks ----------------------------------------------------------------------


@pytest.mark.parametrize("order", orders())
@pytest.mark.parametrize("size", SIZES)
def test_every_rank_is_reached_once_from_its_parent(size, order):
    root = size // 2
    ranks = ranks_from(root, size)
    assert sorted(ranks) == list(range(size))
    for place_of in (lambda rank: in_binomial_tree(ranks, rank, order),
                     lambda rank: in_chain(ranks, rank)):
        places = {rank: place_of(rank) for rank in ranks}
        assert places[ranks[0]].parent is None
        served = [child for rank in ranks for child in places[rank].children]
        assert sorted(served) == sorted(ranks[1:])
        for rank, place in places.items():
            assert all(places[child].parent == rank for child in place.children)
    for rank in ranks:  # as in the tree of all ranks
        place = in_binomial_tree(ranks, rank, order)
        assert place.children == children(rank, size, root, order)
        assert place.parent == parent(rank, size, root)


def test_a_rank_that_is_not_in_the_tree_has_no_place():
    assert in_binomial_tree([4, 2], 3) == in_chain([4, 2], 3) == Place(None, ())


def test_the_root_leads_its_node():
    nodes = [0, 0, 2, 2, 4, 4]  # by rank, the lowest rank of its node
    assert leaders(nodes, 0) == [0, 2, 4]
    assert leaders(nodes, 3) == [3, 4, 0]
    assert leaders(nodes, 4) == [4, 0, 2]
    assert leaders([0, 1, 0, 1], 2) == [2, 1]
    assert leaders([0], 0) == [0]


# -- segments -----------------------------------------------------------------------------------

LENGTHS = [0, 1, 7, 1000, SHORT, SHORT + 1, TWICE - 1, TWICE + 1, 10 * TWICE + 3, (1 << 31) + 5]


@pytest.mark.parametrize("nbytes", LENGTHS)
@pytest.mark.parametrize("most", [0, 1000, 1 << 19])
@pytest.mark.parametrize("unit", [1, 10_000])
def test_segments_of_rounds_in_a_row_share_a_ring(nbytes, most, unit):
    """They cover the data; one after the other has the next slot, and no two have the same one."""
    nbytes -= nbytes % unit
    segments = Segments.on_node(nbytes, max(most, nbytes // 1024) if most else 0, unit)
    parts = [segments.part(i) for i in range(segments.count)]
    assert parts[0].start == 0
    assert parts[-1].stop == nbytes
    assert all(a.stop == b.start for a, b in pairwise(parts))
    assert all(part.stop - part.start <= segments.size for part in parts)
    step = segments.room // segments.slots
    assert step >= segments.size
    for number in range(2 * segments.turns + 1):
        for i in range(segments.count):
            place = (number * segments.count + i) % segments.slots * step
            assert segments.place(number % segments.turns, i) == place
    assert segments.fit == (segments.slots >= 2 * segments.count)
    most_of_units = segments.slots * (unit - 1 if nbytes else 0)
    room = segments.room - most_of_units
    assert room <= min(max(4 * SHORT, 2 * nbytes + 32 * 128), 8 * TWICE + 4096)
    assert nbytes or room <= 4096
