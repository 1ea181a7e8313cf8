"""How long each of several calls takes for the same task."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from time import perf_counter, thread_time

import numpy as np

from onesided.collectives.program import address
from onesided.collectives.scripts import script
from onesided.pencilfft.kernels.protocol import Layout, Run, Task
from onesided.pencilfft.kernels.ways import SOURCE, TARGET, expanded

#: Seconds after which no further round of runs begins; in a brief measurement.
BUDGET, BRIEF_BUDGET = 0.02, 0.002
#: Rounds in which the candidates take turns, if there is time for them.
RUNS = 15
#: A candidate this many times slower than the best one is not run again.
HOPELESS = 2.0
#: Bytes from the start of a page to the target: copies between equal offsets are slower.
TARGET_OFFSET = 2112
#: Most bytes that the arrays of a measurement may span together.
MEMORY = 1 << 26
#: Most bytes of the larger array of a brief measurement, which tries so many lines of it.
BRIEF_MEMORY = 1 << 17


def trial(task: Task, most: int = sys.maxsize) -> Task | None:
    """Local. The task to measure in place of ``task``, so that little memory is taken.

    That is ``task`` itself, of as many of its lines as have ``most`` bytes about; or if its arrays
    span too much, the same without gaps between the elements; None where that is too much as well.
    """
    task = _fewer_lines(task, most)
    for source, target in (
        (task.source, task.target),
        (task.source.packed(), task.target.packed()),
    ):
        if source.span + (0 if task.in_place else target.span) <= MEMORY:
            return replace(task, source=source, target=target)
    return None


def _fewer_lines(task: Task, most: int) -> Task:
    """The same task on a part of the lines, those that follow each other in memory."""
    source, target = task.source, task.target
    for axis in source.order:
        size = max(prod(side.shape) * np.dtype(side.char).itemsize for side in (source, target))
        if axis != task.axis and size > most:
            kept = max(1, source.shape[axis] * most // size)
            source, target = _first(source, axis, kept), _first(target, axis, kept)
    return replace(task, source=source, target=target)


def _first(layout: Layout, axis: int, count: int) -> Layout:
    """A layout with so many of the places along an axis."""
    shape = (*layout.shape[:axis], count, *layout.shape[axis + 1 :])
    return replace(layout, shape=shape)


def measure(runs: Mapping[str, Run], task: Task, budget: float = BUDGET) -> dict[str, float]:
    """Local. Seconds by name, of the candidates that were not hopeless, each run as a script.

    The least processor time of several runs, which other work on the machine does not change
    much; of tasks that may use several threads the least time on the clock, as the one that waits
    for the others needs no processor. The data are zeros, which stay zeros however often they are
    transformed in place.
    """
    source = task.source.untouched()
    target = source if task.in_place else task.target.untouched(TARGET_OFFSET)
    source.fill(0)
    target.fill(0)

    clock = thread_time if task.threads == 1 else perf_counter
    ends, addresses = (source, target), (address(source), address(target))
    scripts = {
        name: script(expanded(run, SOURCE, SOURCE if task.in_place else TARGET), ends)
        for name, run in runs.items()
    }

    def seconds(name: str) -> float:
        start = clock()
        scripts[name](ends, addresses)
        return clock() - start

    first = {name: seconds(name) for name in runs}
    end = clock() + budget
    times = {name: min(taken, seconds(name)) for name, taken in first.items()}
    for _ in range(RUNS):
        limit = HOPELESS * min(times.values())
        times = {name: taken for name, taken in times.items() if taken <= limit}
        if len(times) == 1 or clock() > end:
            break
        times = {name: min(taken, seconds(name)) for name, taken in times.items()}
    return times
