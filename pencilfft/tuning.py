"""Choosing by measurement: process grid, method of the transposes, size of the blocks.

Each candidate is built, run forward and backward on scratch arrays, and freed again before the
next one, so that only one plan's memory is in use at a time. All ranks take the same decision,
by the slowest rank.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from mpi4py import MPI

from onesided.collectives import methods
from onesided.collectives.errors import ResourceError, UnsupportedError
from onesided.collectives.hints import Hints
from onesided.collectives.tuning.auto import FAR_ONLY
from onesided.pencilfft.blocking import CACHE_BYTES, Blocking
from onesided.pencilfft.decomposition import factorizations
from onesided.pencilfft.engine import Engine, array_like

#: Rounds of a candidate of which the best counts, and seconds after which no more follow.
ROUNDS, SECONDS = 5, 0.5

#: Seconds for which a candidate runs before that: after a pause clocks and caches are slow.
LEAD = 0.04

#: How passes go about their blocks unless it is measured.
USUAL = Blocking()

#: Bytes of a block among which to choose, and of local data below which there is no choice.
BLOCK_BYTES = (CACHE_BYTES // 4, CACHE_BYTES // 2, CACHE_BYTES, 2 * CACHE_BYTES)
LEAST_BYTES = CACHE_BYTES

#: By what part of its time a candidate must beat those before it: they are what is expected.
MARGIN = 0.03

#: Bytes of local data below which candidates need no lead, and the ways of a pass no choice.
SMALL = CACHE_BYTES // 4

#: Most process grids to try.
MOST_GRIDS = 6


@dataclass(frozen=True)
class Choice:
    """What a plan leaves open until it is measured, decided."""

    grid: tuple[int, ...]
    method: str
    blocking: Blocking = USUAL


def candidate_methods(hints: Hints, far: bool) -> list[str]:
    """Local. The methods among which "auto" chooses, see :func:`onesided.collectives.methods`.

    ``far``: there are several nodes.
    """
    return [
        method.name
        for method in methods().values()
        if method.candidate and (method.any_order or hints.strict)
        and (far or method.name != FAR_ONLY)
    ]


def candidate_grids(size: int, shape: Sequence[int], whole: Iterable[int]) -> list[tuple[int, ...]]:
    """Local. Process grids for ``size`` ranks that leave the axes in ``whole`` alone.

    Grids that keep every rank busy come first, among them those that split fewer axes, which
    need fewer transposes, and then the most even ones.
    """
    free = [axis for axis in range(len(shape)) if axis not in set(whole)]
    if not free:
        return [(1,) * len(shape)]
    grids = []
    for parts in factorizations(size, len(free)):
        grid = [1] * len(shape)
        for axis, part in zip(free, parts, strict=True):
            grid[axis] = part
        grids.append(tuple(grid))

    def rank(grid: tuple[int, ...]) -> tuple[int, int, int]:
        idle = sum(part > length for part, length in zip(grid, shape, strict=True))
        return idle, sum(part > 1 for part in grid), max(grid)

    return sorted(grids, key=rank)[:MOST_GRIDS]


def candidate_ways(best: Blocking, size: int) -> list[Blocking]:
    """Local. Where passes over ``size`` bytes of local data may do their work."""
    if size < SMALL:
        return [best]
    both = (False, True)
    ways = [replace(best, in_source=a, in_target=b) for a in both for b in both]
    return sorted(ways, key=lambda way: way != best)


def candidate_sizes(best: Blocking, size: int) -> list[Blocking]:
    """Local. How large blocks of ``size`` bytes of local data may be."""
    if size < LEAST_BYTES:
        return [best]
    others = [nbytes for nbytes in BLOCK_BYTES if nbytes != best.nbytes]
    return [best, *(replace(best, nbytes=nbytes) for nbytes in others)]


def fastest(
    comm: MPI.Intracomm, choices: Sequence[Choice], make: Callable[[Choice], Engine], size: int
) -> Choice:
    """Collective. The choice whose forward and backward transform take the least time together.

    ``size`` is the number of bytes of a rank. Choices that this MPI or machine cannot serve are
    left out; if none can be served, the error of the last one is raised, by all ranks.
    """
    if len(choices) == 1:
        return choices[0]
    best, bound = None, math.inf
    refusal: Exception | None = None
    for choice in choices:
        try:
            engine = make(choice)
        except (UnsupportedError, ResourceError) as error:
            refusal = error
            continue
        cost = _seconds(comm, engine, 0.0 if size < SMALL else LEAD)
        engine.free()
        if cost < bound:
            best, bound = choice, (1 - MARGIN) * cost
    if best is None:
        raise UnsupportedError(f"no candidate works here: {refusal}") from refusal
    return best


def _seconds(comm: MPI.Intracomm, engine: Engine, lead: float) -> float:
    """Collective. Of a forward and a backward transform, on the slowest rank."""
    sides = [array_like(*engine.form(side)) for side in (False, True)]
    for array in sides:
        array.fill(0)
    forward, backward = engine.run(True), engine.run(False)
    first = math.inf
    times: list[float] = []
    total = 0.0
    while len(times) < ROUNDS and total < SECONDS:
        comm.Barrier()
        began = time.perf_counter()
        forward(sides[0], sides[1], 0)
        backward(sides[1], sides[0], 0)
        mine = time.perf_counter() - began
        taken = float(comm.allreduce(mine, MPI.MAX))
        total += taken
        first = min(first, taken)
        if total > lead:
            times.append(taken)
    return min(times, default=first)
