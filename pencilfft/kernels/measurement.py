"""How long each of several calls takes for the same task."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from time import perf_counter

from onesided.pencilfft.kernels.memory import zeros_like_layout
from onesided.pencilfft.kernels.protocol import Run, Task

#: Seconds that all runs for one task may take together, first ones apart.
BUDGET = 0.02
#: Runs of each candidate, if there is time for them.
RUNS = 15
#: A candidate this many times slower than the best one is not run again.
HOPELESS = 2.0
#: Bytes from the start of a page to the target: copies between equal offsets are slower.
TARGET_OFFSET = 2112


def measure(runs: Mapping[str, Run], task: Task, budget: float = BUDGET) -> dict[str, float]:
    """Local. Median seconds by name, of the candidates that were not hopeless.

    The data are zeros, which stay zeros however often they are transformed in place. Candidates
    take turns, so that other work on the machine meets all of them.
    """
    source = zeros_like_layout(task.source)
    target = source if task.in_place else zeros_like_layout(task.target, TARGET_OFFSET)

    def seconds(run: Run) -> float:
        start = perf_counter()
        run(source, target)
        return perf_counter() - start

    times = {}
    for name, run in runs.items():
        first = seconds(run)
        times[name] = [min(first, seconds(run)) if first < budget / len(runs) else first]
    end = perf_counter() + budget
    for _ in range(RUNS - 1):
        best = min(min(taken) for taken in times.values())
        times = {name: taken for name, taken in times.items() if min(taken) <= HOPELESS * best}
        if len(times) == 1:
            break
        for name, taken in times.items():
            taken.append(seconds(runs[name]))
        if perf_counter() > end:
            break
    return {name: median(taken) for name, taken in times.items()}
