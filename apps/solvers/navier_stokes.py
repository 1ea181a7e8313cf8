"""``onesided navier-stokes``: the Taylor-Green vortex, with energy and dissipation over time.

Pseudo-spectral in space, dealiased by the 3/2 rule, Runge-Kutta of fourth order in time. Published
values of this flow are compared with. Several methods follow the same flow side by side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.choices import chosen
from onesided.apps.bench.store import Part
from onesided.apps.bench.sweep import Case, Labels, Make, sweep
from onesided.apps.bench.timing import Variant
from onesided.apps.cli.failures import CommandError, by_rank_0
from onesided.apps.cli.options import Options, box
from onesided.apps.cli.report import BASELINE, METHOD, Listing, Report
from onesided.apps.cli.statistics import Verdict, worst
from onesided.apps.report.figures import save_slice
from onesided.apps.solvers.checkpoint import Checkpoint, check_checkpoint
from onesided.apps.solvers.flow import Flow
from onesided.apps.solvers.poisson import largest
from onesided.apps.tools.fft import error_of_blocks, used_method
from onesided.pencilfft.io.hdf5 import HDF5File


@dataclass(frozen=True)
class State:
    """Where a run stands, and what it is: modes, viscosity, time step, kernels."""

    step: int
    time: float
    shape: tuple[int, ...]
    nu: float
    dt: float
    backend: str
    effort: str

    def save(self, file: Checkpoint, velocity_hat: Any) -> None:
        """Collective. Write it with the velocity in spectral space; CommandError if it fails."""

        def write(to: HDF5File, name: str, step: int, attributes: Mapping[str, Any]) -> None:
            to.write(step, {name: [velocity_hat]}, attributes=attributes)

        facts = asdict(self)
        file.save(facts.pop("step"), facts, write)

    @classmethod
    def read(cls, file: Checkpoint) -> State:
        """Collective. What a file holds beside the velocity; CommandError without a checkpoint."""
        step, found = file.read()
        shape = tuple(int(n) for n in found["shape"])
        time, nu, dt = (float(found[name]) for name in ("time", "nu", "dt"))
        return cls(step, time, shape, nu, dt, str(found["backend"]), str(found["effort"]))


# What is known about the Taylor-Green vortex: its start, and published values.
#
# On a cube of side 2 pi, with velocity and length 1, the Reynolds number is one over the viscosity:
#
#     u = (sin x cos y cos z, -cos x sin y cos z, 0)
#
# Sources: G. I. Taylor and A. E. Green (1937), Proc. R. Soc. A 158, 499; W. M. van Rees
# et al. (2011), J. Comput. Phys. 230, 2794, whose spectral solution with 512^3 points is the
# reference of case C3.5 of the International Workshops on High-Order CFD Methods; M. Mortensen
# and H. P. Langtangen (2016), Comput. Phys. Commun. 203, 53 (energy at t = 0.1).

REYNOLDS = 1600.0  # of the published values that follow
PUBLISHED_TIME, PUBLISHED_ENERGY = 0.1, 0.124953117517
PUBLISHED_SOURCE = "Mortensen and Langtangen 2016, 32^3"
PEAK_TIME, PEAK_DISSIPATION = 8.97, 0.0128575
PEAK_SOURCE = "van Rees et al. 2011, 512^3"


COLUMNS = {"time": ".4g", "energy": ".10f", "dissipation": ".6e", "divergence": ".1e"}
EARLY_MODES = 16  # along each axis, for the flow of the first instants
PEAK_MODES = 64  # with which the peak of the dissipation begins to show
ROUNDING = 1e-12
PUBLISHED_DIGITS = 1e-10  # of the published energy
PEAK_TOLERANCE = 0.15


class Moment(NamedTuple):
    """What is known of a flow at one time. Dissipation is 2 nu times the enstrophy."""

    time: float
    energy: float
    enstrophy: float
    divergence: float


class History:
    """Local. Moments of the Taylor-Green vortex of so many modes, and their verdicts."""

    def __init__(self, shape: Sequence[int], nu: float, dt: float) -> None:
        self._shape, self._nu, self._dt = tuple(shape), nu, dt
        self.moments: list[Moment] = []

    def add(self, time: float, flow: Flow) -> None:
        """Collective. Look at the flow; :class:`CommandError` where it has blown up."""
        moment = Moment(time, flow.energy(), flow.enstrophy(), flow.divergence())
        if not math.isfinite(moment.enstrophy):
            raise CommandError(
                f"the flow has blown up by time {time:.4g}: --dt {self._dt:g} is too long"
            )
        self.moments.append(moment)

    def listing(self) -> Listing:
        """Local. The table over time."""
        modes = " x ".join(map(str, self._shape))
        viscosity = f"Re = {1 / self._nu:.6g}" if self._nu else "without viscosity"
        title = f"Taylor-Green vortex, {viscosity}, {modes} modes, time step {self._dt:g}"
        return Listing(title, COLUMNS, [
            (time, energy, 2 * self._nu * enstrophy, divergence)
            for time, energy, enstrophy, divergence in self.moments
        ])  # fmt: skip

    def verdicts(self) -> dict[str, Verdict]:
        """Local. What can be checked with these moments, by what it is."""
        first, last, modes = self.moments[0], self.moments[-1], min(self._shape)
        divergence = max(each.divergence for each in self.moments)
        found = {"divergence relative to vorticity": Verdict(divergence, ROUNDING)}
        if self._nu == 0:
            lost = abs(last.energy / first.energy - 1.0)
            allowed = self._of_time_step(self.moments)
            found["energy lost without viscosity"] = Verdict(lost, allowed)
        if not math.isclose(self._nu, 1 / REYNOLDS):
            return found
        for each in self.moments:
            if math.isclose(each.time, PUBLISHED_TIME) and modes >= EARLY_MODES:
                error = abs(each.energy / PUBLISHED_ENERGY - 1.0)
                what = f"energy at t = {PUBLISHED_TIME}, {PUBLISHED_SOURCE}"
                found[what] = Verdict(error, PUBLISHED_DIGITS + self._of_time_step([each]))
        peak = max(self.moments, key=lambda each: each.enstrophy)
        seen = first.time < PEAK_TIME - 2.0 and last.time > PEAK_TIME + 1.0 and peak is not last
        if seen and modes >= PEAK_MODES:
            error = abs(2 * self._nu * peak.enstrophy / PEAK_DISSIPATION - 1.0)
            found[f"peak of the dissipation, {PEAK_SOURCE}"] = Verdict(error, PEAK_TOLERANCE)
        return found

    def _of_time_step(self, moments: Sequence[Moment]) -> float:
        """Relative error that the time steps explain: of fourth order in the fastest strain."""
        strain = math.sqrt(2 * max(each.enstrophy for each in moments))
        span = moments[-1].time - moments[0].time
        return ROUNDING + max(1.0, strain * span) * (self._dt * strain) ** 4


SHAPE, DT, END = (32, 32, 32), 0.01, 1.0
LEAST = 4  # modes along an axis
ROUNDED = 1e-6  # of a time step, by which rounding may miss a whole number of them
LINES = 10  # of the table, where nothing else is wanted
DIFFERENCE = 1e-10  # of the states of two methods; rounding grows with time
REMARK = "An iteration is a time step, timed from a barrier on by the slowest rank."


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; its exit code is 1 where something known is missed."""
    names = chosen(options.comm, baseline=False)
    state = _start(comm, options, names)
    steps = _steps(options, state)
    history = History(state.shape, state.nu, state.dt)
    pattern = {**asdict(state), "modes": list(state.shape), "steps": steps, "ranks": comm.size}
    report = Report("navier-stokes", options.settings(), pattern, remarks=[REMARK])
    case = Case({}, [{METHOD: name} for name in names],
                partial(_opened, options, state, steps, history), told=partial(_told, history),
                keep=options.checkpoint is None and options.picture is None)  # fmt: skip
    sweep(comm, options.but(iterations=steps, seconds=math.inf), report, [case], "following")
    history.moments = [Moment(*each) for each in report.pattern.get("history", [])]
    if history.moments:
        report.listings["series"] = history.listing()
        report.verdicts = {**report.verdicts, **history.verdicts()}
    return report.end(comm, options.but(picture=None))


def _told(history: History, part: Part) -> None:
    part.pattern = {"history": list(map(list, history.moments))}


def _start(comm: MPI.Intracomm, options: Options, names: list[str]) -> State:
    """Collective. Where the run begins and what it is: from a checkpoint, options winning."""
    nu = options.nu if options.reynolds is None else 1.0 / options.reynolds
    given = {"nu": nu} | {name: getattr(options, name) for name in ("dt", "backend", "effort")}
    check_checkpoint(options)
    if options.checkpoint is not None and len(names) > 1:
        raise CommandError(f"--checkpoint needs one method, --comm names {len(names)}")
    shape = None if options.shape is None else box(options.shape)
    if shape is not None and min(shape) < LEAST:
        raise CommandError(f"--shape {' '.join(map(str, options.shape))}: {LEAST} or more each")
    if options.restart is None:
        state = State(0, 0.0, shape or SHAPE, 1.0 / REYNOLDS, DT, "auto", "estimate")
    else:
        state = State.read(_checkpoint(comm, options.restart))
        if shape not in (None, state.shape):
            raise CommandError(f"{options.restart} has modes {state.shape}, --shape {shape}")
    return replace(state, **{name: value for name, value in given.items() if value is not None})


def _checkpoint(comm: MPI.Intracomm, path: str) -> Checkpoint:
    return Checkpoint(comm, path, "navier-stokes", "velocity_hat")


def _steps(options: Options, state: State) -> int:
    """Local. How many time steps to take."""
    if options.steps is not None:
        return int(options.steps)
    end = END if options.time is None else options.time
    exact = (end - state.time) / state.dt
    steps = round(exact)
    if steps < 1 or (options.time is not None and abs(exact - steps) > ROUNDED):
        words = f"no whole number of time steps of {state.dt:g} after {state.time:g}"
        raise CommandError(f"--time {end:g} is {words}")
    return steps


def _made(comm: MPI.Intracomm, options: Options, state: State, steps: int, method: str) -> Flow:
    """Collective. The flow of a method, which is to be brought to its start."""
    info = {"expected_iterations": str(4 * steps), **dict(options.info)}
    return Flow(comm, state.shape, state.nu, grid=options.process_grid, backend=state.backend,
                effort=state.effort, method=method, info=info)  # fmt: skip


def _opened(
    options: Options, begin: State, steps: int, history: History,
    comm: MPI.Intracomm, stack: ExitStack,
) -> Make:
    """Collective. What makes the flow of a method; the first one is looked at, and saved."""
    flows: list[Flow] = []
    every = options.print_every or max(1, steps // LINES)
    state = begin

    def look(number: int) -> None:
        """After a step of the first flow."""
        nonlocal state
        state = replace(state, step=begin.step + number, time=begin.time + number * begin.dt)
        last = number == steps
        if last or number % every == 0:
            history.add(state.time, flows[0])
        due = last or bool(number and options.save_every and number % options.save_every == 0)
        if options.checkpoint is not None and due:
            state.save(_checkpoint(comm, options.checkpoint), flows[0].velocity_hat)

    def make(labels: Labels) -> Variant:
        name = labels[METHOD]
        flow = _made(comm, options, begin, steps, name)
        flows.append(flow)
        leads, taken = len(flows) == 1, count(1)

        def start() -> None:
            _begin(comm, options, begin, flow)
            if leads:
                look(0)

        def after() -> None:
            if leads:
                look(next(taken))

        def check() -> Verdict | None:
            if not state.step > begin.step:
                return None
            verdicts = [] if leads else [_difference(comm, flow, flows[0])]
            if leads and options.verify:
                where = (slice(None), *flow.plan.local_slice(True)[-3:])
                error = error_of_blocks(comm, where, np.array(flow.velocity_hat),
                              partial(_alone, options, begin, steps))  # fmt: skip
                verdicts.append(Verdict(error, DIFFERENCE))
            if leads and options.picture is not None:
                _draw(comm, flow, state, options.picture)
            return worst(verdicts) if verdicts else None

        step = np.errstate(all="ignore")(partial(flow.step, begin.dt))
        return Variant(step, check, after=after, first=start, free=flow.destroy, set_up=True,
                       used=used_method(flow.plan), metrics={"kernel": flow.plan.backend})

    return make


def _begin(comm: MPI.Intracomm, options: Options, state: State, flow: Flow) -> None:
    """Collective. The velocity at the start."""
    if options.restart is None:
        flow.taylor_green()
    else:
        velocity: Any = flow.velocity_hat
        checkpoint = _checkpoint(comm, options.restart)
        checkpoint.load(state.step, lambda file, *what: file.read(velocity, *what))


def _alone(options: Options, begin: State, steps: int) -> tuple[NDArray[Any], float]:
    """Local. The velocity of this rank alone after the same steps, and its largest value."""
    alone = _made(MPI.COMM_SELF, options.but(grid=["auto"]), begin, steps, BASELINE)
    try:
        _begin(MPI.COMM_SELF, options, begin, alone)
        for _ in range(steps):
            alone.step(begin.dt)
        whole = np.array(alone.velocity_hat)
        return whole, float(np.max(np.abs(whole)))
    finally:
        alone.destroy()


def _difference(comm: MPI.Intracomm, flow: Flow, first: Flow) -> Verdict:
    """Collective. How far the state of a method is from that of the first at the end."""
    one, other = (np.asarray(each.velocity_hat) for each in (flow, first))
    return Verdict(largest(comm, one - other) / largest(comm, other), DIFFERENCE)


def _draw(comm: MPI.Intracomm, flow: Flow, state: State, path: str) -> None:
    """Collective. The size of the vorticity in the plane through the middle of the first axis."""
    flow.find_vorticity()
    points = flow.plan.global_shape(False)[-3:]
    plane: Any = flow.vorticity.get((slice(None), points[0] // 2, slice(None), slice(None)))
    x = 2 * (points[0] // 2) / points[0]
    title = f"Vorticity at x = {x:.3g} pi, time {state.time:.4g}"

    def paint() -> None:
        size = np.sqrt((plane**2).sum(axis=0))
        save_slice(path, title, ("y", "z"), size, (2 * np.pi, 2 * np.pi))

    by_rank_0(comm, paint)
