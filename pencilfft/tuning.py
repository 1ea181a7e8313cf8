"""Choosing by measurement: process grid, method of the transposes, size of the blocks.

Each candidate is built, run forward and backward on scratch arrays, and freed again before the
next one, so that only one plan's memory is in use at a time. All ranks take the same decision,
by the slowest rank.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from mpi4py import MPI

from onesided.collectives import methods
from onesided.collectives.errors import ResourceError, UnsupportedError
from onesided.collectives.hints import Hints
from onesided.pencilfft.decomposition import factorizations
from onesided.pencilfft.engine import Engine, array_like
from onesided.pencilfft.passes import CACHE_BYTES

#: Timed rounds of a candidate, after one to warm up, and seconds after which no more follow.
ROUNDS, SECONDS = 3, 0.5

#: Bytes of a block among which to choose, and of local data below which there is no choice.
BLOCK_BYTES = (CACHE_BYTES // 4, CACHE_BYTES // 2, CACHE_BYTES, 2 * CACHE_BYTES)
LEAST_BYTES = 2 * CACHE_BYTES

#: Most process grids to try.
MOST_GRIDS = 6


@dataclass(frozen=True)
class Choice:
    """What a plan leaves open until it is measured, decided."""

    grid: tuple[int, ...]
    method: str
    cache_bytes: int = CACHE_BYTES


def candidate_methods(hints: Hints) -> list[str]:
    """Local. The methods among which "auto" chooses, see :func:`onesided.collectives.methods`."""
    return [
        method.name
        for method in methods().values()
        if method.candidate and (method.any_order or hints.strict)
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


def fastest(
    comm: MPI.Intracomm, choices: Sequence[Choice], make: Callable[[Choice], Engine]
) -> Choice:
    """Collective. The choice whose forward and backward transform take the least time together.

    Choices that this MPI or machine cannot serve are left out; if none can be served, the error
    of the last one is raised, by all ranks.
    """
    if len(choices) == 1:
        return choices[0]
    best, least = None, math.inf
    refusal: Exception | None = None
    for choice in choices:
        try:
            engine = make(choice)
        except (UnsupportedError, ResourceError) as error:
            refusal = error
            continue
        cost = _seconds(comm, engine)
        engine.free()
        if cost < least:
            best, least = choice, cost
    if best is None:
        raise UnsupportedError(f"no candidate works here: {refusal}") from refusal
    return best


def _seconds(comm: MPI.Intracomm, engine: Engine) -> float:
    """Collective. Of a forward and a backward transform, on the slowest rank."""
    sides = [array_like(*engine.form(side)) for side in (False, True)]
    for array in sides:
        array.fill(0)
    forward, backward = engine.run(True), engine.run(False)
    times: list[float] = []
    total = 0.0
    while len(times) < 1 + ROUNDS and total < SECONDS:
        comm.Barrier()
        began = time.perf_counter()
        forward(sides[0], sides[1], 0)
        backward(sides[1], sides[0], 0)
        mine = time.perf_counter() - began
        times.append(float(comm.allreduce(mine, MPI.MAX)))
        total += times[-1]
    return float(np.median(times[1:] or times))
