"""``onesided minimd``: molecular dynamics, its ghost atoms exchanged in several ways, in turns.

The mini-application MiniMD of the Mantevo suite, as paper 002 uses it: forward and reverse
communication at every step. What moves only when new neighbor lists are made (atoms that change
their rank, and who is a ghost of whom) goes by messages in all ways.
"""

from __future__ import annotations

from argparse import Namespace
from statistics import median
from typing import Any

from mpi4py import MPI

from onesided.apps.evidence.ranks import among
from onesided.apps.fft import FAILED
from onesided.apps.minimd.experiment import EFFICIENCY, ROOT, Experiment, Outcome
from onesided.apps.minimd.kernels.registry import usable
from onesided.apps.minimd.options import STRONG
from onesided.apps.minimd.problem import Problem
from onesided.apps.minimd.setting import base_problem, grid_of, rank_counts, sized
from onesided.apps.minimd.thermo import conservation
from onesided.apps.minimd.turns import rounds_of
from onesided.apps.minimd.ways.registry import Way, chosen
from onesided.apps.options import settings
from onesided.apps.picture import check_picture, save_atoms
from onesided.apps.progress import console, progress
from onesided.apps.report import Listing, Report, Row, check_json

REMARK = (
    "An iteration is a time step, by the slowest rank; a time is the mean over the steps of a "
    "round. forces, lists and communication (forward and reverse) are parts of it, on average over "
    "the ranks. plans: how often the links were planned, because the room for ghosts did not "
    "suffice; KiB: this room, forward and reverse. error: the part of the atoms whose position or "
    "velocity is not, bit by bit, that of the two-sided version."
)
OUTPUT = {"ranks": ".0f", "step": ".0f", "T": ".6f", "U": ".6f", "P": ".6f", "energy": ".6f"}


def run(comm: MPI.Intracomm, options: Namespace) -> int:
    """Collective. The command; its exit code is 1 where a verification failed."""
    problem, given = base_problem(comm, options)
    ways, kernel = chosen(options.comm), usable(options.kernel)
    counts = rank_counts(comm, options)
    problems = {count: sized(problem, given, options, count) for count in counts}
    if options.scaling == STRONG:
        problems = dict.fromkeys(counts, sized(problem, given, options, max(counts)))
    grids = {count: grid_of(problems[count], options, count) for count in counts}
    check_json(comm, options)
    check_picture(comm, options.picture)
    out = console(options.terminal) if comm.rank == ROOT else None
    outcomes: dict[int, Outcome] = {}
    rounds = len(rounds_of(problem, options.rounds))
    with progress(out, "moving", rounds * len(ways) * len(counts)) as tick:
        for count in counts:
            experiment = Experiment(
                problems[count],
                grids[count],
                ways,
                kernel,
                options,
                {"ranks": str(count)} if options.scaling else {},
                slab=options.picture is not None and count == max(counts),
            )

            def work(
                sub: MPI.Intracomm, experiment: Experiment = experiment, count: int = count
            ) -> None:
                outcomes[count] = experiment.run(sub, tick)

            among(comm, count, work)
    report = _report(options, outcomes, ways, kernel) if comm.rank == ROOT else _empty(options)
    if comm.rank == ROOT and options.picture is not None:
        _draw(options.picture, outcomes[max(counts)])
    wrong = comm.bcast(report.verified is False, root=ROOT)
    report.finish(comm, out, options.json)
    return FAILED if wrong else 0


def _empty(options: Namespace) -> Report:
    """Local. Of a rank that does not tell anything."""
    return Report("minimd", settings(options), {})


def _report(
    options: Namespace, outcomes: dict[int, Outcome], ways: list[Way], kernel: str
) -> Report:
    """Local."""
    report = _empty(options)
    last = outcomes[max(outcomes)]
    report.pattern = {**_pattern(last), "kernel": kernel, "ranks": max(outcomes)}
    listing = Listing("Thermodynamic output", OUTPUT)
    for count, outcome in outcomes.items():
        report.rows += outcome.rows
        for line in outcome.outputs:
            listing.rows.append((float(count), float(line.step), *line.numbers))
        where = f", {count} rank{'s' if count > 1 else ''}" if options.scaling else ""
        report.verdicts |= {f"{what}{where}": each for what, each in outcome.verdicts.items()}
    report.listings["output"] = listing
    if options.scaling:
        _efficiencies(options, outcomes, len(ways))
    report.remarks = [REMARK, _energy(last), _moves(last), _judgement(report)]
    return report


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


def _efficiencies(options: Namespace, outcomes: dict[int, Outcome], ways: int) -> None:
    """Local. Against the fewest ranks, by the same way."""
    fewest = min(outcomes)
    for number in range(ways):
        first = outcomes[fewest].rows[number]
        for count, outcome in outcomes.items():
            row = outcome.rows[number]
            if first.reason or row.reason:
                continue
            gain = median(first.times) / median(row.times)
            if options.scaling == STRONG:
                gain *= fewest / count
            row.values = {**row.values, EFFICIENCY: gain}


def _energy(outcome: Outcome) -> str:
    """Local. A sentence on what is conserved."""
    change = conservation(outcome.problem, outcome.outputs).error
    return (
        "T, U and P are those of Mantevo's output; energy is kinetic and of the potential that is "
        f"shifted to end at zero. It changed by {change:.1e} of the kinetic energy at the start."
    )


def _moves(outcome: Outcome) -> str:
    """Local. A sentence on the neighbor lists."""
    half = 0.5 * outcome.problem.skin
    moved = f"Atoms moved up to {outcome.farthest:.3f} between two sets of neighbor lists"
    if outcome.farthest <= half:
        return f"{moved}, no farther than half the skin, {half:.3f}."
    return (
        f"{moved}, farther than half the skin, {half:.3f}: a few pairs near the cutoff may have "
        "been missed."
    )


def _judgement(report: Report) -> str:
    """Local. A sentence on the states of the ways."""
    wrong = [row.labels["method"] for row in report.rows if _is_wrong(row)]
    if wrong:
        return f"WRONG: {', '.join(dict.fromkeys(wrong))} came to another state than two-sided."
    return "All ways came to the same state, bit by bit."


def _is_wrong(row: Row) -> bool:
    return row.verdict is not None and not row.verdict.passed


def _draw(path: str, outcome: Outcome) -> None:
    """Local. The atoms in the middle of the box."""
    problem: Problem = outcome.problem
    if outcome.points is None:
        return
    step = outcome.outputs[-1].step
    title = f"Atoms in the middle of the box, step {step}"
    lines = [
        [length * number / parts for number in range(1, parts)]
        for length, parts in zip(problem.lengths[:2], outcome.grid[:2], strict=True)
    ]
    x, y, speed = outcome.points[:3]
    save_atoms(path, title, (x, y), speed, problem.lengths[:2], lines)
