"""``onesided heat``: the heat equation, its halos exchanged in several ways, in turns.

Every way has a state of its own and computes all steps. They take turns, a part of the steps each
time, so that their times can be compared on a machine that is shared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import count
from math import prod
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.race import Contestant, race, unchecked
from onesided.apps.bench.selection import prepare, release, ways_of
from onesided.apps.bench.team import Team, check_threads
from onesided.apps.cli.failures import CommandError, by_rank_0, from_rank_0, user_errors
from onesided.apps.cli.options import Options
from onesided.apps.cli.progress import progress
from onesided.apps.cli.report import Report, Row, conclusions
from onesided.apps.cli.statistics import Target, Verdict
from onesided.apps.report.chart import save_slice
from onesided.apps.solvers.checkpoint import Checkpoint, check_checkpoint
from onesided.apps.solvers.heat_halos import REFERENCE, ways
from onesided.apps.solvers.heat_simulation import Simulation
from onesided.apps.solvers.heat_stencil import PERIODIC, Problem
from onesided.apps.solvers.heat_stencil import settings as stencil_settings
from onesided.apps.solvers.options import conditions
from onesided.collectives import Grid
from onesided.pencilfft import block, read_field

# All steps of all ways, in turns, with their times.

WARM_UP = 4  # steps before the first round, which begins again at the start
Times = Mapping[str, list[float]]
COMMUNICATION = "communication"


def follow(
    comm: MPI.Intracomm,
    runs: Mapping[str, Simulation],
    start: tuple[NDArray[Any], int],
    counts: Sequence[int],
    tick: Callable[[], None],
) -> tuple[Times, Times]:
    """Collective. All steps: seconds of a step, and of its communication, by run and round.

    ``start``: a state with its ghosts, and its number of steps; ``counts``: steps of the rounds.
    """
    entered = [_entered(name, each, start, counts) for name, each in runs.items()]
    found = race(comm, entered, iterations=len(counts), tick=tick)

    def of_a_step(seconds: Sequence[float]) -> list[float]:
        return [each / count for each, count in zip(seconds, counts, strict=True)]

    times = {name: of_a_step(each) for name, each in found.times.items()}
    inside = {name: of_a_step(each[COMMUNICATION]) for name, each in found.parts.items()}
    return times, inside


def _entered(
    name: str, run: Simulation, start: tuple[NDArray[Any], int], counts: Sequence[int]
) -> Contestant:
    """Local. From ``start`` on; every call computes the steps of the next round."""
    remaining = iter(counts)

    def advance() -> None:
        run.advance(next(remaining))

    def warm_up() -> None:
        run.load(*start)
        run.resume()
        run.advance(min(WARM_UP, sum(counts)))
        run.load(*start)

    return Contestant(
        name,
        advance,
        unchecked("the fields of all ways are compared at the end"),
        before=run.resume,
        after=run.pause,
        parts={COMMUNICATION: lambda: run.communication},
        warm_up=warm_up,
    )


# From the options of ``onesided heat`` to a problem, a process grid and a block.

AXES = (2, 3)
SETTINGS = ("shape", "boundary", "dtype", "alpha", "peak", "dt")  # which a checkpoint has
#: What is computed where no option says so.
SHAPE, BOUNDARY, DTYPE = (2048, 2048), ("fixed",), "float64"
SCALE = 1.0  # diffusivity, and the temperature of the hottest spot


def problem_of(options: Options) -> Problem:
    """Local. What is to be computed; :class:`CommandError` for what cannot be."""
    shape = tuple(options.shape or SHAPE)
    if len(shape) not in AXES:
        raise CommandError(f"--shape {_words(shape)}: {len(shape)} axes, two or three are possible")
    names = conditions(options.boundary or BOUNDARY, len(shape))
    periodic = tuple(name == PERIODIC for name in names)
    dtype = np.dtype(options.dtype or DTYPE)
    problem = Problem(
        shape, periodic, dtype, options.alpha or SCALE, options.peak or SCALE, options.dt
    )
    if problem.step > problem.stable_dt:
        raise CommandError(
            f"--dt {problem.step:g} is unstable: on this grid the largest stable time step is "
            f"h**2 / (2 d alpha) = {problem.stable_dt:.6g}"
        )
    return problem


# A checkpoint: the problem, and the temperature after so many steps.


def _checkpoint(comm: MPI.Intracomm, path: str) -> Checkpoint:
    return Checkpoint(comm, path, "heat", "temperature")


def facts_of(problem: Problem) -> dict[str, Any]:
    """Local. All that a file has to say of a problem."""
    facts = asdict(problem)
    return {**facts, "dtype": problem.dtype.name, "dt": problem.step}


def start_of(comm: MPI.Intracomm, options: Options) -> tuple[Problem, int]:
    """Collective. What is to be computed, and how many steps are done; CommandError for what an
    option wants otherwise than the checkpoint."""
    if options.restart is None:
        return problem_of(options), 0
    steps, found = _checkpoint(comm, options.restart).read()
    problem = Problem(
        tuple(int(n) for n in found["shape"]),
        tuple(bool(around) for around in found["periodic"]),
        np.dtype(str(found["dtype"])),
        *(float(found[name]) for name in ("alpha", "peak", "dt")),
    )
    names = [PERIODIC if around else "fixed" for around in problem.periodic]
    there = {**facts_of(problem), "boundary": names}
    wanted = {name: getattr(options, name) for name in SETTINGS}
    same = {**there, **{name: each for name, each in wanted.items() if each is not None}}
    asked = facts_of(problem_of(Options(**{name: same[name] for name in SETTINGS})))
    for name, each in asked.items():
        if each != there[name]:
            raise CommandError(
                f"{options.restart}: {name} is {_words(there[name])}, not {_words(each)}"
            )
    return problem, steps


def load(path: str, steps: int, grid: Grid, field: NDArray[Any]) -> NDArray[Any]:
    """Collective. The state of a checkpoint, with its ghosts; ``field`` is one of the grid."""
    _checkpoint(grid.comm, path).load(steps, partial(read_field, grid, field))
    grid.update(field)
    return field.copy()


def grid_of(comm: MPI.Intracomm, options: Options, problem: Problem) -> Grid:
    """Collective. The ranks in a grid; :class:`CommandError` where it does not fit."""
    given = [0 if entry == "auto" else entry for entry in options.process_grid or ()]
    free = [1 if given else 0] * (len(problem.shape) - len(given))
    with user_errors():
        return Grid(
            comm, problem.shape, periodic=problem.periodic, dims=given + free, ghosts="faces"
        )


def _words(numbers: object) -> str:
    return " ".join(map(str, numbers)) if isinstance(numbers, list | tuple) else str(numbers)


# The whole field, computed on one rank from the start.


def serial(problem: Problem, steps: int) -> NDArray[Any]:
    """Local. The state after so many steps, without blocks, tiles and halos."""
    axes = range(len(problem.shape))
    state = problem.initial([slice(0, length) for length in problem.shape])
    state = state[(slice(1, -1),) * len(axes)]
    center, factor = problem.weights
    with np.errstate(all="ignore"):
        for _ in range(steps):
            total = state * center
            for axis, periodic in enumerate(problem.periodic):
                width = [(1, 1) if each == axis else (0, 0) for each in axes]
                wide = np.pad(state, width, mode="wrap" if periodic else "constant")
                for part in (slice(None, -2), slice(2, None)):
                    total += wide[(slice(None),) * axis + (part,)]
            state = total * factor
    return state


# The state at the end: whether it is right, what it is, and how it looks.

Runs = Mapping[str, Simulation]


def check_finite(comm: MPI.Intracomm, runs: Runs) -> None:
    """Collective. :class:`CommandError` where a temperature is not a finite number."""
    for method, each in runs.items():
        finite = comm.allgather(bool(np.isfinite(each.state).all()))
        if not all(finite):
            raise CommandError(
                f"{method}: the temperature is not finite after {each.steps} steps "
                f"(rank {finite.index(False)})"
            )


def temperatures(comm: MPI.Intracomm, one: Simulation) -> str:
    """Collective. A sentence on the state."""
    state, problem = one.state, one.problem
    low = comm.allreduce(float(state.min()), op=MPI.MIN)
    high = comm.allreduce(float(state.max()), op=MPI.MAX)
    mean = comm.allreduce(float(state.sum(dtype=float)), op=MPI.SUM) / prod(problem.shape)
    return (
        f"After {one.steps} steps of {problem.step:.4g}, at time {one.steps * problem.step:.4g}: "
        f"temperatures from {low:.4g} to {high:.4g}, {mean:.4g} on average."
    )


def verified(comm: MPI.Intracomm, runs: Runs) -> dict[str, Verdict]:
    """Collective. Compare with all steps computed on rank 0: the part of the points that differ."""
    first = next(iter(runs.values()))
    whole = tuple(slice(0, length) for length in first.problem.shape)
    expected = by_rank_0(comm, lambda: serial(first.problem, first.steps))
    verdicts = {}
    for method, each in runs.items():
        wrong = from_rank_0(comm, partial(differing, each.gathered(whole), expected))
        verdicts[method] = Verdict(wrong, 0.0)
    return verdicts


def judgement(verdicts: Mapping[str, Verdict]) -> str:
    """Local. A sentence on the verification."""
    wrong = [method for method, verdict in verdicts.items() if not verdict.passed]
    if wrong:
        return f"WRONG: {', '.join(wrong)} differ from one rank; error: the part of the points."
    return "Verified: every byte is that of one rank alone."


def differing(field: Any, expected: Any) -> float:
    """Local. The part of the points whose bytes are not the same."""
    bits = np.dtype(f"u{field.dtype.itemsize}")
    one, other = (np.ascontiguousarray(array).view(bits) for array in (field, expected))
    return float(np.count_nonzero(one != other) / field.size)


def draw(comm: MPI.Intracomm, one: Simulation, path: str) -> None:
    """Collective. The temperature; in three dimensions in the middle of the first axis."""
    problem = one.problem
    lengths = [count * problem.spacing for count in problem.shape]
    wanted = [slice(0, count) for count in problem.shape]
    names, place = ("x", "y", "z")[: len(lengths)], ""
    if len(lengths) == 3:
        middle = problem.shape[0] // 2
        wanted[0] = slice(middle, middle + 1)
        place = f" at x = {middle * problem.spacing:.3g}"
    plane: Any = one.gathered(tuple(wanted))
    title = f"Temperature{place}, time {one.steps * problem.step:.4g}"

    def paint() -> None:
        values = plane.reshape(plane.shape[-2:])
        save_slice(path, title, (names[-2], names[-1]), values, (lengths[-2], lengths[-1]))

    by_rank_0(comm, paint)


def rounds_of(options: Options) -> list[int]:
    """Local. Steps of every round: a checkpoint comes after a whole one."""
    steps = options.steps
    if options.save_every is not None:
        every = options.save_every
        return [min(every, steps - begin) for begin in range(0, steps, every)]
    rounds = min(options.repeats, steps)
    return [end - begin for begin, end in (block(steps, rounds, n) for n in range(rounds))]


def due(options: Options, steps: int) -> bool:
    """Local. Whether a checkpoint is to be written after so many steps of this run."""
    return steps == options.steps or options.save_every is not None


#: Time of a step over that with persistent sends, for the halos that are meant to be used, on
#: these grids.
TARGETS = {each: Target(REFERENCE, 1.0, least=False) for each in ("halo",)}
WITH_TARGET = ((256, 256), (1024, 1024), (2048, 2048))
REMARK = (
    "An iteration is a time step, by the slowest rank; a time is the mean over the steps of a "
    "round. communication: what the ranks spend with their halos, waiting included, on average; "
    "compute: all the rest. share: of communication in a step."
)


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; 1 where a verification failed or, if asked, a target is missed."""
    wanted = ways_of(options.comm, ways(), REFERENCE)
    check_checkpoint(options)
    problem, done = start_of(comm, options)
    if options.threads > 1:
        with user_errors():
            check_threads(f"--threads {options.threads}")
    grid = grid_of(comm, options, problem)
    arrays = grid.zeros(dtype=problem.dtype), grid.zeros(dtype=problem.dtype)  # walls are 0
    with Team(options.threads, stencil_settings) as team:

        def make(name: str) -> Simulation:
            return Simulation(grid, problem, arrays, team, wanted[name], options)

        candidates = prepare(comm, list(wanted), make, Simulation.free)
        runs = candidates.made
        first = next(iter(runs.values()))
        if options.restart is None:
            start = problem.initial(grid.box)
        else:
            start = load(options.restart, done, grid, arrays[0])
        counts = rounds_of(options)
        with progress(comm, options, "heating", len(counts) * len(runs)) as tick:

            turns = count(1)

            def told() -> None:
                """After each turn; a checkpoint comes when all methods have had theirs."""
                tick()
                if options.checkpoint is None or next(turns) % len(runs):
                    return
                if due(options, first.steps - done):
                    file = _checkpoint(comm, options.checkpoint)
                    file.save(first.steps, facts_of(problem), first.write)

            times, communication = follow(comm, runs, (start, done), counts, told)
    check_finite(comm, runs)
    report = Report("heat", options.settings(), _pattern(first), remarks=[REMARK])
    report.remarks.append(temperatures(comm, first))
    verdicts = verified(comm, runs) if options.verify else {}
    if options.verify:
        report.remarks.append(judgement(verdicts))
    if options.picture is not None:
        draw(comm, first, options.picture)
    rows = {}
    for name, each in runs.items():
        whole, halo = times[name], communication[name]
        rows[name] = Row(
            {"method": name},
            whole,
            against={REFERENCE: times[REFERENCE]},
            details={
                "compute": [step - part for step, part in zip(whole, halo, strict=True)],
                COMMUNICATION: halo,
            },
            values={"share": sum(halo) / sum(whole)},
            verdict=verdicts.get(name),
            aim=TARGETS.get(name),
            wanted=name in TARGETS and problem.shape in WITH_TARGET,
            in_full=True,
            used=each.halo.label,
        )
    release(comm, candidates, Simulation.free)
    grid.Free()
    report.rows = [each.row(rows, {}) for each in candidates]
    report.remarks += conclusions(report.rows, "no targets are set for this grid and these ways")
    return report.end(comm, options)


def _pattern(one: Simulation) -> dict[str, Any]:
    """Collective."""
    problem, grid = one.problem, one.grid
    return {
        "shape": list(problem.shape),
        "periodic": list(problem.periodic),
        "dtype": problem.dtype.name,
        "spacing": problem.spacing,
        "dt": problem.step,
        "stable_dt": problem.stable_dt,
        "alpha": problem.alpha,
        "grid": list(grid.dims),
        "tiles": [len(one.tiling.outer), len(one.tiling.inner)],
        "halo_bytes": int(grid.comm.allreduce(one.nbytes, op=MPI.MAX)),
        "ranks": grid.comm.size,
    }
