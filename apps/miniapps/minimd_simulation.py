"""The atoms of a rank in time: velocity Verlet, neighbor lists, ghosts, and migration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import exp, isfinite, prod
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.timing import Stopwatch
from onesided.apps.cli.failures import CommandError
from onesided.apps.cli.statistics import Verdict, worst
from onesided.apps.miniapps.minimd_atoms import AXES, Atoms, Block, Links, Problem
from onesided.apps.miniapps.minimd_kernels import Cells, Tally, load
from onesided.collectives import PatternError, agreed

# Where the atoms are at the start, and how they move: the same for any number of ranks.
#
# The velocity of an atom comes from its number in the lattice alone, by the "minimal standard"
# generator of Park and Miller (Communications of the ACM 31, 1988), so that the result is that of
# Mantevo's MiniMD.

MULTIPLIER, MODULUS = 16807, 2**31 - 1
DRAWS = (6, 12, 18)  # which numbers after the seed are the velocity along x, y and z


def lattice(problem: Problem, box: Sequence[slice]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Local. Atoms of a face-centered cubic lattice in a part of the box: positions and numbers.

    Positions have the shape (3, n), numbers count from 1. ``box`` is in half cells.
    """
    x, y, z = np.meshgrid(*(np.arange(part.start, part.stop) for part in box), indexing="ij")
    taken = (x + y + z) % 2 == 0
    x, y, z = x[taken], y[taken], z[taken]
    wide, deep, _ = problem.halves
    numbers = (z * deep + y) * wide + x + 1
    return 0.5 * problem.constant * np.stack([x, y, z]).astype(float), numbers


def velocities(numbers: NDArray[Any]) -> NDArray[Any]:
    """Local. Uniform numbers between 0 and 1, three for every atom, by its number."""
    seeds = numbers.astype(np.int64) % MODULUS
    drawn = [seeds * pow(MULTIPLIER, count, MODULUS) % MODULUS for count in DRAWS]
    return np.stack(drawn).reshape(AXES, numbers.size) * (1.0 / MODULUS)


def warm(comm: MPI.Intracomm, problem: Problem, v: NDArray[Any]) -> None:
    """Collective. Take the mean from velocities, and scale them to the temperature at the start."""
    mean = v.sum(axis=1)
    comm.Allreduce(MPI.IN_PLACE, mean)
    v -= (mean / problem.atoms)[:, None]
    squares = comm.allreduce(float((v * v).sum()))
    v *= (problem.temperature * degrees(problem) / squares) ** 0.5


def degrees(problem: Problem) -> int:
    """Local. The degrees of freedom: the center of mass rests."""
    return AXES * problem.atoms - AXES


# Temperature, energy and pressure of all atoms together.

#: Per unit of time, by how much two runs that differ by rounding drift apart: exp(GROWTH t).
GROWTH = 4.0
ROUNDING = 1e-12  # of sums in another order,
TERM = 4e-15  # and more for every atom
MOST = 0.05  # outputs of runs that have nothing in common any more but the energy
#: Part of the kinetic energy by which the total energy may change: of a time step of 0.005.
DRIFT, USUAL_STEP = 5e-3, 0.005


class Output(NamedTuple):
    """A line of thermodynamic output, energies per atom.

    ``potential`` is that of Mantevo's output, whose pairs end abruptly at the cutoff; ``energy``
    is conserved: kinetic energy and that of the shifted potential.
    """

    step: int
    temperature: float
    potential: float
    pressure: float
    energy: float


def output(
    comm: MPI.Intracomm, problem: Problem, v: NDArray[Any], tally: Tally, step: int
) -> Output:
    """Collective. From the velocities of own atoms; :class:`CommandError` where atoms are lost."""
    sums = np.array(
        [float(np.einsum("an,an->", v, v)), tally.energy, tally.virial, tally.pairs, v.shape[1]]
    )
    comm.Allreduce(MPI.IN_PLACE, sums)
    squares, energy, virial, pairs, atoms = sums.tolist()
    if atoms != problem.atoms:
        raise CommandError(f"step {step}: there are {atoms:.0f} atoms of {problem.atoms}")
    return Output(
        step,
        squares / degrees(problem),
        energy / problem.atoms,
        (squares + virial) / (AXES * prod(problem.lengths)),
        (0.5 * squares + energy - pairs * problem.end_energy) / problem.atoms,
    )


def check_energy(problem: Problem, first: Output, now: Output) -> None:
    """Local. :class:`CommandError` where the energy has blown up."""
    allowed = abs(first.energy) + first.temperature
    if isfinite(now.energy) and abs(now.energy - first.energy) <= allowed:
        return
    raise CommandError(
        f"step {now.step}: the energy of an atom is {now.energy:.4g}, at the start it was "
        f"{first.energy:.4g}; the time step {problem.dt:g} is too long for these atoms"
    )


def conservation(problem: Problem, outputs: Sequence[Output]) -> Verdict:
    """Local. The largest change of the energy, as a part of the kinetic energy at the start.

    The error of the method is of second order in the time step.
    """
    first = outputs[0]
    kinetic = max(0.5 * AXES * first.temperature, 1e-300)
    change = float(np.max(np.abs([each.energy - first.energy for each in outputs])))
    return Verdict(change / kinetic, DRIFT * max(1.0, (problem.dt / USUAL_STEP) ** 2))


def agreement(problem: Problem, outputs: Sequence[Output], alone: Sequence[Output]) -> Verdict:
    """Local. The largest relative difference to the output of one rank.

    What rounding explains grows exponentially, as the paths of the atoms are chaotic.
    """
    base = ROUNDING + TERM * problem.atoms
    verdicts = [Verdict(0.0, base)]
    for one, other in zip(outputs, alone, strict=True):
        grown = min(MOST, base * exp(min(GROWTH * one.step * problem.dt, 100.0)))
        pairs = zip(one[1:], other[1:], strict=True)
        verdicts += [Verdict(abs(a - b) / max(abs(b), 1.0), grown) for a, b in pairs]
    return worst(verdicts)


PARTS = FORCES, LISTS, COMMUNICATION = "forces", "lists", "communication"


class Simulation:
    """One set of atoms for all ways of exchanging, which take turns: ``resume`` sets the scene.

    ``border``: who has which ghosts; ``outputs``: lines of output since then.
    """

    _compute: Callable[..., Tally]
    _rebuild: Callable[[], None]
    _forward: Callable[..., None]
    _reverse: Callable[..., None]

    def __init__(self, comm: MPI.Intracomm, problem: Problem) -> None:
        """Collective. The atoms at the start, with their lists."""
        self.comm, self.problem = comm, problem
        self.block = Block(comm, problem)
        self.kernel = load(problem)
        self.links: Links | None = None
        self.step = 0
        self.outputs: list[Output] = []
        self.first: Output | None = None
        with agreed(comm, f"{problem.atoms} atoms"):
            x, numbers = lattice(problem, self.block.grid.box)
            v = velocities(numbers)
        warm(comm, problem, v)
        self.atoms = Atoms(np.concatenate([x, v, numbers[None]]))
        self.rebuild()

    def resume(
        self, state: NDArray[Any], step: int, links: Links, watches: Mapping[str, Stopwatch]
    ) -> None:
        """Collective. Go on from a state of a step, with new lists and forces.

        The parts of what follows are under ``watches``, by the names of ``PARTS``.
        """
        self._compute = watches[FORCES].timed(self.kernel.forces)
        self._rebuild = watches[LISTS].timed(self.rebuild)
        self._forward = watches[COMMUNICATION].timed(links.forward)
        self._reverse = watches[COMMUNICATION].timed(links.reverse)
        self.links, self.step, self.outputs = links, step, []
        self.atoms = Atoms(state)
        self.rebuild()
        tally = self._forces(step == 0)
        if step == 0:
            self._write(tally)

    def advance(self, steps: int) -> None:
        """Collective. So many time steps.

        :class:`CommandError` on all ranks where the atoms have blown up.
        """
        problem = self.problem
        with np.errstate(all="ignore"):
            for _ in range(steps):
                self.step += 1
                self._kick()
                self.atoms.x[:, : self.atoms.own] += problem.dt * self.atoms.v
                if self.step % problem.every == 0:
                    self._rebuild()
                else:
                    self._forward(self.atoms.x, self.atoms.own, self.border)
                due = problem.due(self.step)
                tally = self._forces(due)
                self._kick()
                if due:
                    self._write(tally)

    def rebuild(self) -> None:
        """Collective. Atoms move to the ranks that they have come to; new ghosts, new lists."""
        block, problem = self.block, self.problem
        try:
            state = block.migrate(self.atoms.state())
        except PatternError as error:  # the same on every rank
            raise CommandError(
                f"step {self.step}: there are atoms at no number; the time step {problem.dt:g} is "
                "too long"
            ) from error
        cells = Cells.of(state[:AXES], block.low, block.high, problem.reach)
        self.atoms = atoms = Atoms(state[:, cells.order])
        self.border = block.find_ghosts(atoms)
        if self.links is not None:
            self.links.fit(self.border)
        self.kernel.build(atoms.x, atoms.own, block.low, block.high)

    def free(self) -> None:
        """Collective."""
        self.block.free()

    def _kick(self) -> None:
        """Local. Half a time step of the velocities."""
        atoms = self.atoms
        atoms.v += 0.5 * self.problem.dt * atoms.f[:, : atoms.own]

    def _forces(self, tally: bool) -> Tally:
        """Collective. The forces on own atoms."""
        atoms = self.atoms
        found = self._compute(atoms.x, atoms.f, atoms.own, tally)
        self._reverse(atoms.f, atoms.own, self.border)
        return found

    def _write(self, tally: Tally) -> None:
        """Collective. A line of output."""
        line = output(self.comm, self.problem, self.atoms.v, tally, self.step)
        self.outputs.append(line)
        if self.first is None:
            self.first = line
        check_energy(self.problem, self.first, line)
