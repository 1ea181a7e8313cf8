"""``onesided minimd``: molecular dynamics, its ghost atoms exchanged in several ways, in turns.

The mini-application MiniMD of the Mantevo suite, as paper 002 uses it: forward and reverse
communication at every step. What moves only when new neighbor lists are made (atoms that change
their rank, and who is a ghost of whom) goes by :meth:`.Grid.migrate` in all ways.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.sweep import Labels, Make
from onesided.apps.bench.timing import Stopwatch, Variant
from onesided.apps.cli.failures import from_rank_0
from onesided.apps.cli.options import Options, box
from onesided.apps.cli.report import METHOD, Listing, Report
from onesided.apps.cli.statistics import Verdict, worst
from onesided.apps.miniapps.halos import REFERENCE, Need, Stage, TwoSided, run_stages, ways
from onesided.apps.miniapps.minimd_atoms import AXES, Links, Problem
from onesided.apps.miniapps.minimd_simulation import (
    PARTS,
    Output,
    Simulation,
    agreement,
    conservation,
)

WARM_UP = 2  # steps of every way before the first run, which begins again at the start
REMARK = (
    "Times are those of a time step, the mean over a run, by the slowest rank; forces, lists and "
    "communication (forward and reverse, waiting included) are parts of it, on average over the "
    "ranks. plans: how often the exchanges were planned, as the room for ghosts did not suffice; "
    "the messages of two-sided have none to spare. All ways must come to the positions and "
    "velocities of the two-sided version, bit by bit; the energy is conserved (kinetic, and of the "
    "potential that is shifted to end at zero). T, U and P are those of Mantevo's output."
)
OUTPUT = {"ranks": ".0f", "step": ".0f", "T": ".6f", "U": ".6f", "P": ".6f", "energy": ".6f"}


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; its exit code is 1 where a verification failed."""
    given: dict[str, Any] = {"steps": options.steps, "dt": options.dt}
    if options.shape is not None:
        given["cells"] = box(options.shape)
    if options.print_every is not None:
        given["thermo"] = options.print_every
    problem = replace(Problem(), **given)
    options.repeats, steps = runs_of(problem, options.repeats)

    def opened(stage: Stage) -> Callable[..., Make]:
        """Cells are those of a rank, one share for each, unless nothing is scaled and options say
        how many the box has."""
        own = problem
        if options.shape is None or stage.scaling:
            shares = MPI.Compute_dims(stage.shares, AXES)
            x, y, z = (count * share for count, share in zip(own.cells, shares, strict=True))
            own = replace(own, cells=(x, y, z))
        return partial(_opened, own, steps, options)

    pattern = {**asdict(problem), "atoms": problem.atoms, "ranks": comm.size}
    report = Report("minimd", options.settings(), pattern, remarks=[REMARK])
    run_stages(comm, options, report, opened)
    lines: list[Sequence[float | None]] = [
        (int(row.labels["ranks"]), *line)
        for row in report.rows
        for line in row.metrics.pop("output", ())
    ]
    report.listings["output"] = Listing("Thermodynamic output", OUTPUT, lines)
    return report.end(comm, options)


def runs_of(problem: Problem, wanted: int) -> tuple[int, int]:
    """Local. How many runs there are, at most so many, and the steps of each.

    They end where new lists are made anyway, so that each has its share of them.
    """
    blocks, rest = divmod(problem.steps, problem.every)
    if rest or not blocks:
        return 1, problem.steps
    count = max(n for n in range(1, min(wanted, blocks) + 1) if blocks % n == 0)
    return count, problem.steps // count


class Course:
    """All steps of all ways, in turns; the first way is the reference.

    In every run each way goes on from the same state, with the same arrays, and computes the same
    steps. They must come to the same state, bit by bit; the next run goes on from there.
    """

    def __init__(self, simulation: Simulation, steps: int) -> None:
        self.simulation, self.steps = simulation, steps
        #: Where the next run begins.
        self.state, self.step = simulation.atoms.state(), 0
        self._ends: dict[str, NDArray[Any]] = {}
        self.names: list[str] = []
        self.outputs: list[Output] = []
        self.differing: dict[str, float] = {}

    def arrive(self, name: str) -> None:
        """Local. Keep the state that a way has come to."""
        self._ends[name] = self.simulation.atoms.state()
        if name == self.names[0]:
            self.outputs += self.simulation.outputs
        if len(self._ends) == len(self.names):
            self.state, self.step = self._ends[self.names[0]], self.step + self.steps
            for each, end in self._ends.items():
                wrong = differing(end, self.state)
                self.differing[each] = max(self.differing.get(each, 0.0), wrong)
            self._ends = {}


def differing(one: NDArray[Any], other: NDArray[Any]) -> float:
    """Local. The part of the atoms of a rank whose bits are not the same."""
    if one.shape != other.shape:
        return 1.0
    first, second = (np.ascontiguousarray(array).view(np.uint64) for array in (one, other))
    wrong = int(np.count_nonzero((first != second).any(axis=0)))
    return wrong / max(int(one.shape[1]), 1)


def _opened(
    problem: Problem, steps: int, options: Options, comm: MPI.Intracomm, stack: ExitStack
) -> Make:
    """Collective. The atoms at the start, and what makes the links of a way."""
    simulation = Simulation(comm, problem)
    stack.callback(simulation.free)
    course = Course(simulation, steps)
    expected: list[Output] | None = None
    if options.verify:
        expected = from_rank_0(comm, lambda: alone(problem, steps, options.repeats))
    info = {"expected_iterations": str(problem.steps), **dict(options.info)}
    apart = comm.Dup()  # once: messages are planned anew with each set of lists, in the time
    stack.callback(apart.Free)
    known: dict[str, Callable[[Need], Any]] = {**ways(), REFERENCE: partial(TwoSided, apart=apart)}

    def make(labels: Labels) -> Variant:
        name = labels[METHOD]
        reference = name == REFERENCE
        links = Links(comm, known[name], info, simulation.border, exact=reference)
        course.names.append(name)
        parts = "x".join(map(str, simulation.block.grid.dims))
        metrics: dict[str, Any] = {"atoms": problem.atoms, "grid": parts}
        watches = {part: Stopwatch() for part in PARTS}
        if reference:
            metrics["output"] = lines = list[list[float]]()

        def resume() -> None:
            simulation.resume(course.state, course.step, links, watches)

        def warm_up() -> None:
            resume()
            simulation.advance(min(WARM_UP, steps))

        def check() -> Verdict:
            wrong = comm.allreduce(course.differing.get(name, 0.0), op=MPI.MAX)
            metrics["plans"] = links.plans
            if not reference or not course.outputs:
                return Verdict(wrong, 0.0)
            lines[:] = [list(each) for each in course.outputs]
            verdicts = [conservation(problem, course.outputs)]
            if expected is not None:
                verdicts.append(agreement(problem, course.outputs, expected))
            return worst(verdicts)

        def free() -> None:
            simulation.links = None
            links.free()

        return Variant(
            partial(simulation.advance, steps), check, before=resume,
            after=partial(course.arrive, name), first=warm_up, parts=watches, free=free,
            steps=lambda: float(steps), used=links.label, metrics=metrics,
        )  # fmt: skip

    return make


def alone(problem: Problem, steps: int, runs: int) -> list[Output]:
    """Local. The output of one rank, whose ghosts are images of its own atoms, and which makes its
    lists at the same steps."""
    simulation = Simulation(MPI.COMM_SELF, problem)
    links = Links(simulation.comm, ways()[REFERENCE], {}, simulation.border, exact=True)
    watches, outputs = {part: Stopwatch() for part in PARTS}, list[Output]()
    try:
        for run in range(runs):
            simulation.resume(simulation.atoms.state(), run * steps, links, watches)
            simulation.advance(steps)
            outputs += simulation.outputs
        return outputs
    finally:
        links.free()
        simulation.free()
