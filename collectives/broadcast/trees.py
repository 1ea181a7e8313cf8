"""Trees down which a broadcast travels, and who leads a node; no MPI.

A tree is over positions from 0, its root. Ranks take positions in their order, beginning with the
root of the broadcast: rank (root + position) mod p.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Tree:
    """By position, the children in the order in which they are served."""

    children: tuple[tuple[int, ...], ...]

    def parent(self, position: int) -> int | None:
        """The parent of a position, None for the root."""
        for above, children in enumerate(self.children):
            if position in children:
                return above
        return None

    def steps(self) -> int:
        """Steps until the last position has the data, with one send per step and position."""
        reached = {0: 0}
        waiting = [0]
        for position in waiting:
            for turn, child in enumerate(self.children[position], 1):
                reached[child] = reached[position] + turn
                waiting.append(child)
        return max(reached.values())


def _largest_first(child: int, bit: int, size: int) -> tuple[int, int]:
    return -min(bit, size - child), -bit


def _low_bit_first(child: int, bit: int, size: int) -> tuple[int, int]:
    return bit, 0


#: By name, where a child that differs in ``bit`` comes among its siblings.
ORDERS: dict[str, Callable[[int, int, int], tuple[int, int]]] = {
    "largest-first": _largest_first,
    "low-bit-first": _low_bit_first,
}

#: The order in which the deepest part of the tree is served first.
DEFAULT_ORDER = "largest-first"


def binomial(size: int, order: str = DEFAULT_ORDER) -> Tree:
    """The binomial tree: a child differs from its parent in one bit below the parent's lowest.

    ``largest-first`` serves the child with the largest subtree first and takes ceil(log2 size)
    steps. ``low-bit-first`` is the order of the paper's PutLoop, which begins with the lowest bit
    and takes 6, 10, 15 and 22 steps on 8, 16, 32 and 96 ranks.
    """
    key = ORDERS[order]
    everyone = []
    for position in range(size):
        children, bit = [], 1
        while position + bit < size and not position & bit:
            children.append((key(position + bit, bit, size), position + bit))
            bit *= 2
        everyone.append(tuple(child for _, child in sorted(children)))
    return Tree(tuple(everyone))


def chain(size: int) -> Tree:
    """Every position serves the next: each link carries the data once."""
    return Tree(tuple((i + 1,) if i + 1 < size else () for i in range(size)))


def flat(size: int) -> Tree:
    """The root serves all, one after the other."""
    return Tree((tuple(range(1, size)), *(() for _ in range(1, size))))


def leaders(first_on_node: Sequence[int], root: int) -> list[int]:
    """One rank per node, the root of the broadcast first, then in the order of the nodes.

    ``first_on_node``: by rank, the lowest rank of its node. The root leads its node, others are
    led by their lowest rank.
    """
    nodes = sorted(set(first_on_node))
    here = nodes.index(first_on_node[root])
    return [root, *nodes[here + 1 :], *nodes[:here]]


def ranks_from(size: int, root: int) -> list[int]:
    """The ranks by position."""
    return [(root + position) % size for position in range(size)]


@dataclass(frozen=True)
class Branch:
    """A rank's part of a tree: whom it hears from, and whom it serves, in order."""

    parent: int | None
    children: tuple[int, ...]


def branch(tree: Tree, ranks: Sequence[int], rank: int) -> Branch:
    """The part of ``rank`` where position i of the tree is ``ranks[i]``; none where it has none."""
    if rank not in ranks:
        return Branch(None, ())
    position = ranks.index(rank)
    above = tree.parent(position)
    return Branch(
        None if above is None else ranks[above],
        tuple(ranks[child] for child in tree.children[position]),
    )
