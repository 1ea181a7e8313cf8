"""One problem on one number of ranks: all ways, their rows, and what is known of the atoms."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.failures import CommandError
from onesided.apps.minimd.axis import Axis
from onesided.apps.minimd.decomposition import Grid
from onesided.apps.minimd.problem import AXES, Problem
from onesided.apps.minimd.simulation import Simulation
from onesided.apps.minimd.thermo import Output, agreement, conservation
from onesided.apps.minimd.turns import Course, follow, rounds_of
from onesided.apps.minimd.ways.links import Links
from onesided.apps.minimd.ways.registry import REFERENCE, Way, ways
from onesided.apps.report import Row
from onesided.apps.selection import Candidate, prepare, release
from onesided.apps.timing import rest
from onesided.apps.verdict import Verdict
from onesided.collectives import OnesidedError

ROOT = 0
EFFICIENCY = "efficiency"
#: What is verified.
ENERGY = "change of the energy, of the kinetic energy at the start"
ALONE = "output, compared with one rank"


@dataclass
class Outcome:
    """What rank 0 knows in the end; ``points``: atoms in the middle of the box, with speeds."""

    problem: Problem
    grid: Grid
    rows: list[Row] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    farthest: float = 0.0
    fewest: int = 0
    most: int = 0
    ghosts: int = 0
    points: NDArray[Any] | None = None


@dataclass(frozen=True)
class Experiment:
    """A problem, the process grid, the ways, and how they are run.

    ``slab``: atoms in the middle of the box are wanted.
    """

    problem: Problem
    grid: Grid
    ways: Sequence[Way]
    kernel: str
    options: Namespace
    labels: Mapping[str, str]
    slab: bool = False

    def run(self, comm: MPI.Intracomm, tick: Callable[[], None]) -> Outcome:
        """Collective. Its rows are rank 0's."""
        outcome = Outcome(self.problem, self.grid)
        simulation = Simulation(comm, self.problem, self.grid, self.kernel)
        named = {way.name: way for way in self.ways}
        info = {"expected_iterations": str(self.problem.steps), **dict(self.options.info)}

        def make(name: str) -> Links:
            cart, axes = simulation.cart, simulation.axes
            return Links(cart, axes, named[name], info, simulation.needed)

        candidates = prepare(comm, list(named), make, Links.free)
        runs = {each.method: each.made for each in candidates if each.made is not None}
        try:
            rounds = rounds_of(self.problem, self.options.rounds)
            course = follow(simulation, runs, rounds, tick)
        except (CommandError, OnesidedError):  # all ranks have it
            simulation.links = None
            release(comm, candidates, Links.free)
            simulation.free()
            raise
        labels = {name: links.label for name, links in runs.items()}
        plans = {name: links.plans for name, links in runs.items()}
        rooms = {name: links.nbytes for name, links in runs.items()}
        simulation.links = None
        release(comm, candidates, Links.free)
        rooms = {name: int(comm.allreduce(room, op=MPI.MAX)) for name, room in rooms.items()}
        outcome.rows = [
            self._row(each, course, labels, plans, rooms) for each in candidates
        ]
        self._describe(comm, simulation, course, outcome)
        simulation.free()
        return outcome

    def _row(
        self,
        each: Candidate[Links],
        course: Course,
        labels: Mapping[str, str],
        plans: Mapping[str, int],
        rooms: Mapping[str, int],
    ) -> Row:
        """Local."""
        name = each.method
        if each.reason:
            return Row({**self.labels, "method": name}, reason=each.reason)
        return Row(
            {**self.labels, "method": labels[name]},
            course.times[name],
            setup=each.setup + each.freeing,
            against={REFERENCE: course.times[REFERENCE]},
            details=course.parts[name],
            values={
                "plans": float(plans[name]),
                "KiB": rooms[name] / 1024.0,
            },
            verdict=Verdict(course.differing[name], 0.0),
        )

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
        if self.options.verify:
            outcome.verdicts[ENERGY] = conservation(self.problem, course.outputs)
            alone = self._alone(comm)
            if comm.rank == ROOT:
                outcome.verdicts[ALONE] = agreement(self.problem, course.outputs, alone)
        if self.slab:
            outcome.points = _slab(comm, self.problem, simulation)

    def _alone(self, comm: MPI.Intracomm) -> list[Output]:
        """Collective. The output of rank 0 alone, which makes its lists at the same steps."""
        outputs: list[Output] = []
        trouble = ""
        if comm.rank == ROOT:
            try:
                outputs = alone(self.problem, self.kernel, self.options.rounds)
            except CommandError as error:
                trouble = str(error)
        rest(comm)
        trouble = comm.bcast(trouble, root=ROOT)
        if trouble:
            raise CommandError(f"on one rank: {trouble}")
        return outputs


def alone(problem: Problem, kernel: str, rounds: int) -> list[Output]:
    """Local. The output of one rank, whose ghosts are images of its own atoms."""
    simulation = Simulation(MPI.COMM_SELF, problem, (1, 1, 1), kernel)
    axes: Sequence[Axis] = simulation.axes
    links = Links(MPI.COMM_SELF, axes, ways()[REFERENCE], {}, simulation.needed)
    course = follow(simulation, {REFERENCE: links}, rounds_of(problem, rounds), lambda: None)
    simulation.free()
    return course.outputs


def _slab(
    comm: MPI.Intracomm, problem: Problem, simulation: Simulation
) -> NDArray[Any] | None:
    """Collective. Atoms in a slab of one lattice cell: x, y, speed and rank, on rank 0."""
    atoms, middle = simulation.atoms, 0.5 * problem.lengths[2]
    own = slice(0, atoms.own)
    lengths = np.array(problem.lengths)[:, None]
    x = atoms.x[:, own] % lengths
    inside = np.abs(x[AXES - 1] - middle) <= 0.5 * problem.constant
    speed = np.sqrt(np.einsum("an,an->n", atoms.v[:, own], atoms.v[:, own]))
    part = np.stack([x[0], x[1], speed, np.full(atoms.own, float(comm.rank))])[:, inside]
    parts = comm.gather(part, root=ROOT)
    return None if parts is None else np.concatenate(parts, axis=1)
