"""Trees: who sends to whom, and in which order; no MPI.

Ranks are counted from the root on: the relative rank of the root is 0. The parent of a relative
rank is that rank without its lowest set bit, so its children add one bit below it (paper 003,
Figure 7). The tree is the same in both orders; they differ in which child is served first. A rank
serves its children one after the other, one in a step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.collectives.errors import MethodError, PatternError

#: Bits from high to low, the default. A child with more ranks below it is served earlier; the last
#: rank is served after ceil(log2(size)) steps, and no order needs fewer.
LARGEST_FIRST = "largest-first"

#: Bits from low to high, as the paper prints it: the largest subtree is served last.
LOW_BIT_FIRST = "low-bit-first"

_ORDERS: dict[str, Callable[[list[int]], list[int]]] = {
    LARGEST_FIRST: lambda bits: bits[::-1],
    LOW_BIT_FIRST: lambda bits: bits,
}


def orders() -> tuple[str, ...]:
    """Local. The names of the orders, the default first."""
    return tuple(_ORDERS)


def check_order(order: str) -> None:
    """Local. Raise :class:`MethodError` for a name that is no order."""
    if order not in _ORDERS:
        raise MethodError(f"no child order {order!r}; the orders are {', '.join(_ORDERS)}")


def parent(rank: int, size: int, root: int) -> int | None:
    """Local. The rank that ``rank`` gets its data from; None for the root."""
    relative = _relative(rank, size, root)
    if relative == 0:
        return None
    return ((relative & (relative - 1)) + root) % size


def children(rank: int, size: int, root: int, order: str = LARGEST_FIRST) -> tuple[int, ...]:
    """Local. The ranks that ``rank`` serves, in the order in which it does."""
    check_order(order)
    relative = _relative(rank, size, root)
    return tuple((child + root) % size for child in _children(relative, size, order))


def _relative(rank: int, size: int, root: int) -> int:
    if size < 1 or not 0 <= rank < size or not 0 <= root < size:
        raise PatternError(f"rank {rank} and root {root} in a tree of {size} ranks")
    return (rank - root) % size


def _children(relative: int, size: int, order: str) -> list[int]:
    bits = []
    bit = 1
    while not relative & bit and relative + bit < size:
        bits.append(bit)
        bit <<= 1
    return [relative + bit for bit in _ORDERS[order](bits)]


# -- places among any ranks -----------------------------------------------------------------------


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


def leaders(first_on_node: Sequence[int] | NDArray[np.integer[Any]], root: int) -> list[int]:
    """One rank per node, the root of the broadcast first, then in the order of the nodes.

    ``first_on_node``: by rank, the lowest rank of its node. The root leads its node, others are
    led by their lowest rank.
    """
    nodes: list[int] = np.unique(first_on_node).tolist()
    here = nodes.index(int(first_on_node[root]))
    return [root, *nodes[here + 1 :], *nodes[:here]]
