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

from onesided.apps.bench import store
from onesided.apps.cli.failures import CommandError, user_errors, words
from onesided.apps.cli.options import Options, box
from onesided.apps.cli.progress import console, progress
from onesided.apps.cli.report import Listing, Report
from onesided.apps.cli.statistics import Verdict, worst
from onesided.apps.miniapps import overhead
from onesided.apps.miniapps.minimd_atoms import Parts, fits, grids, process_grid
from onesided.apps.miniapps.minimd_kernels import usable
from onesided.apps.miniapps.minimd_links import ways
from onesided.apps.miniapps.minimd_problem import Problem
from onesided.apps.miniapps.minimd_simulation import conservation
from onesided.apps.miniapps.minimd_stage import ROOT, Experiment, Outcome, steps_of_runs
from onesided.apps.miniapps.overhead import ranks_of
from onesided.apps.miniapps.way import (
    REFERENCE,
    STRONG,
    MiniRow,
    Stage,
    by_name,
    chosen,
    scaled,
    stages,
)
from onesided.apps.report.chart import save_atoms
from onesided.collectives import agreed

# How well the ways scale: against their own times on the fewest ranks of a scaling. Pure.

EFFICIENCY = "efficiency"


def add_efficiencies(rows: Sequence[MiniRow]) -> None:
    """Local. To the shares of all rows of a scaling that were timed; 1 on the fewest ranks.

    By means over the runs: in weak scaling the time stays, in strong scaling it shrinks with the
    number of ranks, where a way scales well.
    """
    first: dict[tuple[str, str], MiniRow] = {}
    for row in sorted(rows, key=ranks_of):
        scaling = row.labels.get("scaling", "")
        if row.reason or not scaling:
            continue
        fewest = first.setdefault((scaling, row.labels["method"]), row)
        gain = fewest.mean / row.mean
        if scaling == STRONG:
            gain *= ranks_of(fewest) / ranks_of(row)
        row.shares = {**row.shares, EFFICIENCY: gain}


# The input file of Mantevo's MiniMD (``in.lj.miniMD``): fixed lines, values first.
#
# What follows the values of a line is a comment. The first two lines are comments altogether. Files
# of earlier versions lack the line with epsilon and sigma, which are 1 then.

LATER, SIZE = "epsilon and sigma", "size of problem"
HEAD = 2  # lines before the first value
#: What a line has: a name for errors, and how its values are read.
Line = tuple[str, Sequence[Callable[[str], Any]]]
LINES: tuple[Line, ...] = (
    ("units", (str,)),
    ("data file", (str,)),
    ("force style", (str,)),
    (LATER, (float, float)),
    (SIZE, (int, int, int)),
    ("timesteps", (int,)),
    ("timestep size", (float,)),
    ("initial temperature", (float,)),
    ("density", (float,)),
    ("steps between two neighbor lists", (int,)),
    ("force cutoff and skin", (float, float)),
    ("steps between two lines of output", (int,)),
)
FIXED = {"units": "lj", "data file": "none", "force style": "lj"}


def parse(text: str, name: str) -> Problem:
    """Local. The problem in a file called ``name``; :class:`CommandError` names a wrong line."""
    lines = text.splitlines()
    form = _form(lines)
    if len(lines) < HEAD + len(form):
        raise CommandError(f"{name}: {len(lines)} lines; MiniMD's input has {HEAD + len(form)}")
    found: dict[str, list[Any]] = {LATER: [1.0, 1.0]}
    for number, (line, (what, kinds)) in enumerate(
        zip(lines[HEAD:], form, strict=False), HEAD + 1
    ):
        where = f"{name}, line {number}"
        found[what] = _values(line, what, kinds, where)
        only = FIXED.get(what)
        if only is not None and found[what] != [only]:
            raise CommandError(f"{where}: {what} {found[what][0]!r}, only {only!r} is known")
    cells = found[SIZE]
    cutoff, skin = found["force cutoff and skin"]
    epsilon, sigma = found[LATER]
    return Problem(
        cells=(cells[0], cells[1], cells[2]),
        steps=found["timesteps"][0],
        dt=found["timestep size"][0],
        temperature=found["initial temperature"][0],
        density=found["density"][0],
        every=found["steps between two neighbor lists"][0],
        cutoff=cutoff,
        skin=skin,
        thermo=found["steps between two lines of output"][0],
        epsilon=epsilon,
        sigma=sigma,
    )


def _form(lines: Sequence[str]) -> Sequence[Line]:
    """Local. The lines that a file has: in earlier versions the size stands in place of epsilon."""
    place = HEAD + [what for what, _ in LINES].index(LATER)
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
        name: getattr(options, option)
        for option, name in NUMBERS.items()
        if getattr(options, option) is not None
    }
    if options.shape is not None:
        given["cells"] = box(options.shape)
    problem = replace(problem, **given)
    check(problem)
    return problem, options.shape is not None or options.input is not None


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
    wanted = by_name(chosen(options.comm, ways()))
    problem, given = base_problem(comm, options)
    every = stages(comm.size, options)
    problems = [of_stage(problem, given, options, stage) for stage in every]
    grids = [
        grid_of(mine, options, stage.ranks) for mine, stage in zip(problems, every, strict=True)
    ]
    with user_errors(), agreed(comm):
        kernel = usable(options.kernel)
    out = console(options.terminal) if comm.rank == ROOT else None
    found: list[Outcome] = []
    runs = len(steps_of_runs(problem, options.repeats))
    last = max(every, key=lambda stage: stage.ranks)
    report = Report("minimd", options.settings(), {})
    parts = store.Parts(comm, report, options.json)
    with progress(out, "moving", len(every) * len(wanted) * runs) as tick:

        def stage_work(sub: MPI.Intracomm, stage: Stage) -> None:
            number = every.index(stage)
            slab = options.picture is not None and stage is last
            experiment = Experiment(
                stage, problems[number], grids[number], wanted, kernel, options, slab
            )

            def measure(part: store.Part) -> None:
                experiment.run(sub, tick).keep(part)

            if slab:
                found.append(experiment.run(sub, tick))
            else:
                part = parts.add(stage.name, measure)
                found.append(Outcome.of(part, stage, problems[number], grids[number]))

        scaled(comm, every, stage_work)
    if comm.rank == ROOT:
        rows = [row for outcome in found for row in outcome.rows]
        _tell(report, rows, found, {"kernel": kernel, "ranks": comm.size})
        _draw(options, rows, found)
    report.finish(comm, out, options.json)
    return report.code(comm)


def _tell(
    report: Report, rows: Sequence[MiniRow], found: Sequence[Outcome], job: Mapping[str, Any]
) -> None:
    """Local. What the stages have found, the largest of them in more detail."""
    last = max(found, key=lambda outcome: outcome.stage.ranks)
    add_efficiencies(rows)
    report.rows = list(rows)
    report.pattern = {**_pattern(last), **job, "stages": [_stage(each) for each in found]}
    report.listings = {**_outputs(found), **overhead.listings(rows)}
    for what in last.verdicts:
        report.verdicts[what] = worst([each.verdicts[what] for each in found])
    report.remarks = [REMARK, overhead.REMARK, _energy(last), _moves(found), _judgement(rows)]


def _stage(outcome: Outcome) -> dict[str, Any]:
    """Local."""
    return {
        "scaling": outcome.stage.scaling,
        "ranks": outcome.stage.ranks,
        "cells": list(outcome.problem.cells),
        "grid": list(outcome.grid),
    }


def _outputs(found: Sequence[Outcome]) -> dict[str, Listing]:
    """Local. A table for each scaling, by its name in JSON."""
    listings: dict[str, Listing] = {}
    for outcome in found:
        scaling = outcome.stage.scaling
        name = f"output_{scaling}" if scaling else "output"
        title = f"Thermodynamic output, {scaling} scaling" if scaling else "Thermodynamic output"
        rows = listings.setdefault(name, Listing(title, OUTPUT)).rows
        for line in outcome.outputs:
            rows.append((float(outcome.stage.ranks), float(line.step), *line.numbers))
    return listings


def _pattern(outcome: Outcome) -> dict[str, Any]:
    """Local."""
    problem = outcome.problem
    return {
        "cells": list(problem.cells),
        "atoms": problem.atoms,
        "atoms of a rank": [outcome.fewest, outcome.most],
        "ghosts": outcome.ghosts,
        "grid": list(outcome.grid),
        "steps": problem.steps,
        "dt": problem.dt,
        "temperature": problem.temperature,
        "density": problem.density,
        "cutoff": problem.cutoff,
        "skin": problem.skin,
        "every": problem.every,
    }


def _energy(outcome: Outcome) -> str:
    """Local. A sentence on what is conserved."""
    change = conservation(outcome.problem, outcome.outputs).error
    return (
        "T, U and P are those of Mantevo's output; energy is kinetic and of the potential that is "
        f"shifted to end at zero. It changed by {change:.1e} of the kinetic energy at the start."
    )


def _moves(found: Sequence[Outcome]) -> str:
    """Local. A sentence on the neighbor lists."""
    half = 0.5 * found[0].problem.skin
    farthest = max(outcome.farthest for outcome in found)
    moved = f"Atoms moved up to {farthest:.3f} between two sets of neighbor lists"
    if farthest <= half:
        return f"{moved}, no farther than half the skin, {half:.3f}."
    return (
        f"{moved}, farther than half the skin, {half:.3f}: a few pairs near the cutoff may have "
        "been missed."
    )


def _judgement(rows: Sequence[MiniRow]) -> str:
    """Local. A sentence on the states of the ways."""
    wrong = [row.labels["method"] for row in rows if _is_wrong(row.verdict)]
    if wrong:
        told = ", ".join(dict.fromkeys(wrong))
        return f"WRONG: {told} came to another state than {REFERENCE}."
    return "All ways came to the same state, bit by bit."


def _is_wrong(verdict: Verdict | None) -> bool:
    return verdict is not None and not verdict.passed


def _draw(options: Options, rows: Sequence[MiniRow], found: Sequence[Outcome]) -> None:
    """Local. The atoms in the middle of the box, and the overheads."""
    overhead.draw(options, "MiniMD", rows)
    for outcome in found:
        if outcome.points is None or options.picture is None:
            continue
        title = f"Atoms in the middle of the box, step {outcome.outputs[-1].step}"
        lengths = outcome.problem.lengths[:2]
        cuts = [
            [length * number / parts for number in range(1, parts)]
            for length, parts in zip(lengths, outcome.grid[:2], strict=True)
        ]
        x, y, speed = outcome.points
        save_atoms(options.picture, title, (x, y), speed, lengths, cuts)
