"""Which kernel does which task: named, preferred, or measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf, prod
from time import perf_counter, thread_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.collectives.errors import PatternError, UnsupportedError
from onesided.collectives.scripts import Part, script
from onesided.collectives.steps import address
from onesided.pencilfft.kernels.protocol import Kernel, Layout, Run, Task
from onesided.pencilfft.kernels.registry import (
    BACKENDS,
    installed,
    load_kernel,
    resolve_backend,
)
from onesided.pencilfft.kernels.wisdom import WisdomName, open_wisdom

ESTIMATE, BRIEF, MEASURE = EFFORTS = ("estimate", "brief", "measure")
#: Lines whose elements lie whole pages apart share few places in the caches.
PAGE = 4096
#: Of candidates within this factor of the fastest the first one is taken.
MARGIN = 1.03
#: Seconds for which a plan of effort "brief" compares kernels, loading them apart.
BRIEF_SECONDS = 0.05
#: Seconds after which no further round of runs begins.
BUDGET = 0.002
#: Rounds in which the candidates take turns, if there is time for them.
RUNS = 15
#: A candidate this many times slower than the best one is not run again.
HOPELESS = 2.0
#: Bytes from the start of a page to the target: copies between equal offsets are slower.
TARGET_OFFSET = 2112
#: Most bytes of the larger array of a measurement, which tries so many lines of it.
MEMORY = 1 << 17
#: Bytes of an array of so few lines that a measurement would take long, and memory: none is made.
LONGEST = 1 << 26


class Selection:
    """Local. The kernels of one plan.

    ``backend`` is the name of a kernel, with SciPy's for the tasks that it cannot do, or "auto"
    for all that are installed. Of these, tasks of one *family* (:func:`family_of`) have one answer:
    that of ``wisdom``, which is what :func:`~.wisdom.open_wisdom` takes, or of a measurement of
    every kernel, on arrays of a task's layouts, when the family is first asked for while the plan
    is being made (:meth:`settle` ends that). ``effort`` says how much is measured: "measure" all,
    "brief" for :data:`BRIEF_SECONDS` in all, "estimate" nothing. Otherwise the first kernel that
    can do a task is taken. ``threads`` is what a kernel may use. Results do not depend on the
    choice, but for rounding, and a choice that was made stays.

    Raises :class:`PatternError` for an unknown backend or effort, :class:`UnsupportedError` for a
    backend that is not installed.
    """

    def __init__(
        self,
        backend: str = "auto",
        effort: str = MEASURE,
        wisdom: WisdomName = False,
        threads: int = 1,
    ) -> None:
        if effort not in EFFORTS:
            raise PatternError(f"no effort {effort!r}; there are {', '.join(EFFORTS)}")
        self._backend, self._effort = resolve_backend(backend), effort
        #: What was measured before, and is now.
        self.wisdom = open_wisdom(False if effort == ESTIMATE else wisdom)
        if self._backend == "auto":
            self._names = installed()
        else:
            self._names = list(dict.fromkeys((self._backend, "scipy")))
            for name in self._names:
                load_kernel(name)  # it raises where that one is broken
        self._left = {ESTIMATE: 0.0, BRIEF: BRIEF_SECONDS, MEASURE: inf}[effort]
        self._settled = False
        #: As many as a kernel may use.
        self.threads = threads
        self._runs: dict[Task, Run] = {}
        self._decisions: dict[str, str] = {}
        #: What was chosen: task to the name of a kernel.
        self.choices: dict[Task, str] = {}

    @property
    def name(self) -> str:
        """Local. The backend; of "auto" with the kernels in use, as in "auto (ducc0, mkl)"."""
        if self._backend != "auto":
            return self._backend
        used = set(self.choices.values())
        return f"auto ({', '.join(sorted(used))})" if used else "auto"

    def run_for(self, task: Task) -> Run:
        """Local. The call for ``task``; the same one for equal tasks.

        Raises :class:`PatternError` for a length that has no such transform.
        """
        if task not in self._runs:
            self._runs[task] = self._choose(task)
        return self._runs[task]

    def settle(self) -> None:
        """Local. The plan is made: from now on nothing is measured while a transform waits."""
        self._left, self._settled = 0.0, True

    def _choose(self, task: Task) -> Run:
        if task.empty:
            return _nothing
        if task.kind == "dct1" and task.length < 2:
            raise PatternError(f"dct1 needs at least 2 points, axis {task.axis} has {task.length}")
        found = self._remembered(task) or self._measured(task) or self._preferred(task)
        self.choices[task], run = found
        self._decisions.setdefault(family_of(task), self.choices[task])
        return run

    def _preferred(self, task: Task) -> tuple[str, Run]:
        """The first kernel that can do it."""
        measures = self._backend != "auto" and self._left > 0 and nbytes_of(task) <= LONGEST
        effort = self._effort if measures else ESTIMATE
        began = perf_counter()

        def one_thread(name: str) -> bool:
            found = BACKENDS.get(name)
            return task.threads > 1 and found is not None and not found.threads

        named = self._backend != "auto"
        for name in list(self._names) if named else sorted(self._names, key=one_thread):
            kernel = self._kernel(name)
            run = None if kernel is None else kernel.plan(task, effort)
            if run is not None:
                self._left -= perf_counter() - began
                return name, run
        raise PatternError(f"no kernel can do {task}")

    def _remembered(self, task: Task) -> tuple[str, Run] | None:
        """What was measured for a task like this, or wisdom says, if it can still be done."""
        if self._backend != "auto":
            return None
        family = family_of(task)
        choice = self._decisions.get(family)
        if choice is None:
            choice = self.wisdom.recall(family)
        return None if choice is None else self._planned(choice, task)

    def _measured(self, task: Task) -> tuple[str, Run] | None:
        """The fastest of several kernels, while there is time to find it."""
        if self._backend != "auto" or self._left <= 0:
            return None
        tried = fewer_lines(task, MEMORY)
        if max(tried.source.touched, tried.target.touched) > LONGEST:
            return None
        kernels = {name: found for name in list(self._names) if (found := self._kernel(name))}
        began = perf_counter()
        runs = {name: run for name, kernel in kernels.items()
                if (run := kernel.plan(tried, BRIEF)) is not None}  # fmt: skip
        if not runs:
            return None
        times = dict.fromkeys(runs, 0.0)
        if len(runs) > 1:
            times = measure(runs, tried)
        self._left -= perf_counter() - began
        limit = MARGIN * min(times.values())
        choice = next(choice for choice in runs if times.get(choice, limit + 1) <= limit)
        planned = (choice, runs[choice]) if tried == task else self._planned(choice, task)
        if planned is not None:
            self._decisions[family_of(task)] = choice
            self.wisdom.learn(family_of(task), choice)
        return planned

    def _planned(self, choice: str, task: Task) -> tuple[str, Run] | None:
        """The call of the kernel of this name, if it can be had."""
        kernel = self._kernel(choice)
        quick = self._settled or self._effort == ESTIMATE or nbytes_of(task) > LONGEST
        run = None if kernel is None else kernel.plan(task, ESTIMATE if quick else BRIEF)
        return None if run is None else (choice, run)

    def _kernel(self, name: str) -> Kernel | None:
        """The kernel, loaded when it is first asked for: that may take long. None where it is not
        there, or broken: the others do its work."""
        try:
            return load_kernel(name) if name in self._names else None
        except UnsupportedError:
            self._names.remove(name)
            return None


def nbytes_of(task: Task) -> int:
    """Local. Bytes of the larger of the two arrays."""
    return max(prod(side.shape) * np.dtype(side.char).itemsize
               for side in (task.source, task.target))  # fmt: skip


def fewer_lines(task: Task, most: int) -> Task:
    """Local. The same task on a part of the lines, those that follow each other in memory, so that
    an array has about as many bytes."""
    source, target = task.source, task.target
    for axis in source.order:
        size = nbytes_of(replace(task, source=source, target=target))
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
        name: script([(run, Part(0), Part(0 if task.in_place else 1))], ends)
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


def family_of(task: Task) -> str:
    """Local. What stands for all tasks that one kernel does best, as text.

    Directions, factors and the number of lines do not matter; the length, where the elements of
    a line lie, and whether that is one array, do.
    """
    kind = task.kind if task.complex_kind else f"{task.kind[:3]}{task.type}"
    words = [kind, f"{task.source.char}{task.target.char}"]
    words += ["orthogonal"] * task.orthogonal
    words += [f"{task.threads} threads"] * (task.threads > 1)
    words += [_line(task.source, task.axis)]
    if task.in_place:
        words += ["in place"]
    else:
        alike = task.source.order == task.target.order
        words += [f"to {_line(task.target, task.axis)}"] + ["turned"] * (not alike)
    return " ".join([*words, f"of {task.length}"])


def _line(layout: Layout, axis: int) -> str:
    """How a line lies in memory: without gaps, or by its stride, to a power of two."""
    stride = abs(layout.strides[axis])
    if stride == np.dtype(layout.char).itemsize:
        return "dense"
    return f"2^{stride.bit_length()}{'' if stride % PAGE else ' pages'}"


def _nothing(source: NDArray[Any], target: NDArray[Any]) -> None:
    """The transform of an empty array."""
