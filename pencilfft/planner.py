"""What carries out a plan is built here, and the process grid is measured where it is open."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from mpi4py import MPI

from onesided.collectives.agreement import agree, agreed
from onesided.collectives.errors import MPIError, ResourceError, UnsupportedError
from onesided.collectives.hints import ESTIMATE
from onesided.pencilfft.commons import Commons
from onesided.pencilfft.decomposition import array_in, grids
from onesided.pencilfft.engine import Course, Engine
from onesided.pencilfft.kernels.selection import MEASURE, Selection
from onesided.pencilfft.legs import Flight
from onesided.pencilfft.line import line_course
from onesided.pencilfft.pencil import Subcomm
from onesided.pencilfft.settings import Settings

#: Rounds of a grid at least, of which the best counts, and seconds at least: after a pause clocks
#: and caches are slow; and seconds after which no more rounds follow.
ROUNDS, LEAST, MOST = 5, 0.05, 0.5

#: By what part of its time a grid must beat those before it: they are what is expected.
MARGIN = 0.03

#: Most process grids to try.
MOST_GRIDS = 6


def build(
    comm: MPI.Intracomm,
    settings: Settings,
    selection: Selection,
    method: str,
    info: Mapping[str, str] | None,
    given: Sequence[MPI.Comm] | None,
    grid: tuple[int, ...],
) -> Engine:
    """Collective. What carries out a plan, on the ``given`` communicators, one for each axis, or
    on those of a grid, which plans share. Where nothing is measured, the method of the transposes
    is not either, unless ``info`` says so."""
    if settings.effort != MEASURE:
        info = {"effort": ESTIMATE, **(info or {})}
    if len(settings.shape) == 1:
        course = line_course(comm, settings)
    else:
        comms = given
        if comms is None:
            comms = Commons.of(comm).once(("grid", grid), lambda: Subcomm(comm, grid, False))
        course = Course.of(settings, comms)
    return Engine(comm, course, settings, selection, method, info)


def candidate_grids(size: int, shape: Sequence[int], whole: Iterable[int]) -> list[tuple[int, ...]]:
    """Local. Process grids for ``size`` ranks that leave the axes in ``whole`` alone.

    Grids that keep every rank busy come first, among them those that split fewer axes, which
    need fewer transposes, and then the most even ones.
    """
    kept = set(whole)
    free = [int(axis in kept) for axis in range(len(shape))]
    if 0 not in free:
        return [tuple(free)]

    def rank(grid: tuple[int, ...]) -> tuple[int, int, int]:
        idle = sum(part > length for part, length in zip(grid, shape, strict=True))
        return idle, sum(part > 1 for part in grid), max(grid)

    return sorted(grids(size, free), key=rank)[:MOST_GRIDS]


def fastest(
    comm: MPI.Intracomm,
    candidates: Sequence[tuple[int, ...]],
    make: Callable[[tuple[int, ...]], Engine],
) -> tuple[int, ...]:
    """Collective. The grid on which a forward and a backward transform take the least time
    together, by the slowest rank.

    Grids that this MPI or machine cannot serve are left out; if none can be served, all ranks
    raise UnsupportedError.
    """
    if len(candidates) == 1:
        return candidates[0]
    best, bound = None, math.inf
    refusal: Exception | None = None
    for grid in candidates:
        try:
            engine = make(grid)
        except (UnsupportedError, ResourceError, MPIError) as error:
            refusal = error
            continue
        try:
            cost = seconds_of(comm, engine)
        except Exception:  # that of all ranks
            engine.free()
            raise
        engine.free()
        if cost < bound:
            best, bound = grid, (1 - MARGIN) * cost
    if best is None:
        raise UnsupportedError(f"no process grid works here: {refusal}") from refusal
    return best


def seconds_of(comm: MPI.Intracomm, engine: Engine) -> float:
    """Collective. Seconds of a forward and a backward transform, on the slowest rank."""
    with agreed(comm, "a measurement"):
        sides = [array_in(None, *engine.form(side)) for side in (False, True)]
        for array in sides:
            array.fill(0)
    flights = [Flight(engine, forward) for forward in (True, False)]
    times: list[float] = []
    while sum(times) < (MOST if len(times) < ROUNDS else LEAST):
        comm.Barrier()
        began = time.perf_counter()
        error: Exception | None = None
        for flight, source, target in zip(flights, sides, sides[::-1], strict=True):
            flight.load(source, target, 0)
            flight.begin()
            error = flight.wait() or error
        mine = time.perf_counter() - began if error is None else math.inf
        taken = float(comm.allreduce(mine, MPI.MAX))
        if taken == math.inf:
            agree(comm, error, "a measurement")
        times.append(taken)
    return min(times)
