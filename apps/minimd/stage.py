"""One stage: all ways in turns on some ranks, their rows, and what is known of the atoms."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.failures import CommandError, user_errors
from onesided.apps.mini.row import MiniRow
from onesided.apps.mini.scaling import Stage
from onesided.apps.mini.way import REFERENCE, Way
from onesided.apps.minimd.decomposition import Grid
from onesided.apps.minimd.links import Links, ways
from onesided.apps.minimd.problem import AXES, Problem
from onesided.apps.minimd.simulation import Simulation
from onesided.apps.minimd.thermo import Output, agreement, conservation
from onesided.apps.minimd.turns import Course, follow, steps_of_runs
from onesided.apps.selection import Candidate, prepare, release
from onesided.apps.timing import rest
from onesided.apps.verdict import Verdict
from onesided.collectives import OnesidedError, agree

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
    grid: Grid
    rows: list[MiniRow] = field(default_factory=list)
    outputs: Sequence[Output] = ()
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    farthest: float = 0.0
    fewest: int = 0
    most: int = 0
    ghosts: int = 0
    points: NDArray[Any] | None = None


@dataclass(frozen=True)
class Experiment:
    """What a stage computes, and how. ``slab``: atoms in the middle of the box are wanted."""

    stage: Stage
    problem: Problem
    grid: Grid
    ways: Mapping[str, Way]
    kernel: str
    options: Namespace
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
        return steps_of_runs(self.problem, self.options.runs)

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
            facts={"plans": links.plans},
            more={
                "ranks": comm.size,
                "cells": list(self.problem.cells),
                "atoms": self.problem.atoms,
                "grid": list(self.grid),
                "steps": list(course.steps),
                "run_s": course.taken[name].times,
            },
            used=links.label,
        )

    def _finished(self, each: Candidate[Links], rows: Mapping[str, MiniRow]) -> MiniRow:
        """Local. The row of a way, with its set-up; or why there is none."""
        if each.reason:
            more = {"ranks": self.stage.ranks}
            return MiniRow(self._labels(each.method), reason=each.reason, more=more)
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
