"""How many elements a run has along each axis. Pure: no communication."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from onesided.apps.failures import CommandError
from onesided.apps.mini.scaling import Stage
from onesided.apps.minife.mesh import Triple, fits

LEAST = 2  # elements along an axis, so that there is a node inside
SHARE = 8  # elements of a rank on the coarsest mesh at least, where its size is not given
LEVELS = 3  # meshes, where nothing else is wanted and so many are possible


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


def of_stage(elements: Triple, stage: Stage) -> Triple:
    """Local. The mesh of a stage: where nothing is scaled, the size is that of the whole mesh."""
    return grown(elements, stage.shares) if stage.scaling else elements


def grown(elements: Triple, shares: int) -> Triple:
    """Local. A mesh of so many times the elements, as near to a cube as can be."""
    lengths = list(elements)
    for factor in reversed(_factors(shares)):  # the largest first
        lengths[lengths.index(min(lengths))] *= factor
    a, b, c = lengths
    return a, b, c


def halved(finest: Triple, count: int | None, ranks: int = 1) -> list[Triple]:
    """Local. From coarse to fine, each with half the elements of the next along each axis.

    As many as are usual and possible on so many ranks, unless a number is given;
    :class:`CommandError` where the coarsest has no node inside.
    """
    if count is None:
        count = 1
        while count < LEVELS and _coarse(finest, count, ranks):
            count += 1
    found = []
    for power in range(count - 1, -1, -1):
        a, b, c = (length >> power for length in finest)
        if min(a, b, c) < LEAST:
            raise CommandError(
                f"--levels {count} leaves {min(a, b, c)} elements along an axis of "
                f"{words(finest)}; {LEAST} are needed"
            )
        found.append((a, b, c))
    return found


def _coarse(finest: Triple, power: int, ranks: int) -> bool:
    """Local. Whether a mesh is still one for these ranks when it is halved so many times."""
    lengths = [length >> power for length in finest]
    a, b, c = lengths
    roomy = min(lengths) >= LEAST and prod(lengths) >= SHARE * ranks
    return roomy and fits((a, b, c), ranks)


def words(elements: Triple) -> str:
    """Local. For a person."""
    return " x ".join(map(str, elements))


def _factors(number: int) -> list[int]:
    """Local. Prime factors, ascending."""
    found, factor = [], 2
    while number > 1:
        while number % factor == 0:
            found.append(factor)
            number //= factor
        factor += 1
    return found
