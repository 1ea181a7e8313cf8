"""One stage: all ways in turns on some ranks, their rows, and what is known of the atoms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.race import Contestant, Race, Stopwatch, race, rest, unchecked
from onesided.apps.bench.selection import Candidate, prepare, release
from onesided.apps.bench.store import Part
from onesided.apps.cli.failures import CommandError, user_errors
from onesided.apps.cli.options import Options
from onesided.apps.cli.statistics import Verdict
from onesided.apps.miniapps.minimd_atoms import Parts
from onesided.apps.miniapps.minimd_links import Links, ways
from onesided.apps.miniapps.minimd_problem import AXES, Problem
from onesided.apps.miniapps.minimd_simulation import (
    PARTS,
    Output,
    Simulation,
    agreement,
    conservation,
)
from onesided.apps.miniapps.way import (
    REFERENCE,
    MiniRow,
    Stage,
    Way,
    mini_rows,
)
from onesided.collectives import OnesidedError, agree
from onesided.pencilfft import block

# All steps of all ways, in turns, with their times.
#
# In every run each way goes on from the same state, with the same arrays, and computes the same
# steps. They must come to the same state, bit by bit; the next run goes on from there.

WARM_UP = 2  # steps of every way before the first run, which begins again at the start


@dataclass(frozen=True)
class Course:
    """What came out. ``steps``: of every run; ``race``: seconds of the runs, by way.

    ``differing``: atoms whose state is not that of the reference, of all atoms of a rank, by way.
    """

    steps: Sequence[int]
    race: Race
    differing: Mapping[str, float]
    outputs: Sequence[Output]

    def times(self, way: str) -> list[float]:
        """Local. Seconds of a step, by run."""
        return self._of_a_step(self.race.times[way])

    def parts(self, way: str) -> dict[str, list[float]]:
        """Local. The same of the parts of a step, on average over the ranks."""
        return {part: self._of_a_step(times) for part, times in self.race.parts[way].items()}

    def _of_a_step(self, seconds: Sequence[float]) -> list[float]:
        return [each / count for each, count in zip(seconds, self.steps, strict=True)]


def steps_of_runs(problem: Problem, wanted: int) -> list[int]:
    """Local. The steps of ``wanted`` runs, of fewer where there are not so many sets of lists.

    Runs end where new lists are made anyway, so that each has its share of them.
    """
    whole, rest = divmod(problem.steps, problem.every)
    blocks = [problem.every] * whole + [rest] * (rest > 0)
    count = min(wanted, len(blocks))
    return [sum(blocks[slice(*block(len(blocks), count, number))]) for number in range(count)]


def follow(
    simulation: Simulation,
    links: Mapping[str, Links],
    steps: Sequence[int],
    tick: Callable[[], object],
) -> Course:
    """Collective. All steps, by all ways, of which the first is the reference."""
    relay = _Relay(simulation, links, steps)
    contestants = [relay.contestant(name) for name in links]
    found = race(simulation.cart, contestants, iterations=len(steps), tick=tick)
    relay.finish()
    return Course(steps, found, relay.differing, relay.outputs)


class _Relay:
    """Every way begins a run where the one before has ended with the reference."""

    def __init__(
        self, simulation: Simulation, links: Mapping[str, Links], steps: Sequence[int]
    ) -> None:
        self._simulation, self._links, self._steps = simulation, links, steps
        self._reference = next(iter(links))
        self._state, self._step, self._run = simulation.atoms.state(), 0, 0
        self._ends: dict[str, NDArray[Any]] = {}
        self.outputs: list[Output] = []
        self.differing = dict.fromkeys(links, 0.0)

    def contestant(self, name: str) -> Contestant:
        """Local."""
        watches = {part: Stopwatch() for part in PARTS}
        return Contestant(
            name,
            self._advance,
            unchecked("the state after every run is compared with the reference's, bit for bit"),
            before=partial(self._resume, name, watches),
            after=partial(self._arrive, name),
            parts=watches,
            warm_up=partial(self._warm_up, name, watches),
        )

    def _warm_up(self, name: str, watches: Mapping[str, Stopwatch]) -> None:
        """Collective. A few steps."""
        self._resume(name, watches)
        self._simulation.advance(min(WARM_UP, sum(self._steps)))
        self._simulation.farthest = 0.0

    def finish(self) -> None:
        """Collective. The atoms as they are in the end, and the same verdicts on all ranks."""
        self._simulation.atoms.load(self._state)
        wrong = np.array(list(self.differing.values()))
        self._simulation.cart.Allreduce(MPI.IN_PLACE, wrong, op=MPI.MAX)
        self.differing = dict(zip(self._links, wrong.tolist(), strict=True))

    def _resume(self, name: str, watches: Mapping[str, Stopwatch]) -> None:
        """Collective."""
        self._simulation.resume(self._state, self._step, self._links[name], watches)

    def _advance(self) -> None:
        """Collective."""
        self._simulation.advance(self._steps[self._run])

    def _arrive(self, name: str) -> None:
        """Local. Keep the state; the last way of a run starts the next one."""
        self._ends[name] = self._simulation.atoms.state()
        if name == self._reference:
            self.outputs += self._simulation.outputs
        if len(self._ends) < len(self._links):
            return
        end = self._ends[self._reference]
        for each, state in self._ends.items():
            self.differing[each] = max(self.differing[each], differing(state, end))
        self._state, self._ends = end, {}
        self._step += self._steps[self._run]
        self._run += 1


def differing(one: NDArray[Any], other: NDArray[Any]) -> float:
    """Local. The part of the atoms of a rank whose bits are not the same."""
    if one.shape != other.shape:
        return 1.0
    first, second = (np.ascontiguousarray(array).view(np.uint64) for array in (one, other))
    wrong = int(np.count_nonzero((first != second).any(axis=0)))
    return wrong / max(int(one.shape[1]), 1)


ROOT = 0
#: What is verified.
ENERGY = "change of the energy, of the kinetic energy at the start"
ALONE = "output, against rank 0 alone"


@dataclass
class Outcome:
    """What a stage has found, on the ranks that took part.

    ``fewest``, ``most``: atoms of a rank at the end, ``ghosts``: the most that one has. ``points``:
    x, y and speed of atoms in the middle of the box, where they are wanted, on rank 0.
    """

    stage: Stage
    problem: Problem
    grid: Parts
    rows: list[MiniRow] = field(default_factory=list)
    outputs: Sequence[Output] = ()
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    farthest: float = 0.0
    fewest: int = 0
    most: int = 0
    ghosts: int = 0
    points: NDArray[Any] | None = None

    def keep(self, part: Part) -> None:
        """Local. Everything but the points."""
        part.rows += self.rows
        part.verdicts |= self.verdicts
        counts = {name: getattr(self, name) for name in ("farthest", "fewest", "most", "ghosts")}
        part.more = {"outputs": [asdict(each) for each in self.outputs], **counts}

    @classmethod
    def of(cls, part: Part, stage: Stage, problem: Problem, grid: Parts) -> Outcome:
        """Local. What :meth:`keep` kept."""
        given = {**part.more, "outputs": [Output(**each) for each in part.more["outputs"]]}
        rows = mini_rows(part.rows)
        return cls(stage, problem, grid, rows, verdicts=dict(part.verdicts), **given)


@dataclass(frozen=True)
class Experiment:
    """What a stage computes, and how. ``slab``: atoms in the middle of the box are wanted."""

    stage: Stage
    problem: Problem
    grid: Parts
    ways: Mapping[str, Way]
    kernel: str
    options: Options
    slab: bool = False

    def run(self, comm: MPI.Intracomm, tick: Callable[[], object]) -> Outcome:
        """Collective. :class:`.CommandError` on every rank for what cannot be done."""
        with user_errors():
            simulation = Simulation(comm, self.problem, self.grid, self.kernel)
        info = {"expected_iterations": str(self.problem.steps), **dict(self.options.info)}

        def make(name: str) -> Links:
            cart, axes = simulation.cart, simulation.axes
            return Links(cart, axes, self.ways[name], info, simulation.needed)

        candidates: list[Candidate[Links]] = []
        try:
            candidates += prepare(comm, list(self.ways), make, Links.free)
            links = {each.method: each.made for each in candidates if each.made is not None}
            course = follow(simulation, links, self._steps, tick)
        except (CommandError, OnesidedError):  # the same on every rank
            release(comm, candidates, Links.free)
            simulation.free()
            raise
        rows = {name: self._row(comm, name, each, course) for name, each in links.items()}
        simulation.links = None
        release(comm, candidates, Links.free)
        outcome = Outcome(self.stage, self.problem, self.grid)
        outcome.rows = [self._finished(each, rows) for each in candidates]
        self._describe(comm, simulation, course, outcome)
        simulation.free()
        if self.options.verify:
            outcome.verdicts[ENERGY] = conservation(self.problem, course.outputs)
            alone = self._alone(comm)
            outcome.verdicts[ALONE] = agreement(self.problem, course.outputs, alone)
        return outcome

    @property
    def _steps(self) -> list[int]:
        return steps_of_runs(self.problem, self.options.repeats)

    def _row(self, comm: MPI.Intracomm, name: str, links: Links, course: Course) -> MiniRow:
        """Collective. Of a way that was timed; times are those of a step."""
        room = comm.allreduce(links.nbytes, op=MPI.MAX)
        return MiniRow(
            self._labels(name),
            course.times(name),
            against={REFERENCE: course.times(REFERENCE)},
            details=course.parts(name),
            values={"KiB": room / 1024.0},
            verdict=Verdict(course.differing[name], 0.0),
            numbers={"plans": links.plans},
            facts={
                "ranks": comm.size,
                "cells": list(self.problem.cells),
                "atoms": self.problem.atoms,
                "grid": list(self.grid),
                "steps": list(course.steps),
                "run_s": course.race.times[name],
            },
            used=links.label,
        )

    def _finished(self, each: Candidate[Links], rows: Mapping[str, MiniRow]) -> MiniRow:
        """Local. The row of a way, with its set-up; or why there is none."""
        if each.reason:
            facts = {"ranks": self.stage.ranks}
            return MiniRow(self._labels(each.method), reason=each.reason, facts=facts)
        row = rows[each.method]
        row.setup = each.setup + each.freeing
        return row

    def _labels(self, name: str) -> dict[str, str]:
        """Local."""
        return {**self.stage.labels, "method": name}

    def _describe(
        self, comm: MPI.Intracomm, simulation: Simulation, course: Course, outcome: Outcome
    ) -> None:
        """Collective. What is known of the atoms at the end."""
        outcome.outputs = course.outputs
        outcome.farthest = simulation.farthest
        own = simulation.atoms.own
        outcome.fewest = comm.allreduce(own, op=MPI.MIN)
        outcome.most = comm.allreduce(own, op=MPI.MAX)
        ghosts = sum(sum(each.received) for each in simulation.borders)
        outcome.ghosts = comm.allreduce(ghosts, op=MPI.MAX)
        if self.slab:
            outcome.points = _slab(comm, self.problem, simulation)

    def _alone(self, comm: MPI.Intracomm) -> Sequence[Output]:
        """Collective. The output of rank 0 alone, which makes its lists at the same steps.

        :class:`.CommandError` on every rank where rank 0 cannot do it.
        """
        outputs: Sequence[Output] = ()
        error: Exception | None = None
        if comm.rank == ROOT:
            try:
                outputs = alone(self.problem, self.kernel, self._steps)
            except Exception as problem:  # raised on all ranks below
                error = problem
        rest(comm)
        with user_errors():
            agree(comm, error, "the output of rank 0 alone")
        found: Sequence[Output] = comm.bcast(outputs, root=ROOT)
        return found


def alone(problem: Problem, kernel: str, steps: Sequence[int]) -> Sequence[Output]:
    """Local. The output of one rank, whose ghosts are images of its own atoms."""
    simulation = Simulation(MPI.COMM_SELF, problem, (1, 1, 1), kernel)
    try:
        way = ways()[REFERENCE]
        links = Links(simulation.cart, simulation.axes, way, {}, simulation.needed)
        return follow(simulation, {REFERENCE: links}, steps, lambda: None).outputs
    finally:
        simulation.free()


def _slab(
    comm: MPI.Intracomm, problem: Problem, simulation: Simulation
) -> NDArray[Any] | None:
    """Collective. Atoms in a slab of one lattice cell: x, y and speed, on rank 0."""
    atoms, middle = simulation.atoms, 0.5 * problem.lengths[2]
    own = slice(0, atoms.own)
    lengths = np.array(problem.lengths)[:, None]
    x = atoms.x[:, own] % lengths
    inside = np.abs(x[AXES - 1] - middle) <= 0.5 * problem.constant
    speed = np.sqrt(np.einsum("an,an->n", atoms.v[:, own], atoms.v[:, own]))
    part = np.stack([x[0], x[1], speed])[:, inside]
    parts = comm.gather(part, root=ROOT)
    return None if parts is None else np.concatenate(parts, axis=1)
