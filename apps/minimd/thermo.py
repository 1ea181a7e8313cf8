"""Temperature, energy and pressure of all atoms together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, isfinite, prod
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.failures import CommandError
from onesided.apps.minimd.kernels.kernel import Tally
from onesided.apps.minimd.problem import AXES, Problem
from onesided.apps.minimd.start import degrees
from onesided.apps.verdict import Verdict

#: Per unit of time, by how much two runs that differ by rounding drift apart: exp(GROWTH t).
GROWTH = 4.0
ROUNDING = 1e-12  # of sums in another order,
TERM = 4e-15  # and more for every atom
MOST = 0.05  # outputs of runs that have nothing in common any more but the energy
#: Part of the kinetic energy by which the total energy may change: of a time step of 0.005.
DRIFT, USUAL_STEP = 5e-3, 0.005


@dataclass(frozen=True)
class Output:
    """A line of thermodynamic output, energies per atom.

    ``potential`` is that of Mantevo's output, whose pairs end abruptly at the cutoff; ``energy``
    is conserved: kinetic energy and that of the shifted potential.
    """

    step: int
    temperature: float
    potential: float
    pressure: float
    energy: float

    @property
    def numbers(self) -> tuple[float, float, float, float]:
        """Local. All but the step."""
        return self.temperature, self.potential, self.pressure, self.energy


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
    worst = Verdict(0.0, base)
    for one, other in zip(outputs, alone, strict=True):
        grown = min(MOST, base * exp(min(GROWTH * one.step * problem.dt, 100.0)))
        for a, b in zip(one.numbers, other.numbers, strict=True):
            error = abs(a - b) / max(abs(b), 1.0)
            if not isfinite(error):
                return Verdict(error, grown)
            if error * worst.tolerance > worst.error * grown:
                worst = Verdict(error, grown)
    return worst
