"""From the options of ``onesided minimd`` to the problems that are to be computed."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mpi4py import MPI

from onesided.apps.failures import CommandError, words
from onesided.apps.mini.scaling import Stage
from onesided.apps.minimd.decomposition import AUTO, Grid, fits, grids, process_grid
from onesided.apps.minimd.input import parse
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


def of_stage(problem: Problem, given: bool, options: Namespace, stage: Stage) -> Problem:
    """Local. The problem of a stage: its cells are those of a rank, one share for each.

    Unless nothing is scaled and it was ``given`` how many cells the box has.
    """
    if given and not stage.scaling:
        return problem
    x, y, z = problem.cells
    i, j, k = shape_of(stage.shares, options.grid)
    return replace(problem, cells=(x * i, y * j, z * k))


def shape_of(shares: int, given: Sequence[int | str]) -> Grid:
    """Local. How shares of the same shape are put together to a box: as near to a cube as can be.

    Like the process grid that is ``given``, where there are as many ranks.
    """
    every = list(grids(shares))
    fitting = [grid for grid in every if fits(grid, given)]
    return min(fitting or every, key=lambda grid: (max(grid) - min(grid), grid[::-1]))


def grid_of(problem: Problem, options: Namespace, ranks: int) -> Grid:
    """Local. The process grid; :class:`CommandError` where the box is too small for it."""
    given = [] if options.grid == [AUTO] else options.grid
    return process_grid(problem, ranks, given)
