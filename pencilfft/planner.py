"""From settings to what carries them out: what is left open is decided, the rest is built.

What is open: the process grid where it is "auto", the method of the transposes where it is, how
passes go about their blocks. Wisdom knows it of plans that have been measured. To measure, each
candidate is built, run forward and backward on scratch arrays, and freed again. All ranks take the
same decision, by the slowest rank.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
from mpi4py import MPI

from onesided.collectives import methods
from onesided.collectives.agreement import agree, agreed, from_root
from onesided.collectives.context import Context
from onesided.collectives.errors import MPIError, ResourceError, UnsupportedError
from onesided.collectives.hints import Hints
from onesided.collectives.registry import EXCHANGE, overruled
from onesided.collectives.tuning.situations import FAR_ONLY, usual_order
from onesided.pencilfft.commons import Commons
from onesided.pencilfft.decomposition import array_in, choose_grid, grids
from onesided.pencilfft.engine import Course, Engine
from onesided.pencilfft.kernels.selection import EFFORTS, ESTIMATE, MEASURE, Selection
from onesided.pencilfft.kernels.wisdom import with_lengths
from onesided.pencilfft.legs import Flight
from onesided.pencilfft.line import line_course
from onesided.pencilfft.passes import CACHE_BYTES, Blocking
from onesided.pencilfft.pencil import Subcomm
from onesided.pencilfft.settings import Settings

#: Of grid and method: to be measured.
AUTO = "auto"

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
    blocking: Blocking


class Planner:
    """Decides grid, method and size of blocks, and builds what carries out the plan.

    ``given`` holds communicators per axis that the caller has made, or None.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        settings: Settings,
        selection: Selection,
        method: str,
        info: Mapping[str, str] | None,
        hints: Hints,
        given: Sequence[MPI.Comm] | None,
    ) -> None:
        self._comm, self._settings, self._selection = comm, settings, selection
        self._method, self._info, self._hints, self._given = method, info, hints, given
        count = int(np.prod(settings.batch + settings.shape)) // comm.size
        self._nbytes = count * settings.spectral_dtype.itemsize
        if len(settings.shape) == 1:
            _require_line(settings)

    def plan(self, sizes: tuple[int, ...] | None) -> tuple[Choice, Engine]:
        """Collective. A choice, and what carries it out.

        ``sizes`` is the process grid, None where it is open. Wisdom may know the answer; that of
        rank 0 counts, for all. An answer that does not work here any more is looked for anew, by
        effort "measure", or else is guessed.
        """
        settings = self._settings
        if settings.effort == ESTIMATE:
            return self._usual(sizes, [])
        wanted, wisdom = with_lengths(self._words(sizes), settings.lengths), self._selection.wisdom
        backend = settings.backend
        # a warning may have been made an error
        recalled = from_root(self._comm, lambda: wisdom.recall(backend, wanted, EFFORTS))
        known = self._served(recalled, sizes)
        if settings.effort != MEASURE:
            return self._usual(sizes, [] if known is None else [known])
        if known is not None:
            try:
                return known, self.make(known)
            except (UnsupportedError, ResourceError, MPIError):  # agreed: nobody can
                pass
        best = self._measured(sizes)
        if self._comm.rank == 0:
            wisdom.learn(backend, wanted, json.dumps(asdict(best)), MEASURE)
        return best, self.make(best)

    def _served(self, text: str | None, sizes: tuple[int, ...] | None) -> Choice | None:
        """The choice that was written, if it is one for these ranks, axes and this grid."""
        try:
            words = json.loads(text or "")
            grid, blocking = tuple(map(int, words["grid"])), Blocking(**words["blocking"])
            choice = Choice(grid, str(words["method"]), blocking)
            known = choice.method in methods() and blocking.nbytes > 0
        except (ValueError, TypeError, KeyError):
            return None
        fits = math.prod(grid) == self._comm.size and len(grid) == len(self._settings.shape)
        return choice if known and fits and sizes in (None, grid) else None

    def _words(self, sizes: tuple[int, ...] | None) -> str:
        """What a decision holds for, beside lengths, processor and kernels: the call, the MPI, the
        nodes."""
        library = MPI.Get_library_version().split("\n")[0].strip(" \0")
        nodes = Context.of(self._comm).node()
        method = overruled().get(EXCHANGE, AUTO) if self._method == AUTO else self._method
        return (
            f"{self._settings.describe(lengths=False)} on grid {sizes or AUTO} by {method} "
            f"with {self._hints}; {library}; ranks per node {nodes.counts}"
        )

    def _names(self) -> list[str]:
        """Collective on the first call for a communicator. The methods to choose among, those that
        usually win first."""
        if self._method != AUTO or self._comm.size == 1:
            return [self._method]
        if EXCHANGE in overruled():
            return [overruled()[EXCHANGE]]
        far = not Context.of(self._comm).node(self._hints.ranks_per_node).alone
        usual = usual_order(far, True, 0)
        names = [
            method.name
            for method in methods().values()
            if method.candidate and (method.any_order or self._hints.strict)
            and (far or method.name != FAR_ONLY)
        ]
        return sorted(names, key=lambda n: usual.index(n) if n in usual else len(usual))

    def _usual(
        self, sizes: tuple[int, ...] | None, first: list[Choice]
    ) -> tuple[Choice, Engine]:
        """Collective. Without measuring: the first choice that works here."""
        settings = self._settings
        grid = sizes
        if grid is None:
            grid = choose_grid(self._comm.size, settings.shape, settings.axes[-1], AUTO)
        choices = [*first, *(Choice(grid, name, self._usual_blocking) for name in self._names())]
        for choice in choices[:-1]:
            try:
                return choice, self.make(choice)
            except (UnsupportedError, ResourceError, MPIError):
                continue
        return choices[-1], self.make(choices[-1])

    @property
    def _usual_blocking(self) -> Blocking:
        return replace(USUAL, in_source=True) if self._settings.overwrite_input else USUAL

    def _measured(self, sizes: tuple[int, ...] | None) -> Choice:
        settings, comm = self._settings, self._comm
        open_grids = candidate_grids(comm.size, settings.shape, settings.axes[-1])
        usual, tried = self._usual_blocking, open_grids if sizes is None else [sizes]
        choices = [Choice(grid, name, usual) for grid in tried for name in self._names()]
        best = fastest(comm, choices, self.make, self._nbytes)
        for candidates in (candidate_ways, candidate_sizes):
            ways = candidates(best.blocking, self._nbytes)
            others = [replace(best, blocking=way) for way in ways]
            best = fastest(comm, [best, *others], self.make, self._nbytes)
        return best

    def make(self, choice: Choice) -> Engine:
        """Collective. What carries out the plan, on the given communicators or those of the grid,
        which plans share."""
        comm, settings = self._comm, self._settings
        if len(settings.shape) == 1:
            course = line_course(comm, settings)
        else:
            comms = self._given
            if comms is None:
                comms = Commons.of(comm).once(
                    ("grid", choice.grid), lambda: Subcomm(comm, choice.grid, reorder=False)
                )
            course = Course.of(settings, comms)
        words = settings, self._selection, choice.method, self._info, choice.blocking
        return Engine(comm, course, *words)


def _require_line(settings: Settings) -> None:
    """Raise where a one-dimensional plan asks for what only more dimensions have."""
    step = settings.transforms[0]
    if settings.transposed_out or step.words not in ("c2c", "r2c") or step.physical != step.length:
        raise UnsupportedError(
            "one-dimensional arrays are transformed c2c or r2c, to the natural order, without "
            f"padding, not {settings.describe()}"
        )


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


def candidate_ways(best: Blocking, size: int) -> list[Blocking]:
    """Local. Where else passes over ``size`` bytes of local data may do their work."""
    if size < SMALL:
        return []
    both = (False, True)
    ways = [replace(best, in_source=a, in_target=b) for a in both for b in both]
    ways += [replace(way, straight=True) for way in ways if not way.in_source]
    return [way for way in ways if way != best]


def candidate_sizes(best: Blocking, size: int) -> list[Blocking]:
    """Local. How large blocks of ``size`` bytes of local data may be else."""
    if size < LEAST_BYTES:
        return []
    return [replace(best, nbytes=nbytes) for nbytes in BLOCK_BYTES if nbytes != best.nbytes]


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
        except (UnsupportedError, ResourceError, MPIError) as error:
            refusal = error
            continue
        try:
            cost = seconds_of(comm, engine, 0.0 if size < SMALL else LEAD)
        except Exception:  # that of all ranks
            engine.free()
            raise
        engine.free()
        if cost < bound:
            best, bound = choice, (1 - MARGIN) * cost
    if best is None:
        raise UnsupportedError(f"no candidate works here: {refusal}") from refusal
    return best


def seconds_of(comm: MPI.Intracomm, engine: Engine, lead: float = 0.0) -> float:
    """Collective. Seconds of a forward and a backward transform, on the slowest rank."""
    with agreed(comm, "a measurement"):
        sides = [array_in(None, *engine.form(side)) for side in (False, True)]
        for array in sides:
            array.fill(0)
    flights = [Flight(engine, forward) for forward in (True, False)]
    first = math.inf
    times: list[float] = []
    total = 0.0
    while len(times) < ROUNDS and total < SECONDS:
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
        total += taken
        first = min(first, taken)
        if total > lead:
            times.append(taken)
    return min(times, default=first)
