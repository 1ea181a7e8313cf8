"""One stage: all ways in turns on some ranks, their rows, and what is known of the atoms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.race import Contestant, Race, Stopwatch, nothing, race, unchecked
from onesided.apps.bench.selection import Candidates, prepare, release
from onesided.apps.bench.store import Part
from onesided.apps.cli.failures import CommandError, by_rank_0, from_rank_0, user_errors
from onesided.apps.cli.options import Options
from onesided.apps.cli.report import Row
from onesided.apps.cli.statistics import Verdict
from onesided.apps.miniapps.halos import Ways
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
from onesided.apps.miniapps.solving import finished
from onesided.apps.miniapps.stages import HIDDEN, Stage, Tick, tell
from onesided.apps.report.chart import save_atoms
from onesided.apps.report.result import REFERENCE
from onesided.collectives import OnesidedError
from onesided.pencilfft import block

WARM_UP = 2  # steps of every way before the first run, which begins again at the start


def steps_of_runs(problem: Problem, wanted: int) -> list[int]:
    """Local. The steps of ``wanted`` runs, of fewer where there are not so many sets of lists.

    Runs end where new lists are made anyway, so that each has its share of them.
    """
    whole, rest = divmod(problem.steps, problem.every)
    blocks = [problem.every] * whole + [rest] * (rest > 0)
    count = min(wanted, len(blocks))
    return [sum(blocks[slice(*block(len(blocks), count, number))]) for number in range(count)]


class Course:
    """All steps of all ways, in turns, with their times; the first way is the reference.

    In every run each way goes on from the same state, with the same arrays, and computes the same
    steps. They must come to the same state, bit by bit; the next run goes on from there.

    ``outputs``: of the reference. ``differing``: atoms whose state is not that of the reference,
    of all atoms of a rank, by way.
    """

    def __init__(
        self, simulation: Simulation, links: Mapping[str, Links], steps: Sequence[int]
    ) -> None:
        """Local."""
        self._simulation, self._links, self.steps = simulation, links, steps
        self._reference = next(iter(links))
        self._state, self._step, self._run = simulation.atoms.state(), 0, 0
        self._ends: dict[str, NDArray[Any]] = {}
        self.outputs: list[Output] = []
        self.differing = dict.fromkeys(links, 0.0)
        self.race = Race()

    def follow(self, tick: Tick) -> None:
        """Collective. All steps, by all ways; the atoms are as they are in the end then."""
        contestants = [self._contestant(name) for name in self._links]
        comm = self._simulation.cart
        self.race = race(comm, contestants, iterations=len(self.steps), tick=tick)
        self._simulation.atoms.load(self._state)
        wrong = np.array(list(self.differing.values()))
        comm.Allreduce(MPI.IN_PLACE, wrong, op=MPI.MAX)
        self.differing = dict(zip(self._links, wrong.tolist(), strict=True))

    def of_a_step(self, seconds: Sequence[float]) -> list[float]:
        """Local. By run, what was measured of all of it."""
        return [each / count for each, count in zip(seconds, self.steps, strict=True)]

    def _contestant(self, name: str) -> Contestant:
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
        self._simulation.advance(min(WARM_UP, sum(self.steps)))
        self._simulation.farthest = 0.0

    def _resume(self, name: str, watches: Mapping[str, Stopwatch]) -> None:
        """Collective."""
        self._simulation.resume(self._state, self._step, self._links[name], watches)

    def _advance(self) -> None:
        """Collective."""
        self._simulation.advance(self.steps[self._run])

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
        self._step += self.steps[self._run]
        self._run += 1


def differing(one: NDArray[Any], other: NDArray[Any]) -> float:
    """Local. The part of the atoms of a rank whose bits are not the same."""
    if one.shape != other.shape:
        return 1.0
    first, second = (np.ascontiguousarray(array).view(np.uint64) for array in (one, other))
    wrong = int(np.count_nonzero((first != second).any(axis=0)))
    return wrong / max(int(one.shape[1]), 1)


#: What is verified.
ENERGY = "change of the energy, of the kinetic energy at the start"
ALONE = "output, against rank 0 alone"


def experiment(
    comm: MPI.Intracomm,
    stage: Stage,
    problem: Problem,
    grid: Parts,
    wanted: Ways,
    kernel: str,
    options: Options,
    part: Part,
    tick: Tick,
    picture: str | None,
) -> None:
    """Collective. Rows, verdicts, and in ``more`` what is known of the atoms.

    ``picture``: where those in the middle of the box are drawn. :class:`.CommandError` on every
    rank for what cannot be done.
    """
    with user_errors():
        simulation = Simulation(comm, problem, grid, kernel)
    info = {"expected_iterations": str(problem.steps), **dict(options.info)}
    steps = steps_of_runs(problem, options.repeats)

    def make(name: str) -> Links:
        cart, axes = simulation.cart, simulation.axes
        return Links(cart, axes, wanted[name], info, simulation.needed)

    candidates: Candidates[Links] = Candidates()
    try:
        candidates += prepare(comm, list(wanted), make, Links.free)
        links = candidates.made
        course = Course(simulation, links, steps)
        course.follow(tick)
        rows = {name: _row(comm, stage, simulation, name, links[name], course) for name in links}
        if picture is not None:
            _draw(comm, simulation, grid, picture)
    except (CommandError, OnesidedError):  # the same on every rank
        release(comm, candidates, Links.free)
        simulation.free()
        raise
    simulation.links = None
    release(comm, candidates, Links.free)
    part.rows += [finished(each, rows, stage.labels, comm.size) for each in candidates]
    own = simulation.atoms.own
    ghosts = sum(sum(each.received) for each in simulation.borders)
    part.more = {
        "outputs": [asdict(each) for each in course.outputs],
        "farthest": simulation.farthest,
        "fewest": comm.allreduce(own, op=MPI.MIN),
        "most": comm.allreduce(own, op=MPI.MAX),
        "ghosts": comm.allreduce(ghosts, op=MPI.MAX),
    }
    simulation.free()
    if options.verify:
        part.verdicts[ENERGY] = conservation(problem, course.outputs)
        expected = from_rank_0(comm, lambda: alone(problem, kernel, steps))
        part.verdicts[ALONE] = agreement(problem, course.outputs, expected)


def _row(
    comm: MPI.Intracomm, stage: Stage, simulation: Simulation, name: str, links: Links,
    course: Course,
) -> Row:  # fmt: skip
    """Collective. Of a way that was timed; times are those of a step."""
    problem, found = simulation.problem, course.race
    parts = {part: course.of_a_step(times) for part, times in found.parts[name].items()}
    row = Row(
        {**stage.labels, "method": name},
        course.of_a_step(found.times[name]),
        against={REFERENCE: course.of_a_step(found.times[REFERENCE])},
        details=parts,
        values={"KiB": comm.allreduce(links.nbytes, op=MPI.MAX) / 1024.0},
        verdict=Verdict(course.differing[name], 0.0),
        facts={
            "ranks": comm.size,
            "cells": list(problem.cells),
            "atoms": problem.atoms,
            "grid": list(simulation.domain.grid),
            "steps": list(course.steps),
            "run_s": found.times[name],
        },
        used=links.label,
        hidden=HIDDEN,
    )
    tell(row, numbers={"plans": links.plans})
    return row


def alone(problem: Problem, kernel: str, steps: Sequence[int]) -> Sequence[Output]:
    """Local. The output of one rank, whose ghosts are images of its own atoms, and which makes its
    lists at the same steps."""
    simulation = Simulation(MPI.COMM_SELF, problem, (1, 1, 1), kernel)
    try:
        make = ways()[REFERENCE]
        links = Links(simulation.cart, simulation.axes, make, {}, simulation.needed)
        course = Course(simulation, {REFERENCE: links}, steps)
        course.follow(nothing)
        return course.outputs
    finally:
        simulation.free()


def _draw(comm: MPI.Intracomm, simulation: Simulation, grid: Parts, picture: str) -> None:
    """Collective. Atoms in a slab of one lattice cell, in the middle of the box."""
    atoms, problem, own = simulation.atoms, simulation.problem, slice(0, simulation.atoms.own)
    x = atoms.x[:, own] % np.array(problem.lengths)[:, None]
    inside = np.abs(x[AXES - 1] - 0.5 * problem.lengths[2]) <= 0.5 * problem.constant
    speed = np.sqrt(np.einsum("an,an->n", atoms.v[:, own], atoms.v[:, own]))
    parts = comm.gather(np.stack([x[0], x[1], speed])[:, inside]) or []
    title, lengths = f"Atoms in the middle of the box, step {problem.steps}", problem.lengths[:2]
    cuts = [
        [length * number / count for number in range(1, count)]
        for length, count in zip(lengths, grid[:2], strict=True)
    ]

    def paint() -> None:
        x, y, speed = np.concatenate(parts, axis=1)
        save_atoms(picture, title, (x, y), speed, lengths, cuts)

    by_rank_0(comm, paint)
