"""The four patterns: who transfers to or from whom, and how many messages there are in an epoch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Route:
    """The ranks that a rank puts to or gets from, and those that do so with it, slot by slot.

    Slot k of a rank's window belongs to the rank ``incoming[k]``, whose ``outgoing[k]`` it is.
    """

    outgoing: Sequence[int] = ()
    incoming: Sequence[int] = ()

    @property
    def slots(self) -> int:
        """Local. How many there are."""
        return max(len(self.outgoing), len(self.incoming))


@dataclass(frozen=True)
class Pattern:
    """``many``: an epoch has many messages of every thread, not one.

    ``flush``: under ``lock_all`` every operation is flushed. ``ranks``: of a job, where so many
    were asked for; ``route``: of a rank of so many, with so many neighbours. ``from_one``: sizes
    between 1 and 16 bytes are measured, too.
    """

    name: str
    many: bool
    flush: bool
    from_one: bool
    ranks: Callable[[int], int]
    route: Callable[[int, int, int], Route]


def _two(asked: int) -> int:
    return 2


def _even(asked: int) -> int:
    return max(2, asked - asked % 2)


def _at_least_two(asked: int) -> int:
    return max(2, asked)


def paired(rank: int, ranks: int, neighbours: int) -> Route:
    """Local. The first half of the ranks transfers, each with one of the second half."""
    half = ranks // 2
    if rank < half:
        return Route(outgoing=[rank + half])
    return Route(incoming=[rank - half])


def surrounded(rank: int, ranks: int, neighbours: int) -> Route:
    """Local. Every rank transfers with the ranks at distances 1, -1, 2, -2 ... around a ring.

    Where there are fewer others than neighbours, they come again, each time with a slot of its own.
    """
    steps = distances(ranks, neighbours)
    return Route(
        [(rank + step) % ranks for step in steps],
        [(rank - step) % ranks for step in steps],
    )


def distances(ranks: int, neighbours: int) -> list[int]:
    """Local. How far the neighbours of every rank are, all of them other ranks."""
    near = dict.fromkeys(
        step % ranks for far in range(1, ranks) for step in (far, -far) if step % ranks
    )
    order = list(near)
    return [order[number % len(order)] for number in range(neighbours)]


#: By name, in the order of the paper.
PATTERNS: Mapping[str, Pattern] = {
    each.name: each
    for each in (
        Pattern("latency", False, False, False, _two, paired),
        Pattern("bandwidth", True, False, False, _two, paired),
        Pattern("rate-pairs", True, True, True, _even, paired),
        Pattern("rate-halo", True, True, True, _at_least_two, surrounded),
    )
}
