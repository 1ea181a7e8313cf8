"""Which meshes a run solves on how many ranks. Pure: no communication."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from onesided.apps.failures import CommandError
from onesided.apps.minife.bisection import Triple

LEAST = 2  # elements along an axis, so that there is a node inside


@dataclass(frozen=True)
class Place:
    """A mesh of so many elements along each axis on so many ranks, of a series if it has a name."""

    series: str
    ranks: int
    elements: Triple


def extents(numbers: Sequence[int]) -> Triple:
    """Local. What ``--size`` says; :class:`CommandError` for what is no mesh with a node inside."""
    if len(numbers) not in (1, 3):
        raise CommandError(f"--size has {len(numbers)} numbers: one for a cube, or three")
    a, b, c = numbers if len(numbers) == 3 else 3 * list(numbers)
    if min(a, b, c) < LEAST:
        raise CommandError(
            f"--size {' '.join(map(str, numbers))}: {LEAST} elements or more along each axis, "
            "else no node is inside"
        )
    return a, b, c


def levels(finest: Triple, count: int) -> list[Triple]:
    """Local. From coarse to fine, each with half the elements of the next along each axis."""
    found = []
    for power in range(count - 1, -1, -1):
        a, b, c = (length >> power for length in finest)
        if min(a, b, c) < LEAST:
            raise CommandError(
                f"--levels {count} leaves {min(a, b, c)} elements along an axis of "
                f"{' x '.join(map(str, finest))}; {LEAST} are needed"
            )
        found.append((a, b, c))
    return found


def _weak(elements: Triple, ranks: int) -> Triple:
    """As many elements per rank, in boxes that are as near to cubes as can be."""
    lengths = list(elements)
    rest, factor = ranks, 2
    factors = []
    while rest > 1:
        while rest % factor == 0:
            factors.append(factor)
            rest //= factor
        factor += 1
    for each in reversed(factors):  # the largest first, to the shortest axis
        axis = min(range(3), key=lambda axis: lengths[axis])
        lengths[axis] *= each
    a, b, c = lengths
    return a, b, c


def _strong(elements: Triple, ranks: int) -> Triple:
    return elements


SCALINGS: Mapping[str, Callable[[Triple, int], Triple]] = {"weak": _weak, "strong": _strong}


def places(series: Sequence[str], elements: Triple, counts: Sequence[int]) -> list[Place]:
    """Local. The meshes of all series, by series and number of ranks."""
    return [
        Place(name, ranks, SCALINGS[name](elements, ranks))
        for name in dict.fromkeys(series)
        for ranks in counts
    ]


def ones(size: int) -> list[int]:
    """Local. 1, 2, 4 ... and the number itself."""
    counts = {size}
    power = 1
    while power < size:
        counts.add(power)
        power *= 2
    return sorted(counts)
