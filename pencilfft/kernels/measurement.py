"""How long each of several calls takes for the same task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from time import thread_time

from onesided.collectives.scripts import script
from onesided.pencilfft.kernels.memory import address_of, packed, span, untouched
from onesided.pencilfft.kernels.protocol import Run, Task
from onesided.pencilfft.kernels.ways import SOURCE, TARGET, expanded

#: Seconds after which no further round of runs begins.
BUDGET = 0.02
#: Rounds in which the candidates take turns, if there is time for them.
RUNS = 15
#: A candidate this many times slower than the best one is not run again.
HOPELESS = 2.0
#: Bytes from the start of a page to the target: copies between equal offsets are slower.
TARGET_OFFSET = 2112
#: Most bytes that the arrays of a measurement may span together.
MEMORY = 1 << 26


def trial(task: Task) -> Task | None:
    """Local. The task to measure in place of ``task``, so that little memory is taken.

    That is ``task`` itself, or if its arrays span too much, the same without gaps between the
    elements; None where that is too much as well.
    """
    for source, target in (
        (task.source, task.target),
        (packed(task.source), packed(task.target)),
    ):
        if span(source) + (0 if task.in_place else span(target)) <= MEMORY:
            return replace(task, source=source, target=target)
    return None


def measure(runs: Mapping[str, Run], task: Task, budget: float = BUDGET) -> dict[str, float]:
    """Local. Seconds by name, of the candidates that were not hopeless, each run as a script.

    The least processor time of several runs, which other work on the machine does not change
    much. The data are zeros, which stay zeros however often they are transformed in place.
    """
    source = untouched(task.source)
    target = source if task.in_place else untouched(task.target, TARGET_OFFSET)
    source.fill(0)
    target.fill(0)

    ends, addresses = (source, target), (address_of(source), address_of(target))
    scripts = {
        name: script(expanded(run, SOURCE, SOURCE if task.in_place else TARGET), ends)
        for name, run in runs.items()
    }

    def seconds(name: str) -> float:
        start = thread_time()
        scripts[name](ends, addresses)
        return thread_time() - start

    first = {name: seconds(name) for name in runs}
    end = thread_time() + budget
    times = {name: min(taken, seconds(name)) for name, taken in first.items()}
    for _ in range(RUNS):
        limit = HOPELESS * min(times.values())
        times = {name: taken for name, taken in times.items() if taken <= limit}
        if len(times) == 1 or thread_time() > end:
            break
        times = {name: min(taken, seconds(name)) for name, taken in times.items()}
    return times
