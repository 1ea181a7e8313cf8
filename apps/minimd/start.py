"""Where the atoms are at the start, and how they move: the same for any number of ranks.

The velocity of an atom comes from its number in the lattice alone, by the "minimal standard"
generator of Park and Miller (Communications of the ACM 31, 1988), so that the result is that of
Mantevo's MiniMD.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.minimd.problem import AXES, Problem

MULTIPLIER, MODULUS = 16807, 2**31 - 1
DRAWS = (6, 12, 18)  # which numbers after the seed are the velocity along x, y and z


def lattice(
    problem: Problem, low: Sequence[float], high: Sequence[float]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Local. Atoms of a face-centered cubic lattice in a part of the box: positions and numbers.

    Positions have the shape (3, n), numbers count from 1. A part has its lower faces, not its
    upper ones.
    """
    half = 0.5 * problem.constant
    places = []
    for count, start, stop in zip(problem.cells, low, high, strict=True):
        at = np.arange(2 * count)
        places.append(at[(half * at >= start) & (half * at < stop)])
    x, y, z = np.meshgrid(*places, indexing="ij")
    taken = (x + y + z) % 2 == 0
    x, y, z = x[taken], y[taken], z[taken]
    wide, deep = 2 * problem.cells[0], 2 * problem.cells[1]
    numbers = (z.astype(np.int64) * deep + y) * wide + x + 1
    return half * np.stack([x, y, z]).astype(float), numbers


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
