"""Binomial trees: every rank is served once, by its parent, in as many steps as is said."""

from __future__ import annotations

import pytest

from onesided.apps.papers import broadcast
from onesided.apps.papers.forecast import steps
from onesided.collectives import MethodError, PatternError
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
def test_every_rank_is_served_once_by_its_parent(size, order):
    for root in {0, 1 % size, size // 2, size - 1}:
        served = {}
        waiting = [root]
        while waiting:
            rank = waiting.pop(0)
            for child in children(rank, size, root, order):
                assert child not in served
                served[child] = rank
                waiting.append(child)
        assert served == {rank: parent(rank, size, root) for rank in range(size) if rank != root}
        assert parent(root, size, root) is None


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
    assert children(1, 8, 0) == ()
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
    with pytest.raises(PatternError, match="0 ranks"):
        steps(0)


def test_the_command_line_has_these_orders():
    assert broadcast.ORDERS == orders()


# -- places among any ranks ----------------------------------------------------------------------


@pytest.mark.parametrize("order", ["largest-first", "low-bit-first"])
@pytest.mark.parametrize("size", [1, 2, 3, 8, 13, 32])
def test_every_rank_is_reached_once_from_its_parent(size, order):
    ranks = ranks_from(size // 2, size)
    assert sorted(ranks) == list(range(size))
    for place_of in (lambda rank: in_binomial_tree(ranks, rank, order),
                     lambda rank: in_chain(ranks, rank)):
        places = {rank: place_of(rank) for rank in ranks}
        assert places[ranks[0]].parent is None
        served = [child for rank in ranks for child in places[rank].children]
        assert sorted(served) == sorted(ranks[1:])
        for rank, place in places.items():
            assert all(places[child].parent == rank for child in place.children)


@pytest.mark.parametrize(("order", "most"), [("largest-first", 5), ("low-bit-first", 15)])
def test_steps_of_the_places(order, most):
    """One send per step and rank, over ranks that are not in their order."""
    ranks = [(7 * i + 3) % 32 for i in range(32)]
    reached = {ranks[0]: 0}
    waiting = [ranks[0]]
    for rank in waiting:
        for turn, child in enumerate(in_binomial_tree(ranks, rank, order).children, 1):
            reached[child] = reached[rank] + turn
            waiting.append(child)
    assert len(reached) == 32
    assert max(reached.values()) == most == steps(32, order)


def test_a_rank_that_is_not_in_the_tree_has_no_place():
    assert in_binomial_tree([4, 2], 3) == in_chain([4, 2], 3) == Place(None, ())


def test_the_root_leads_its_node():
    nodes = [0, 0, 2, 2, 4, 4]  # by rank, the lowest rank of its node
    assert leaders(nodes, 0) == [0, 2, 4]
    assert leaders(nodes, 3) == [3, 4, 0]
    assert leaders(nodes, 4) == [4, 0, 2]
    assert leaders([0, 1, 0, 1], 2) == [2, 1]
    assert leaders([0], 0) == [0]
