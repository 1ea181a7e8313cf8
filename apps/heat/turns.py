"""All steps of all ways, in turns, with their times."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
from mpi4py import MPI

from onesided.apps.heat.decomposition import cut
from onesided.apps.heat.simulation import Simulation

WARM_UP = 4  # steps before the first round, which begins again at the start
Times = list[list[float]]


def follow(
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
        each.resume()
        each.advance(min(WARM_UP, steps))
        each.load(start)
    times = np.zeros((2, rounds, len(runs)))
    order = list(range(len(runs)))
    for number in range(rounds):
        part = cut(steps, rounds, number)
        count = part.stop - part.start
        for index in order:
            each, before = runs[index], runs[index].communication
            each.resume()
            comm.Barrier()
            began = time.perf_counter()
            each.advance(count)
            times[0, number, index] = (time.perf_counter() - began) / count
            times[1, number, index] = (each.communication - before) / count
            each.pause()
            tick()
        order.reverse()
    comm.Allreduce(MPI.IN_PLACE, times[0], op=MPI.MAX)
    comm.Allreduce(MPI.IN_PLACE, times[1], op=MPI.SUM)
    times[1] /= comm.size
    whole, communication = (array.T.tolist() for array in times)
    return whole, communication
