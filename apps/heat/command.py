"""``onesided heat``: the heat equation, its halos exchanged in several ways, in turns.

Every way has a state of its own and computes all steps. They take turns, a part of the steps each
time, so that their times can be compared on a machine that is shared.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from mpi4py import MPI

from onesided.apps.fft import FAILED
from onesided.apps.heat.halos.registry import REFERENCE, chosen
from onesided.apps.heat.outcome import check_finite, draw, judgement, temperatures, verified
from onesided.apps.heat.setting import block_of, check_threads, problem_of, process_grid
from onesided.apps.heat.simulation import ROOT, Simulation
from onesided.apps.heat.stencil import settings as stencil_settings
from onesided.apps.heat.turns import follow
from onesided.apps.options import settings
from onesided.apps.picture import check_picture
from onesided.apps.progress import console, progress
from onesided.apps.report import Report, Row, check_json
from onesided.apps.selection import Candidate, prepare, release
from onesided.apps.team import Team
from onesided.apps.verdict import Verdict
from onesided.collectives import Grid

REMARK = (
    "An iteration is a time step, by the slowest rank; a time is the mean over the steps of a "
    "round. communication: what the ranks spend with their halos, waiting included, on average; "
    "compute: all the rest. share: of communication in a step."
)


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
    periodic = [bool(each) for each in cart.periods]
    grid = Grid(cart, problem.shape, periodic=periodic, dims=cart.dims, ghosts="faces")
    arrays = grid.zeros(dtype=problem.dtype), grid.zeros(dtype=problem.dtype)  # walls are 0
    with Team(options.threads, stencil_settings) as team:

        def make(name: str) -> Simulation:
            return Simulation(cart, grid, problem, block, arrays, team, ways[name], options)

        candidates = prepare(comm, list(ways), make, Simulation.free)
        runs = {each.method: each.made for each in candidates if each.made is not None}
        rounds = min(options.rounds, options.steps)
        with progress(out, "heating", rounds * len(runs)) as tick:
            lists = follow(comm, list(runs.values()), options.steps, rounds, tick)
    first = next(iter(runs.values()))
    check_finite(comm, runs)
    report = Report("heat", settings(options), _pattern(cart, first), remarks=[REMARK])
    report.remarks.append(temperatures(comm, first))
    verdicts = verified(comm, runs) if options.verify else {}
    if options.verify:
        report.remarks.append(judgement(verdicts))
    if options.picture is not None:
        draw(comm, first, options.picture)
    labels = {name: each.label for name, each in runs.items()}
    release(comm, candidates, Simulation.free)
    grid.Free()
    cart.Free()
    times, communication = (dict(zip(runs, each, strict=True)) for each in lists)
    report.rows = [_row(each, labels, times, communication, verdicts) for each in candidates]
    report.finish(comm, out, options.json)
    return FAILED if report.verified is False else 0


def _row(
    each: Candidate[Simulation],
    labels: Mapping[str, str],
    times: Mapping[str, list[float]],
    communication: Mapping[str, list[float]],
    verdicts: Mapping[str, Verdict],
) -> Row:
    """Local."""
    if each.reason:
        return Row({"method": each.method}, reason=each.reason)
    whole, halo = times[each.method], communication[each.method]
    return Row(
        {"method": labels[each.method]},
        whole,
        setup=each.setup + each.freeing,
        against={name: times[name] for name in (REFERENCE,) if name in times},
        details={
            "compute": [step - part for step, part in zip(whole, halo, strict=True)],
            "communication": halo,
        },
        values={"share": sum(halo) / sum(whole)},
        verdict=verdicts.get(each.method),
    )


def _pattern(cart: MPI.Cartcomm, one: Simulation) -> dict[str, Any]:
    """Collective."""
    problem = one.problem
    return {
        "shape": list(problem.shape),
        "periodic": list(problem.periodic),
        "dtype": problem.dtype.name,
        "spacing": problem.spacing,
        "dt": problem.step,
        "stable_dt": problem.stable_dt,
        "alpha": problem.alpha,
        "grid": list(cart.dims),
        "tiles": [len(one.tiling.outer), len(one.tiling.inner)],
        "halo_bytes": int(cart.allreduce(one.nbytes, op=MPI.MAX)),
        "ranks": cart.size,
    }
