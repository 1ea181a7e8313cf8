"""``onesided heat``: the heat equation, its halos exchanged in several ways, in turns.

Every way has a state of its own and computes all steps. They take turns, a part of the steps each
time, so that their times can be compared on a machine that is shared.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.failures import CommandError
from onesided.apps.fft import FAILED
from onesided.apps.heat.decomposition import Block, cut
from onesided.apps.heat.field import ROOT, gather, serial
from onesided.apps.heat.halos.registry import REFERENCE, chosen
from onesided.apps.heat.problem import Problem
from onesided.apps.heat.setting import block_of, check_threads, problem_of, process_grid
from onesided.apps.heat.simulation import Simulation
from onesided.apps.heat.team import Team
from onesided.apps.options import settings
from onesided.apps.picture import check_picture, save_slice
from onesided.apps.progress import console, progress
from onesided.apps.report import Report, Row, check_json
from onesided.apps.selection import Candidate, prepare, release
from onesided.apps.timing import rest
from onesided.apps.verdict import Verdict

WARM_UP = 4  # steps before the first round, which begins again at the start
REMARK = (
    "An iteration is a time step, by the slowest rank; a time is the mean over the steps of a "
    "round. communication: what the ranks spend with their halos, waiting included, on average; "
    "compute: all the rest. share: of communication in a step."
)
Times = list[list[float]]


def run(comm: MPI.Intracomm, options: Namespace) -> int:
    """Collective. The command; its exit code is 1 where a verification failed."""
    problem = problem_of(options)
    check_threads(options)
    ways = {way.name: way for way in chosen(options.comm)}
    cart = process_grid(comm, options, problem)
    block = block_of(cart, problem)
    check_json(comm, options)
    check_picture(comm, options.picture)
    out = console(options.terminal) if comm.rank == ROOT else None
    info = {"expected_iterations": str(options.steps), **dict(options.info)}
    with Team(options.threads) as team:

        def make(method: str) -> Simulation:
            return Simulation(cart, problem, block, team, ways[method], info)

        candidates = prepare(comm, list(ways), make, Simulation.free)
        runs = {each.method: each.made for each in candidates if each.made is not None}
        rounds = min(options.rounds, options.steps)
        with progress(out, "heating", rounds * len(runs)) as tick:
            times, communication = _follow(comm, list(runs.values()), options.steps, rounds, tick)
    report = Report("heat", settings(options), _pattern(cart, problem, runs), remarks=[REMARK])
    report.remarks.append(_temperatures(comm, problem, runs))
    verdicts = _verified(comm, problem, block, runs, report) if options.verify else {}
    if options.picture is not None:
        _draw(comm, problem, block, next(iter(runs.values())), options.picture)
    labels = {name: f"{name} ({each.halo.label})" if each.halo.label else name
              for name, each in runs.items()}
    release(comm, candidates, Simulation.free)
    cart.Free()
    spent = dict(zip(runs, times, strict=True))
    shares = dict(zip(runs, communication, strict=True))
    report.rows = [
        _row(each, labels, spent, shares, verdicts) for each in candidates
    ]
    report.finish(comm, out, options.json)
    return FAILED if report.verified is False else 0


def _follow(
    comm: MPI.Intracomm,
    runs: Sequence[Simulation],
    steps: int,
    rounds: int,
    tick: Callable[[], None],
) -> tuple[Times, Times]:
    """Collective. All steps: seconds of a step, and of its communication, by run and round."""
    start = runs[0].problem.initial(runs[0].block.box)
    for each in runs:
        each.load(start)
        each.advance(min(WARM_UP, steps))
        each.load(start)
    times = np.zeros((2, rounds, len(runs)))
    order = list(range(len(runs)))
    for number in range(rounds):
        part = cut(steps, rounds, number)
        count = part.stop - part.start
        for index in order:
            each, before = runs[index], runs[index].communication
            comm.Barrier()
            began = time.perf_counter()
            each.advance(count)
            times[0, number, index] = (time.perf_counter() - began) / count
            times[1, number, index] = (each.communication - before) / count
            tick()
        order.reverse()
    comm.Allreduce(MPI.IN_PLACE, times[0], op=MPI.MAX)
    comm.Allreduce(MPI.IN_PLACE, times[1], op=MPI.SUM)
    times[1] /= comm.size
    whole, communication = (array.T.tolist() for array in times)
    return whole, communication


def _temperatures(comm: MPI.Intracomm, problem: Problem, runs: Mapping[str, Simulation]) -> str:
    """Collective. A sentence on the state at the end; CommandError where one is not finite."""
    for method, each in runs.items():
        finite = comm.allgather(bool(np.isfinite(each.state).all()))
        if not all(finite):
            raise CommandError(
                f"{method}: the temperature is not finite after {each.steps} steps "
                f"(rank {finite.index(False)})"
            )
    first = next(iter(runs.values()))
    state = first.state
    low, high = float(state.min()), float(state.max())
    low, high = comm.allreduce(low, op=MPI.MIN), comm.allreduce(high, op=MPI.MAX)
    mean = comm.allreduce(float(state.sum(dtype=float)), op=MPI.SUM) / prod(problem.shape)
    return (
        f"After {first.steps} steps of {problem.step:.4g}, at time {first.steps * problem.step:.4g}"
        f": temperatures from {low:.4g} to {high:.4g}, {mean:.4g} on average."
    )


def _verified(
    comm: MPI.Intracomm,
    problem: Problem,
    block: Block,
    runs: Mapping[str, Simulation],
    report: Report,
) -> dict[str, Verdict]:
    """Collective. Compare with all steps computed on rank 0: the part of the points that differ."""
    whole = tuple(slice(0, length) for length in problem.shape)
    expected: NDArray[Any] | None = None
    if comm.rank == ROOT:
        expected = serial(problem, next(iter(runs.values())).steps)
    rest(comm)
    verdicts = {}
    for method, each in runs.items():
        field = gather(comm, block, each.state, whole)
        wrong = 0.0 if field is None or expected is None else differing(field, expected)
        verdicts[method] = Verdict(comm.bcast(wrong, root=ROOT), 0.0)
    bad = [method for method, verdict in verdicts.items() if not verdict.passed]
    report.remarks.append(
        f"WRONG: {', '.join(bad)} differ from one rank; error: the part of the points."
        if bad
        else "Verified: every byte is that of one rank alone."
    )
    return verdicts


def differing(field: NDArray[Any], expected: NDArray[Any]) -> float:
    """Local. The part of the points whose bytes are not the same."""
    bits = np.dtype(f"u{field.dtype.itemsize}")
    one, other = (np.ascontiguousarray(array).view(bits) for array in (field, expected))
    return float(np.count_nonzero(one != other)) / field.size


def _draw(
    comm: MPI.Intracomm, problem: Problem, block: Block, one: Simulation, path: str
) -> None:
    """Collective. The temperature; in three dimensions in the middle of the first axis."""
    lengths = [count * problem.spacing for count in problem.shape]
    wanted = [slice(0, count) for count in problem.shape]
    names, place = ("x", "y", "z")[: len(lengths)], ""
    if len(lengths) == 3:
        middle = problem.shape[0] // 2
        wanted[0] = slice(middle, middle + 1)
        place = f" at x = {middle * problem.spacing:.3g}"
    plane = gather(comm, block, one.state, tuple(wanted))
    if plane is not None:
        title = f"Temperature{place}, time {one.steps * problem.step:.4g}"
        plane = plane.reshape(plane.shape[-2:])
        save_slice(path, title, (names[-2], names[-1]), plane, (lengths[-2], lengths[-1]))


def _row(
    each: Candidate[Simulation],
    labels: Mapping[str, str],
    times: Mapping[str, list[float]],
    shares: Mapping[str, list[float]],
    verdicts: Mapping[str, Verdict],
) -> Row:
    """Local."""
    if each.reason:
        return Row({"method": each.method}, reason=each.reason)
    whole, communication = times[each.method], shares[each.method]
    return Row(
        {"method": labels[each.method]},
        whole,
        setup=each.setup + each.freeing,
        against={REFERENCE: times[REFERENCE]},
        details={
            "compute": [all_ - part for all_, part in zip(whole, communication, strict=True)],
            "communication": communication,
        },
        values={"share": sum(communication) / sum(whole)},
        verdict=verdicts.get(each.method),
    )


def _pattern(
    cart: MPI.Cartcomm, problem: Problem, runs: Mapping[str, Simulation]
) -> dict[str, Any]:
    """Collective."""
    first = next(iter(runs.values()))
    return {
        "shape": list(problem.shape),
        "periodic": list(problem.periodic),
        "dtype": problem.dtype.name,
        "spacing": problem.spacing,
        "dt": problem.step,
        "stable_dt": problem.stable_dt,
        "alpha": problem.alpha,
        "grid": list(cart.dims),
        "tiles": [len(first.tiling.outer), len(first.tiling.inner)],
        "halo_bytes": int(cart.allreduce(first.nbytes, op=MPI.MAX)),
        "ranks": cart.size,
    }
