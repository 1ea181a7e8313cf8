"""All steps of all ways, in turns, with their times.

In every round each way goes on from the same state, with the same arrays, and computes the same
steps. They must come to the same state, bit by bit; the next round goes on from there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.heat.decomposition import cut
from onesided.apps.minimd.problem import Problem
from onesided.apps.minimd.simulation import PARTS, Simulation
from onesided.apps.minimd.thermo import Output
from onesided.apps.minimd.ways.links import Links

WARM_UP = 2  # steps of every way before the first round, which begins again at the start


@dataclass
class Course:
    """What came out. ``times``: seconds of a step by the slowest rank, by way and round; ``parts``:
    the same of the parts of a step, on average over the ranks. ``differing``: atoms whose state is
    not that of the reference, of all atoms, by way."""

    times: dict[str, list[float]] = field(default_factory=dict)
    parts: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    differing: dict[str, float] = field(default_factory=dict)
    outputs: list[Output] = field(default_factory=list)


def rounds_of(problem: Problem, wanted: int) -> list[int]:
    """Local. Steps of the rounds, ``wanted`` of them at most.

    Rounds end where new lists are made anyway, so that all rounds have their share of them.
    """
    whole, rest = divmod(problem.steps, problem.every)
    blocks = [problem.every] * whole + [rest] * (rest > 0)
    count = min(wanted, len(blocks))
    return [sum(blocks[cut(len(blocks), count, number)]) for number in range(count)]


def follow(
    simulation: Simulation,
    runs: Mapping[str, Links],
    rounds: list[int],
    tick: Callable[[], None],
) -> Course:
    """Collective. All steps, by all ways, of which the first is the reference."""
    comm, course = simulation.cart, Course()
    state = simulation.atoms.state()
    for links in runs.values():
        simulation.resume(state, 0, links)
        simulation.advance(min(WARM_UP, sum(rounds)))
    simulation.farthest = 0.0
    times = np.zeros((1 + len(PARTS), len(rounds), len(runs)))
    wrong = np.zeros(len(runs))
    order, step = list(range(len(runs))), 0
    names = list(runs)
    for number, count in enumerate(rounds):
        ends: dict[int, NDArray[Any]] = {}
        for index in order:
            simulation.resume(state, step, runs[names[index]])
            times[:, number, index] = np.array(list(_timed(simulation, count))) / count
            ends[index] = simulation.atoms.state()
            if index == 0:
                course.outputs += simulation.outputs
            tick()
        for index, end in ends.items():
            wrong[index] = max(wrong[index], differing(end, ends[0]))
        state, step = ends[0], step + count
        order.reverse()
    simulation.atoms.load(state)
    _gather(comm, course, names, times, wrong)
    return course


def _timed(simulation: Simulation, count: int) -> Iterator[float]:
    """Collective. So many steps: their seconds, and those of their parts."""
    before = simulation.spent.copy()
    simulation.cart.Barrier()
    began = time.perf_counter()
    simulation.advance(count)
    yield time.perf_counter() - began
    yield from simulation.spent - before


def _gather(
    comm: MPI.Intracomm,
    course: Course,
    names: list[str],
    times: NDArray[Any],
    wrong: NDArray[Any],
) -> None:
    """Collective. The same on all ranks."""
    slowest = np.ascontiguousarray(times[0])
    comm.Allreduce(MPI.IN_PLACE, slowest, op=MPI.MAX)
    parts = np.ascontiguousarray(times[1:])
    comm.Allreduce(MPI.IN_PLACE, parts)
    comm.Allreduce(MPI.IN_PLACE, wrong, op=MPI.MAX)
    for index, name in enumerate(names):
        course.times[name] = slowest[:, index].tolist()
        course.parts[name] = {
            what: (parts[number, :, index] / comm.size).tolist()
            for number, what in enumerate(PARTS)
        }
        course.differing[name] = float(wrong[index])


def differing(one: NDArray[Any], other: NDArray[Any]) -> float:
    """Local. The part of the atoms of a rank whose bits are not the same."""
    if one.shape != other.shape:
        return 1.0
    first, second = (np.ascontiguousarray(array).view(np.uint64) for array in (one, other))
    wrong = int(np.count_nonzero((first != second).any(axis=0)))
    return wrong / max(int(one.shape[1]), 1)
