"""``onesided minimd``: molecular dynamics, its ghost atoms exchanged in several ways, in turns.

The mini-application MiniMD of the Mantevo suite, as paper 002 uses it: forward and reverse
communication at every step. What moves only when new neighbor lists are made (atoms that change
their rank, and who is a ghost of whom) goes by messages in all ways.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any

from mpi4py import MPI

from onesided.apps.failures import user_errors
from onesided.apps.mini import overhead
from onesided.apps.mini.row import MiniRow
from onesided.apps.mini.scaling import Stage, scaled, stages
from onesided.apps.mini.way import REFERENCE, by_name, chosen
from onesided.apps.minimd.efficiency import add_efficiencies
from onesided.apps.minimd.kernels.registry import usable
from onesided.apps.minimd.links import ways
from onesided.apps.minimd.setting import base_problem, grid_of, of_stage
from onesided.apps.minimd.stage import ROOT, Experiment, Outcome
from onesided.apps.minimd.thermo import conservation
from onesided.apps.minimd.turns import steps_of_runs
from onesided.apps.options import settings
from onesided.apps.picture import check_picture, save_atoms
from onesided.apps.progress import console, progress
from onesided.apps.report import Listing, Report, check_json
from onesided.apps.spmv import FAILED
from onesided.apps.verdict import Verdict, worst
from onesided.collectives import agreed

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


def run(comm: MPI.Intracomm, options: Namespace) -> int:
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
    check_json(comm, options)
    check_picture(comm, options.picture)
    check_picture(comm, options.overhead, "--overhead")
    out = console(options.terminal) if comm.rank == ROOT else None
    found: list[Outcome] = []
    runs = len(steps_of_runs(problem, options.runs))
    last = max(every, key=lambda stage: stage.ranks)
    with progress(out, "moving", len(every) * len(wanted) * runs) as tick:

        def stage_work(sub: MPI.Intracomm, stage: Stage) -> None:
            number = every.index(stage)
            slab = options.picture is not None and stage is last
            experiment = Experiment(
                stage, problems[number], grids[number], wanted, kernel, options, slab
            )
            found.append(experiment.run(sub, tick))

        scaled(comm, every, stage_work)
    report = Report("minimd", settings(options), {})
    if comm.rank == ROOT:
        rows = [row for outcome in found for row in outcome.rows]
        _tell(report, rows, found, {"kernel": kernel, "ranks": comm.size})
        _draw(options, rows, found)
    report.finish(comm, out, options.json)
    return FAILED if comm.bcast(report.verified, root=ROOT) is False else 0


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


def _draw(options: Namespace, rows: Sequence[MiniRow], found: Sequence[Outcome]) -> None:
    """Local. The atoms in the middle of the box, and the overheads."""
    if options.overhead is not None:
        overhead.draw(options.overhead, "MiniMD", rows)
    for outcome in found:
        if outcome.points is None:
            continue
        title = f"Atoms in the middle of the box, step {outcome.outputs[-1].step}"
        lengths = outcome.problem.lengths[:2]
        cuts = [
            [length * number / parts for number in range(1, parts)]
            for length, parts in zip(lengths, outcome.grid[:2], strict=True)
        ]
        x, y, speed = outcome.points
        save_atoms(options.picture, title, (x, y), speed, lengths, cuts)
