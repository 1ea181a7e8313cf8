"""From the options of ``onesided minimd`` to the problems that are to be computed."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mpi4py import MPI

from onesided.apps.evidence.ranks import counted
from onesided.apps.failures import CommandError, words
from onesided.apps.minimd.decomposition import Grid, grids, process_grid
from onesided.apps.minimd.input import parse
from onesided.apps.minimd.options import WEAK
from onesided.apps.minimd.problem import Problem

NUMBERS = "steps dt temperature density every cutoff skin thermo".split()
ROOT = 0


def base_problem(comm: MPI.Intracomm, options: Namespace) -> tuple[Problem, bool]:
    """Collective. What the file and the options say, and whether they say how many cells.

    :class:`CommandError` on all ranks for a file that cannot be read, and for numbers that do
    not fit each other.
    """
    problem, trouble = Problem(), ""
    if comm.rank == ROOT and options.input is not None:
        try:
            problem = _read(options.input)
        except CommandError as error:
            trouble = str(error)
    problem, trouble = comm.bcast((problem, trouble), root=ROOT)
    if trouble:
        raise CommandError(trouble)
    given: dict[str, Any] = {
        name: getattr(options, name) for name in NUMBERS if getattr(options, name) is not None
    }
    if options.cells is not None:
        given["cells"] = tuple(options.cells)
    problem = replace(problem, **given)
    check(problem)
    return problem, options.cells is not None or options.input is not None


def _read(name: str) -> Problem:
    try:
        return parse(Path(name).read_text(encoding="utf-8"), name)
    except OSError as error:
        raise CommandError(words(error)) from error
    except UnicodeError as error:
        raise CommandError(f"{name}: no text, {words(error)}") from error


def check(problem: Problem) -> None:
    """Local. :class:`CommandError` for numbers that mean nothing."""
    positive = {
        "the size": min(problem.cells),
        "the number of steps": problem.steps,
        "the time step": problem.dt,
        "the temperature": problem.temperature,
        "the density": problem.density,
        "the number of steps between neighbor lists": problem.every,
        "the cutoff": problem.cutoff,
        "epsilon": problem.epsilon,
        "sigma": problem.sigma,
    }
    for what, number in positive.items():
        if not 0 < number < float("inf"):
            raise CommandError(f"{what} is {number}, not above zero")
    for what, number in {"the skin": problem.skin, "steps between output": problem.thermo}.items():
        if not 0 <= number < float("inf"):
            raise CommandError(f"{what}: {number} is below zero, or no number")


def rank_counts(comm: MPI.Intracomm, options: Namespace) -> list[int]:
    """Local. On how many ranks it is computed; :class:`CommandError` for more than there are."""
    if options.scaling is None:
        if options.ranks_list:
            raise CommandError("--ranks-list needs --scaling")
        return [comm.size]
    usual = [1 << power for power in range(comm.size.bit_length())]
    return counted(comm.size, options.ranks_list, [*usual, comm.size])


def sized(problem: Problem, sized_already: bool, options: Namespace, ranks: int) -> Problem:
    """Local. The problem for a number of ranks: in weak scaling its cells are those of a rank."""
    if options.scaling != WEAK and sized_already:
        return problem
    x, y, z = problem.cells
    i, j, k = shape_of(ranks, options.grid)
    return replace(problem, cells=(x * i, y * j, z * k))


def shape_of(ranks: int, given: Sequence[int | str]) -> Grid:
    """Local. A process grid for boxes that grow with it: the one nearest to a cube."""
    entries = [entry if isinstance(entry, int) else 0 for entry in given]
    if len(entries) == 3 and all(entries):
        return entries[0], entries[1], entries[2]
    return min(grids(ranks), key=lambda grid: (max(grid) - min(grid), grid[::-1]))


def grid_of(problem: Problem, options: Namespace, ranks: int) -> Grid:
    """Local. The process grid; :class:`CommandError` where the box is too small for it."""
    given = [] if options.grid == ["auto"] else options.grid
    return process_grid(problem, ranks, given)
