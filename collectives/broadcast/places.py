"""Where a rank stands in a tree, and who leads a node; no MPI."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onesided.collectives.trees import LARGEST_FIRST, children, parent


@dataclass(frozen=True)
class Place:
    """Whom a rank hears from, and whom it serves, in order."""

    parent: int | None = None
    children: tuple[int, ...] = ()


def in_binomial_tree(ranks: Sequence[int], rank: int, order: str = LARGEST_FIRST) -> Place:
    """The place of ``rank`` in the binomial tree of ``ranks``, whose first one is the root.

    A rank that is not among them has neither parent nor children.
    """
    if rank not in ranks:
        return Place()
    position, size = ranks.index(rank), len(ranks)
    above = parent(position, size, 0)
    below = children(position, size, 0, order)
    return Place(None if above is None else ranks[above], tuple(ranks[child] for child in below))


def in_chain(ranks: Sequence[int], rank: int) -> Place:
    """The place of ``rank`` where each of ``ranks`` serves the next: a link carries data once."""
    if rank not in ranks:
        return Place()
    position = ranks.index(rank)
    above = ranks[position - 1] if position else None
    return Place(above, tuple(ranks[position + 1 : position + 2]))


def ranks_from(root: int, size: int) -> list[int]:
    """All ranks in their order, the root first."""
    return [(root + position) % size for position in range(size)]


def leaders(first_on_node: Sequence[int], root: int) -> list[int]:
    """One rank per node, the root of the broadcast first, then in the order of the nodes.

    ``first_on_node``: by rank, the lowest rank of its node. The root leads its node, others are
    led by their lowest rank.
    """
    nodes = sorted(set(first_on_node))
    here = nodes.index(first_on_node[root])
    return [root, *nodes[here + 1 :], *nodes[:here]]
