"""From the options of ``onesided heat`` to a problem, a process grid and a block."""

from __future__ import annotations

from argparse import Namespace
from math import prod

import numpy as np
from mpi4py import MPI

from onesided.apps.failures import CommandError
from onesided.apps.heat.decomposition import Block
from onesided.apps.heat.problem import PERIODIC, Problem

AXES = (2, 3)
LEVELS = {
    MPI.THREAD_SINGLE: "MPI_THREAD_SINGLE",
    MPI.THREAD_FUNNELED: "MPI_THREAD_FUNNELED",
    MPI.THREAD_SERIALIZED: "MPI_THREAD_SERIALIZED",
}


def problem_of(options: Namespace) -> Problem:
    """Local. What is to be computed; :class:`CommandError` for what cannot be."""
    shape, names = tuple(options.shape), options.boundary
    if len(shape) not in AXES:
        raise CommandError(f"--shape {_words(shape)}: {len(shape)} axes, two or three are possible")
    if len(names) not in (1, len(shape)):
        raise CommandError(
            f"--boundary names {len(names)} conditions for {len(shape)} axes: one, or one per axis"
        )
    if len(names) == 1:
        names = names * len(shape)
    periodic = tuple(name == PERIODIC for name in names)
    dtype = np.dtype(options.dtype)
    problem = Problem(shape, periodic, dtype, options.alpha, options.peak, options.dt)
    if problem.step > problem.stable_dt:
        raise CommandError(
            f"--dt {problem.step:g} is unstable: on this grid the largest stable time step is "
            f"h**2 / (2 d alpha) = {problem.stable_dt:.6g}"
        )
    return problem


def check_threads(options: Namespace) -> None:
    """Local. :class:`CommandError` where threads may not call this MPI."""
    level = MPI.Query_thread()
    if options.threads > 1 and level < MPI.THREAD_MULTIPLE:
        raise CommandError(
            f"--threads {options.threads} needs MPI_THREAD_MULTIPLE, this MPI runs with "
            f"{LEVELS.get(level, level)}"
        )


def process_grid(comm: MPI.Intracomm, options: Namespace, problem: Problem) -> MPI.Cartcomm:
    """Collective. The ranks in a grid; :class:`CommandError` where it does not fit.

    An axis that one rank has whole is not periodic for MPI: a block that is its own neighbor
    needs no message.
    """
    axes = len(problem.shape)
    given = [] if options.grid == ["auto"] else options.grid
    if len(given) > axes:
        raise CommandError(f"--grid {_words(given)}: {len(given)} entries for {axes} axes")
    free = 0 if not given else 1
    grid = [0 if entry == "auto" else entry for entry in given] + [free] * (axes - len(given))
    fixed = prod(entry for entry in grid if entry)
    if comm.size % fixed or (0 not in grid and fixed != comm.size):
        ranks = f"{comm.size} rank{'s' if comm.size > 1 else ''}"
        raise CommandError(f"--grid {_words(given)}: {ranks} cannot be arranged like this")
    grid = MPI.Compute_dims(comm.size, grid)
    for axis, (parts, length) in enumerate(zip(grid, problem.shape, strict=True)):
        if parts > length:
            raise CommandError(
                f"--shape {_words(problem.shape)} has {length} points along axis {axis}, too few "
                f"for {parts} ranks of the process grid {' x '.join(map(str, grid))}"
            )
    around = [each and parts > 1 for each, parts in zip(problem.periodic, grid, strict=True)]
    return comm.Create_cart(grid, around, reorder=False)


def block_of(cart: MPI.Cartcomm, problem: Problem) -> Block:
    """Local. The part of the grid that this rank has."""
    return Block.of(problem.shape, problem.periodic, cart.dims, cart.coords)


def _words(numbers: object) -> str:
    return " ".join(map(str, numbers)) if isinstance(numbers, list | tuple) else str(numbers)
