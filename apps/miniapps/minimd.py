"""``onesided minimd``: molecular dynamics, its ghost atoms exchanged in several ways, in turns.

The mini-application MiniMD of the Mantevo suite, as paper 002 uses it: forward and reverse
communication at every step. What moves only when new neighbor lists are made (atoms that change
their rank, and who is a ghost of whom) goes by messages in all ways.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mpi4py import MPI

from onesided.apps.bench.selection import ways_of
from onesided.apps.bench.store import Part
from onesided.apps.cli.failures import CommandError, from_rank_0, user_errors, words
from onesided.apps.cli.options import Options, box
from onesided.apps.cli.report import Listing, Report, Row
from onesided.apps.miniapps import overhead
from onesided.apps.miniapps.minimd_atoms import Parts, fits, grids, process_grid
from onesided.apps.miniapps.minimd_kernels import usable
from onesided.apps.miniapps.minimd_links import ways
from onesided.apps.miniapps.minimd_problem import Problem
from onesided.apps.miniapps.minimd_simulation import Output, conservation
from onesided.apps.miniapps.minimd_stage import experiment, steps_of_runs
from onesided.apps.miniapps.overhead import ranks_of
from onesided.apps.miniapps.stages import STRONG, Stage, Tick, largest, measured, stages, tell
from onesided.apps.report.result import REFERENCE
from onesided.collectives import agreed

EFFICIENCY = "efficiency"


def add_efficiencies(rows: Sequence[Row]) -> None:
    """Local. To all rows of a scaling that were timed, how well their way scales.

    Against its own time on the fewest ranks, where it is 1; by means over the runs. In weak
    scaling the time stays, in strong scaling it shrinks with the number of ranks, where a way
    scales well.
    """
    first: dict[tuple[str, str], Row] = {}
    for row in sorted(rows, key=ranks_of):
        scaling = row.labels.get("scaling", "")
        if row.reason or not scaling:
            continue
        fewest = first.setdefault((scaling, row.labels["method"]), row)
        gain = fewest.mean / row.mean
        if scaling == STRONG:
            gain *= ranks_of(fewest) / ranks_of(row)
        tell(row, shares={EFFICIENCY: gain})


# The input file of Mantevo's MiniMD (``in.lj.miniMD``): fixed lines, values first.
#
# What follows the values of a line is a comment. The first two lines are comments altogether. Files
# of earlier versions lack the line with epsilon and sigma, which are 1 then.

LATER, SIZE = "epsilon and sigma", "size of problem"
HEAD = 2  # lines before the first value
#: What a line has: a name for errors, how its values are read, and what they are of a problem.
Line = tuple[str, Sequence[Callable[[str], Any]], str]
LINES: tuple[Line, ...] = (
    ("units", (str,), ""),
    ("data file", (str,), ""),
    ("force style", (str,), ""),
    (LATER, (float, float), "epsilon sigma"),
    (SIZE, (int, int, int), "cells"),
    ("timesteps", (int,), "steps"),
    ("timestep size", (float,), "dt"),
    ("initial temperature", (float,), "temperature"),
    ("density", (float,), "density"),
    ("steps between two neighbor lists", (int,), "every"),
    ("force cutoff and skin", (float, float), "cutoff skin"),
    ("steps between two lines of output", (int,), "thermo"),
)
FIXED = {"units": "lj", "data file": "none", "force style": "lj"}


def parse(text: str, name: str) -> Problem:
    """Local. The problem in a file called ``name``; :class:`CommandError` names a wrong line."""
    lines = text.splitlines()
    form = _form(lines)
    if len(lines) < HEAD + len(form):
        raise CommandError(f"{name}: {len(lines)} lines; MiniMD's input has {HEAD + len(form)}")
    found: dict[str, Any] = {}
    pairs = zip(lines[HEAD:], form, strict=False)
    for number, (line, (what, kinds, names)) in enumerate(pairs, HEAD + 1):
        where = f"{name}, line {number}"
        values = _values(line, what, kinds, where)
        only = FIXED.get(what, values[0])
        if values[0] != only:
            raise CommandError(f"{where}: {what} {values[0]!r}, only {only!r} is known")
        if what == SIZE:
            found[names] = tuple(values)
        else:
            found |= zip(names.split(), values, strict=False)  # what is fixed has no name
    return Problem(**found)


def _form(lines: Sequence[str]) -> Sequence[Line]:
    """Local. The lines that a file has: in earlier versions the size stands in place of epsilon."""
    place = HEAD + [line[0] for line in LINES].index(LATER)
    words = lines[place].split()[:3] if len(lines) > place else []
    if len(words) == 3 and all(word.isdecimal() for word in words):
        return [line for line in LINES if line[0] != LATER]
    return LINES


def _values(
    line: str, what: str, kinds: Sequence[Callable[[str], Any]], where: str
) -> list[Any]:
    words = line.split()
    try:
        if len(words) < len(kinds):
            raise ValueError(line)
        return [kind(word) for kind, word in zip(kinds, words, strict=False)]
    except ValueError as error:
        raise CommandError(f"{where}: {line.strip()!r} is not {what}") from error


# From the options of ``onesided minimd`` to the problems that are to be computed.

#: Options that are numbers of the problem, and their names there.
NUMBERS = {name: name for name in "steps dt temperature density cutoff skin".split()} | {
    "neighbor_every": "every",
    "print_every": "thermo",
}


def base_problem(comm: MPI.Intracomm, options: Options) -> tuple[Problem, bool]:
    """Collective. What the file and the options say, and whether they say how many cells.

    :class:`CommandError` on all ranks for a file that cannot be read, and for numbers that do
    not fit each other.
    """
    problem = from_rank_0(comm, lambda: _read(options.input))
    given: dict[str, Any] = {
        name: getattr(options, option)
        for option, name in NUMBERS.items()
        if getattr(options, option) is not None
    }
    if options.shape is not None:
        given["cells"] = box(options.shape)
    problem = replace(problem, **given)
    check(problem)
    return problem, options.shape is not None or options.input is not None


def _read(name: str | None) -> Problem:
    """Local. The standard problem without a file."""
    if name is None:
        return Problem()
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


def of_stage(problem: Problem, given: bool, options: Options, stage: Stage) -> Problem:
    """Local. The problem of a stage: its cells are those of a rank, one share for each.

    Unless nothing is scaled and it was ``given`` how many cells the box has.
    """
    if given and not stage.scaling:
        return problem
    x, y, z = problem.cells
    i, j, k = shape_of(stage.shares, options.grid)
    return replace(problem, cells=(x * i, y * j, z * k))


def shape_of(shares: int, given: Sequence[int | str]) -> Parts:
    """Local. How shares of the same shape are put together to a box: as near to a cube as can be.

    Like the process grid that is ``given``, where there are as many ranks.
    """
    every = list(grids(shares))
    fitting = [grid for grid in every if fits(grid, given)]
    return min(fitting or every, key=lambda grid: (max(grid) - min(grid), grid[::-1]))


def grid_of(problem: Problem, options: Options, ranks: int) -> Parts:
    """Local. The process grid; :class:`CommandError` where the box is too small for it."""
    return process_grid(problem, ranks, options.process_grid or ())


REMARK = (
    "Times are those of a time step, the mean over a run, by the slowest rank; forces, lists and "
    "communication (forward and reverse, waiting included) are parts of it, on average over the "
    "ranks. plans: how often the links were planned, because the room for ghosts did not suffice; "
    "KiB: this room, forward and reverse, which persistent methods send as a whole. error: "
    "the part of the atoms whose position or velocity is not, bit by bit, that of the two-sided "
    "version. The runs are of different steps, whose times may differ in all methods alike; vs "
    f"{REFERENCE} is of the same steps."
)
OUTPUT = {"ranks": ".0f", "step": ".0f", "T": ".6f", "U": ".6f", "P": ".6f", "energy": ".6f"}


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; its exit code is 1 where a verification failed."""
    wanted = ways_of(options.comm, ways(), REFERENCE)
    problem, given = base_problem(comm, options)
    every = stages(comm.size, options)
    problems = {stage: of_stage(problem, given, options, stage) for stage in every}
    grids = {stage: grid_of(problems[stage], options, stage.ranks) for stage in every}
    with user_errors(), agreed(comm):
        kernel = usable(options.kernel)
    last = largest(every)

    def work(sub: MPI.Intracomm, stage: Stage, part: Part, tick: Tick) -> None:
        picture = options.picture if stage is last else None
        experiment(
            sub, stage, problems[stage], grids[stage], wanted, kernel, options, part, tick, picture
        )

    report = Report("minimd", options.settings(), {})
    turns = len(wanted) * len(steps_of_runs(problem, options.repeats))
    drawn = last if options.picture is not None else None
    parts = measured(comm, options, report, every, turns, work, drawn)
    if comm.rank == 0:
        found = dict(zip(every, parts, strict=True))
        add_efficiencies(report.rows)
        told = overhead.told(every, lambda stage: {
            "cells": list(problems[stage].cells), "grid": list(grids[stage]),
        })  # fmt: skip
        pattern = _pattern(problems[last], grids[last], found[last])
        report.pattern = {**pattern, "kernel": kernel, "ranks": comm.size, "stages": told}
        report.listings = _outputs(found)
        moves, energy = _moves(problem, found), _energy(problems[last], found[last])
        report.remarks = [REMARK, energy, moves, _judgement(report.rows)]
    return overhead.finish(comm, options, report, "MiniMD")


def _of(part: Part) -> list[Output]:
    """Local. The output of a stage."""
    return [Output(**each) for each in part.more["outputs"]]


def _outputs(found: Mapping[Stage, Part]) -> dict[str, Listing]:
    """Local. A table for each scaling, by its name in JSON."""
    listings: dict[str, Listing] = {}
    for stage, part in found.items():
        name = f"output_{stage.scaling}" if stage.scaling else "output"
        more = f", {stage.scaling} scaling" if stage.scaling else ""
        listing = listings.setdefault(name, Listing(f"Thermodynamic output{more}", OUTPUT))
        listing.rows += [(stage.ranks, line.step, *line.numbers) for line in _of(part)]
    return listings


def _pattern(problem: Problem, grid: Parts, part: Part) -> dict[str, Any]:
    return {
        "cells": list(problem.cells),
        "atoms": problem.atoms,
        "atoms of a rank": [part.more["fewest"], part.more["most"]],
        "ghosts": part.more["ghosts"],
        "grid": list(grid),
        "steps": problem.steps,
        "dt": problem.dt,
        "temperature": problem.temperature,
        "density": problem.density,
        "cutoff": problem.cutoff,
        "skin": problem.skin,
        "every": problem.every,
    }


def _energy(problem: Problem, part: Part) -> str:
    """Local. A sentence on what is conserved."""
    change = conservation(problem, _of(part)).error
    return (
        "T, U and P are those of Mantevo's output; energy is kinetic and of the potential that is "
        f"shifted to end at zero. It changed by {change:.1e} of the kinetic energy at the start."
    )


def _moves(problem: Problem, found: Mapping[Stage, Part]) -> str:
    """Local. A sentence on the neighbor lists."""
    half = 0.5 * problem.skin
    farthest = max(part.more["farthest"] for part in found.values())
    moved = f"Atoms moved up to {farthest:.3f} between two sets of neighbor lists"
    if farthest <= half:
        return f"{moved}, no farther than half the skin, {half:.3f}."
    return (
        f"{moved}, farther than half the skin, {half:.3f}: a few pairs near the cutoff may have "
        "been missed."
    )


def _judgement(rows: Sequence[Row]) -> str:
    """Local. A sentence on the states of the ways."""
    wrong = [
        row.labels["method"]
        for row in rows
        if row.verdict is not None and not row.verdict.passed
    ]
    if wrong:
        told = ", ".join(dict.fromkeys(wrong))
        return f"WRONG: {told} came to another state than {REFERENCE}."
    return "All ways came to the same state, bit by bit."
