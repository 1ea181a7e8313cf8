"""``onesided minimd``: molecular dynamics, its ghost atoms exchanged in several ways, in turns.

The mini-application MiniMD of the Mantevo suite, as paper 002 uses it: velocity Verlet, forward and
reverse communication at every step. What moves only when new neighbor lists are made (atoms that
change their rank, and who is a ghost of whom) goes by :meth:`.Grid.migrate` in all ways.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from math import exp, isfinite, prod
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.sweep import Labels, Make
from onesided.apps.bench.timing import Stopwatch, Variant
from onesided.apps.cli.failures import CommandError, from_rank_0
from onesided.apps.cli.options import Options, box
from onesided.apps.cli.report import METHOD, Listing, Report
from onesided.apps.cli.statistics import Verdict, worst
from onesided.apps.miniapps.halos import REFERENCE, Need, Stage, TwoSided, run_stages, ways
from onesided.apps.miniapps.minimd_atoms import AXES, Atoms, Block, Links, Problem
from onesided.apps.miniapps.minimd_kernels import Cells, Tally, load
from onesided.collectives import PatternError, agreed

# Where the atoms are at the start, and how they move: the same for any number of ranks.
#
# The velocity of an atom comes from its number in the lattice alone, by the "minimal standard"
# generator of Park and Miller (Communications of the ACM 31, 1988), so that the result is that of
# Mantevo's MiniMD.

MULTIPLIER, MODULUS = 16807, 2**31 - 1
DRAWS = (6, 12, 18)  # which numbers after the seed are the velocity along x, y and z


def lattice(problem: Problem, box: Sequence[slice]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Local. Atoms of a face-centered cubic lattice in a part of the box: positions and numbers.
    Positions have the shape (3, n), numbers count from 1. ``box`` is in half cells."""
    x, y, z = np.meshgrid(*(np.arange(part.start, part.stop) for part in box), indexing="ij")
    taken = (x + y + z) % 2 == 0
    x, y, z = x[taken], y[taken], z[taken]
    wide, deep, _ = problem.halves
    numbers = (z * deep + y) * wide + x + 1
    return 0.5 * problem.constant * np.stack([x, y, z]).astype(float), numbers


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


# Temperature, energy and pressure of all atoms together.

#: Per unit of time, by how much two runs that differ by rounding drift apart: exp(GROWTH t).
GROWTH = 4.0
ROUNDING = 1e-12  # of sums in another order,
TERM = 4e-15  # and more for every atom
MOST = 0.05  # outputs of runs that have nothing in common any more but the energy
#: Part of the kinetic energy by which the total energy may change: of a time step of 0.005.
DRIFT, USUAL_STEP = 5e-3, 0.005


class Output(NamedTuple):
    """A line of thermodynamic output, energies per atom. ``potential`` is that of Mantevo's output,
    whose pairs end abruptly at the cutoff; ``energy`` is conserved: kinetic energy and that of the
    shifted potential."""

    step: int
    temperature: float
    potential: float
    pressure: float
    energy: float


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
    """Local. The largest change of the energy, as a part of the kinetic energy at the start. The
    error of the method is of second order in the time step."""
    first = outputs[0]
    kinetic = max(0.5 * AXES * first.temperature, 1e-300)
    change = float(np.max(np.abs([each.energy - first.energy for each in outputs])))
    return Verdict(change / kinetic, DRIFT * max(1.0, (problem.dt / USUAL_STEP) ** 2))


def agreement(problem: Problem, outputs: Sequence[Output], alone: Sequence[Output]) -> Verdict:
    """Local. The largest relative difference to the output of one rank. What rounding explains
    grows exponentially, as the paths of the atoms are chaotic."""
    base = ROUNDING + TERM * problem.atoms
    verdicts = [Verdict(0.0, base)]
    for one, other in zip(outputs, alone, strict=True):
        grown = min(MOST, base * exp(min(GROWTH * one.step * problem.dt, 100.0)))
        pairs = zip(one[1:], other[1:], strict=True)
        verdicts += [Verdict(abs(a - b) / max(abs(b), 1.0), grown) for a, b in pairs]
    return worst(verdicts)


# -- steps ----------------------------------------------------------------------------------------

PARTS = FORCES, LISTS, COMMUNICATION = "forces", "lists", "communication"


class Simulation:
    """One set of atoms for all ways of exchanging, which take turns: ``resume`` sets the scene.
    ``border``: who has which ghosts; ``outputs``: lines of output since then."""

    def __init__(self, comm: MPI.Intracomm, problem: Problem) -> None:
        """Collective. The atoms at the start, with their lists."""
        self.comm, self.problem = comm, problem
        self.block = Block(comm, problem)
        self.kernel = load(problem)
        self.links: Links | None = None
        self.step = 0
        self.outputs: list[Output] = []
        self.first: Output | None = None
        with agreed(comm, f"{problem.atoms} atoms"):
            x, numbers = lattice(problem, self.block.grid.box)
            v = velocities(numbers)
        warm(comm, problem, v)
        self.atoms = Atoms(np.concatenate([x, v, numbers[None]]))
        self.rebuild()

    def resume(
        self, state: NDArray[Any], step: int, links: Links, watches: Mapping[str, Stopwatch]
    ) -> None:
        """Collective. Go on from a state of a step, with new lists and forces. The parts of what
        follows are under ``watches``, by the names of ``PARTS``."""
        self._compute = watches[FORCES].timed(self.kernel.forces)
        self._rebuild = watches[LISTS].timed(self.rebuild)
        self._forward = watches[COMMUNICATION].timed(links.forward)
        self._reverse = watches[COMMUNICATION].timed(links.reverse)
        self.links, self.step, self.outputs = links, step, []
        self.atoms = Atoms(state)
        self.rebuild()
        tally = self._forces(step == 0)
        if step == 0:
            self._write(tally)

    def advance(self, steps: int) -> None:
        """Collective. So many time steps. :class:`CommandError` on all ranks where the atoms have
        blown up."""
        problem = self.problem
        with np.errstate(all="ignore"):
            for _ in range(steps):
                self.step += 1
                self._kick()
                self.atoms.x[:, : self.atoms.own] += problem.dt * self.atoms.v
                if self.step % problem.every == 0:
                    self._rebuild()
                else:
                    self._forward(self.atoms.x, self.atoms.own, self.border)
                due = problem.due(self.step)
                tally = self._forces(due)
                self._kick()
                if due:
                    self._write(tally)

    def rebuild(self) -> None:
        """Collective. Atoms move to the ranks that they have come to; new ghosts, new lists."""
        block, problem = self.block, self.problem
        try:
            state = block.migrate(self.atoms.state())
        except PatternError as error:  # the same on every rank
            raise CommandError(
                f"step {self.step}: there are atoms at no number; the time step {problem.dt:g} is "
                "too long"
            ) from error
        cells = Cells.of(state[:AXES], state.shape[1], block.low, block.high, problem.reach)
        self.atoms = atoms = Atoms(state[:, cells.order])
        self.border = block.find_ghosts(atoms)
        if self.links is not None:
            self.links.fit(self.border)
        self.kernel.build(atoms.x, atoms.own, block.low, block.high)

    def free(self) -> None:
        """Collective."""
        self.block.grid.Free()

    def _kick(self) -> None:
        """Local. Half a time step of the velocities."""
        atoms = self.atoms
        atoms.v += 0.5 * self.problem.dt * atoms.f[:, : atoms.own]

    def _forces(self, tally: bool) -> Tally:
        """Collective. The forces on own atoms."""
        atoms = self.atoms
        found: Tally = self._compute(atoms.x, atoms.f, atoms.own, tally)
        self._reverse(atoms.f, atoms.own, self.border)
        return found

    def _write(self, tally: Tally) -> None:
        """Collective. A line of output."""
        line = output(self.comm, self.problem, self.atoms.v, tally, self.step)
        self.outputs.append(line)
        if self.first is None:
            self.first = line
        check_energy(self.problem, self.first, line)


# -- the command -----------------------------------------------------------------------------------

WARM_UP = 2  # steps of every way before the first run, which begins again at the start
REMARK = (
    "Times are those of a time step, the mean over a run, by the slowest rank; forces, lists and "
    "communication (forward and reverse, waiting included) are parts of it, on average over the "
    "ranks. plans: how often the exchanges were planned, as the room for ghosts did not suffice; "
    "the messages of two-sided have none to spare. All ways must come to the positions and "
    "velocities of the two-sided version, bit by bit; the energy is conserved (kinetic, and of the "
    "potential that is shifted to end at zero). T, U and P are those of Mantevo's output."
)
FEWER = "{} of the {} runs of --repeats: equally long, they end where new lists are made anyway."
OUTPUT = {"ranks": ".0f", "step": ".0f", "T": ".6f", "U": ".6f", "P": ".6f", "energy": ".6f"}


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; its exit code is 1 where a verification failed."""
    problem = Problem(steps=options.steps, dt=options.dt, thermo=options.print_every)
    if options.shape is not None:
        problem = replace(problem, cells=box(options.shape))
    wanted = options.repeats
    options.repeats, steps = runs_of(problem, wanted)

    def opened(stage: Stage) -> Callable[..., Make]:
        """Cells are those of a rank, one share for each, unless nothing is scaled and options say
        how many the box has."""
        own = problem
        if options.shape is None or stage.scaling:
            shares = MPI.Compute_dims(stage.shares, AXES)
            x, y, z = (count * share for count, share in zip(own.cells, shares, strict=True))
            own = replace(own, cells=(x, y, z))
        return partial(_opened, own, steps, options)

    pattern = {**asdict(problem), "ranks": comm.size}  # how many atoms, rows tell
    report = Report("minimd", options.settings(), pattern, remarks=[REMARK])
    if options.repeats < wanted:
        report.remarks.append(FEWER.format(options.repeats, wanted))
    run_stages(comm, options, report, opened)
    lines: list[Sequence[float | None]] = [
        (int(row.labels["ranks"]), *line)
        for row in report.rows
        for line in row.metrics.pop("output", ())
    ]
    report.listings["output"] = Listing("Thermodynamic output", OUTPUT, lines)
    return report.end(comm, options)


def runs_of(problem: Problem, wanted: int) -> tuple[int, int]:
    """Local. How many runs there are, at most so many, and the steps of each. They end where new
    lists are made anyway, so that each has its share of them."""
    blocks, rest = divmod(problem.steps, problem.every)
    if rest or not blocks:
        return 1, problem.steps
    count = max(n for n in range(1, min(wanted, blocks) + 1) if blocks % n == 0)
    return count, problem.steps // count


class Course:
    """All steps of all ways, in turns; the first way is the reference. In every run each way goes
    on from the same state, with the same arrays, and computes the same steps. They must come to the
    same state, bit by bit; the next run goes on from there."""

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
