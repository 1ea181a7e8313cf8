"""``onesided navier-stokes``: the Taylor-Green vortex, with energy and dissipation over time.

Pseudo-spectral in space, dealiased by the 3/2 rule, Runge-Kutta of fourth order in time. What is
known about this flow is compared with: its first instants, and published values. Several methods
follow the same flow side by side.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from mpi4py import MPI

from onesided.apps.checkpoint import State
from onesided.apps.failures import CommandError
from onesided.apps.fft import FAILED, used_method
from onesided.apps.flow import Flow
from onesided.apps.history import History
from onesided.apps.options import settings
from onesided.apps.picture import check_picture, save_slice
from onesided.apps.progress import console, progress
from onesided.apps.report import Report, Row, check_json
from onesided.apps.selection import Candidate, chosen, prepare, release
from onesided.apps.taylor_green import REYNOLDS
from onesided.apps.verdict import Verdict

SHAPE, DT, END, PADDING = (32, 32, 32), 0.01, 1.0, 1.5
LEAST = 4  # modes along an axis
LINES = 10  # of the table, where nothing else is wanted
DIFFERENCE = 1e-10  # of the states of two methods; rounding grows with time
REMARK = "An iteration is a time step, timed from rank to rank as it comes, without a barrier."


def run(comm: MPI.Intracomm, options: Namespace) -> int:
    """Collective. The command; its exit code is 1 where something known is missed."""
    names = chosen(options.comm, baseline=False)
    check_json(comm, options)
    check_picture(comm, options.picture)
    state = _start(comm, options, names)
    steps = _steps(options, state)
    candidates = prepare(comm, names, _maker(comm, options, state, steps), Flow.destroy)
    flows = {each.method: each.made for each in candidates if each.made is not None}
    out = console(options.terminal) if comm.rank == 0 else None
    history = History(state.shape, state.nu, state.dt)
    with progress(out, "following", steps) as tick, np.errstate(all="ignore"):
        times, state = _follow(comm, options, flows, state, steps, history, tick)
    report = Report("navier-stokes", settings(options), _pattern(comm, state, flows))
    report.remarks += [REMARK, *history.remarks()]
    report.listings["history"] = history.listing()
    report.verdicts = history.verdicts() | _differences(comm, flows)
    first = next(iter(flows.values()))
    if options.picture is not None:
        _draw(first, state, options.picture)
    labels = {method: used_method(flow.plan, method) for method, flow in flows.items()}
    release(comm, candidates, Flow.destroy)
    report.rows = [_row(each, labels, times) for each in candidates]
    report.finish(comm, out, options.json)
    return FAILED if report.verified is False else 0


def _start(comm: MPI.Intracomm, options: Namespace, names: list[str]) -> State:
    """Collective. Where the run begins and what it is: from a checkpoint, options winning."""
    nu = options.nu if options.reynolds is None else 1.0 / options.reynolds
    given = {
        "nu": nu,
        "dt": options.dt,
        "padding": options.padding,
        "backend": options.backend,
        "effort": options.effort,
    }
    if options.save_every is not None and options.checkpoint is None:
        raise CommandError("--save-every needs --checkpoint FILE")
    if options.checkpoint is not None and len(names) > 1:
        raise CommandError(f"--checkpoint needs one method, --comm names {len(names)}")
    shape = options.shape
    if shape is not None:
        shape = tuple(shape) * (3 if len(shape) == 1 else 1)
        if len(shape) != 3 or min(shape) < LEAST:
            raise CommandError(
                f"--shape {' '.join(map(str, options.shape))}: one number or three, "
                f"{LEAST} or more each"
            )
    if options.restart is None:
        state = State(0, 0.0, shape or SHAPE, 1.0 / REYNOLDS, DT, PADDING, "auto", "estimate")
    else:
        state = State.read(comm, options.restart)
        if shape not in (None, state.shape):
            raise CommandError(f"{options.restart} has modes {state.shape}, --shape {shape}")
    state = replace(state, **{name: value for name, value in given.items() if value is not None})
    if state.padding < 1.0:
        raise CommandError(f"--padding {state.padding:g}: less than one point per mode")
    return state


def _steps(options: Namespace, state: State) -> int:
    """Local. How many time steps to take."""
    if options.steps is not None:
        return int(options.steps)
    end = END if options.time is None else options.time
    steps = round((end - state.time) / state.dt)
    if steps < 1:
        raise CommandError(
            f"--time {end:g} is less than a time step of {state.dt:g} after the start at "
            f"{state.time:g}"
        )
    return steps


def _maker(
    comm: MPI.Intracomm, options: Namespace, state: State, steps: int
) -> Callable[[str], Flow]:
    """Local. What makes the flow of a method, and brings it to its start."""
    grid = None if options.grid == ["auto"] else tuple(options.grid)
    info = {"expected_iterations": str(4 * steps), **dict(options.info)}

    def make(method: str) -> Flow:
        return Flow(
            comm,
            state.shape,
            state.nu,
            padding=state.padding,
            grid=grid,
            backend=state.backend,
            effort=state.effort,
            method=method,
            info=info,
        )

    return make


def _follow(
    comm: MPI.Intracomm,
    options: Namespace,
    flows: dict[str, Flow],
    state: State,
    steps: int,
    history: History,
    tick: Callable[[], None],
) -> tuple[dict[str, list[float]], State]:
    """Collective. All time steps: seconds of each by method, and where the run ends."""
    for flow in flows.values():
        if options.restart is None:
            flow.taylor_green()
        else:
            state.load(comm, options.restart, flow.velocity_hat)
    first = next(iter(flows.values()))
    every = options.every or max(1, steps // LINES)
    history.add(state.time, first)
    times: dict[str, list[float]] = {method: [] for method in flows}
    for number in range(1, steps + 1):
        for method, flow in flows.items():
            began = time.perf_counter()
            flow.step(state.dt)
            times[method].append(time.perf_counter() - began)
        state = replace(state, step=state.step + 1, time=state.time + state.dt)
        last = number == steps
        if last or number % every == 0:
            history.add(state.time, first)
        if options.checkpoint is not None and (last or _due(options, number)):
            state.save(comm, options.checkpoint, first.velocity_hat)
        tick()
    slowest = np.array(list(times.values()))
    comm.Allreduce(MPI.IN_PLACE, slowest, op=MPI.MAX)
    return dict(zip(times, slowest.tolist(), strict=True)), state


def _due(options: Namespace, number: int) -> bool:
    return options.save_every is not None and number % options.save_every == 0


def _differences(comm: MPI.Intracomm, flows: dict[str, Flow]) -> dict[str, Verdict]:
    """Collective. How far the states of the methods are apart at the end."""
    first, *others = (np.asarray(flow.velocity_hat) for flow in flows.values())
    if not others:
        return {}
    own = [float(np.max(np.abs(each - first), initial=0.0)) for each in others]
    scale = comm.allreduce(float(np.max(np.abs(first), initial=0.0)), op=MPI.MAX)
    apart = float(np.max(comm.allgather(own))) / scale
    return {f"difference of the {len(flows)} methods": Verdict(apart, DIFFERENCE)}


def _row(each: Candidate[Flow], labels: dict[str, str], times: dict[str, list[float]]) -> Row:
    if each.reason:
        return Row({"method": each.method}, reason=each.reason)
    labelled = {"method": labels[each.method]}
    return Row(labelled, times[each.method], setup=each.setup + each.freeing)


def _draw(flow: Flow, state: State, path: str) -> None:
    """Collective. The size of the vorticity in the plane through the middle of the first axis."""
    flow.find_vorticity()
    points = flow.plan.global_shape(False)[-3:]
    plane = flow.vorticity.get((slice(None), points[0] // 2, slice(None), slice(None)))
    if plane is not None:
        x = 2 * (points[0] // 2) / points[0]
        title = f"Vorticity at x = {x:.3g} pi, time {state.time:.4g}"
        size = np.sqrt((plane**2).sum(axis=0))
        save_slice(path, title, ("y", "z"), size, (2 * np.pi, 2 * np.pi))


def _pattern(comm: MPI.Intracomm, state: State, flows: dict[str, Flow]) -> dict[str, Any]:
    plan = next(iter(flows.values())).plan
    return {
        "modes": list(state.shape),
        "points": [int(n) for n in plan.global_shape(False)[-3:]],
        "nu": state.nu,
        "dt": state.dt,
        "step": state.step,
        "time": state.time,
        "grid": [sub.size for sub in plan.subcomm],
        "kernel": plan.backend,
        "ranks": comm.size,
    }
