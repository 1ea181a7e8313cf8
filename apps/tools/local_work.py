"""What a plan cannot do without: its kernels over the whole local volume, and the copies.

A transform that ran every local transform once over all of its data, and moved what it sends to
others with one memcpy for each transpose, would take this long if nothing else cost time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.apps.bench.race import nothing
from onesided.collectives import UnsupportedError
from onesided.pencilfft import PFFT
from onesided.pencilfft.decomposition import PencilGeometry, memory_order
from onesided.pencilfft.kernels.memory import empty_packed
from onesided.pencilfft.kernels.protocol import Kernel, Layout, Task
from onesided.pencilfft.kernels.registry import installed, load_kernel, resolve_backend
from onesided.pencilfft.operations import Operation, chains
from onesided.pencilfft.settings import NORMS
from onesided.pencilfft.stages import Stage, plan_stages

ANY = "auto"  # the backend that stands for all
TRIALS = 3

_Step = Callable[[], object]


class LocalWork:
    """Local. Kernels and copies of a plan of two or more dimensions, without batch and padding.

    Every kernel of ``backend`` is tried on the whole local arrays, which lie in memory as the
    plan's do; the fastest of each step is kept. Complex transforms work in place. The data are
    zeros, which stay zeros.
    """

    def __init__(self, plan: PFFT, backend: str) -> None:
        transforms = [transform for group in plan.xfftn for transform in group]
        stages = plan_stages(plan.pencil[0].geometry, transforms, plan.dtype(False))
        self._kernels = _kernels(backend)
        self._memory = [_Memory(stage, max(stage.nbytes for stage in stages)) for stage in stages]
        moved = [transpose.nbytes for transpose in plan.transposes]
        count = len(moved) // 2
        #: Names of the kernels in use, by step.
        self.kernels: dict[str, str] = {}
        self._steps = {
            True: self._direction(stages, True, moved[:count]),
            False: self._direction(stages, False, moved[count:]),
        }

    def forward(self) -> None:
        """Local. The work of a forward transform."""
        for step in self._steps[True]:
            step()

    def backward(self) -> None:
        """Local. The work of a backward transform."""
        for step in self._steps[False]:
            step()

    def _direction(
        self, stages: Sequence[Stage], forward: bool, moved: Sequence[int]
    ) -> list[_Step]:
        steps: list[_Step] = []
        count = len(stages)
        order = range(count) if forward else range(count - 1, -1, -1)
        for i, operations in zip(order, chains(stages, forward), strict=True):
            for operation in operations:
                steps.append(self._kernel_step(operation, self._memory[i]))
            k = i if forward else i - 1  # the transpose that follows
            if 0 <= k < len(moved):
                here, there = self._memory[i], self._memory[i + 1 if forward else i - 1]
                source = here.leaving(forward)[: moved[k]]
                steps.append(partial(np.copyto, there.entering(forward)[: moved[k]], source))
        return steps

    def _kernel_step(self, operation: Operation, memory: _Memory) -> _Step:
        source, target = memory.sides(operation)
        scale, others = operation.normalization(NORMS["forward"][0 if operation.forward else 1])
        task = Task(
            kind=operation.kind,
            axis=operation.axis,
            forward=operation.forward,
            scale=scale,
            orthogonal=False,
            source=Layout.of(source),
            target=Layout.of(target),
            in_place=source is target,
            others=others,
        )
        if task.empty:
            return nothing
        runs = {name: kernel.plan(task, "brief") for name, kernel in self._kernels.items()}
        calls = {name: partial(run, source, target) for name, run in runs.items() if run}
        if not calls:
            raise UnsupportedError(f"no kernel can do {task}")
        times = {name: min(_seconds(call) for _ in range(TRIALS)) for name, call in calls.items()}
        best = min(times, key=times.__getitem__)
        self.kernels[str(task)] = best
        return calls[best]


class _Memory:
    """The arrays of a stage: one, or two where a transform changes shape or dtype."""

    def __init__(self, stage: Stage, nbytes: int) -> None:
        order = memory_order(len(stage.before.shape), stage.axes)
        self._flat = [_zeros(nbytes)]
        self._before = _shaped(self._flat[0], stage.before, stage.dtypes[0], order)
        self._after = self._before
        if stage.dtypes[0] != stage.dtypes[1] or stage.before.subshape != stage.after.subshape:
            self._flat.append(_zeros(nbytes))
            self._after = _shaped(self._flat[1], stage.after, stage.dtypes[1], order)

    def sides(self, operation: Operation) -> tuple[NDArray[Any], NDArray[Any]]:
        """What an operation reads and what it writes."""
        if operation.fits_in_place:
            here = self._after if operation.dtypes[0] == self._after.dtype else self._before
            return here, here
        ends = (self._before, self._after)
        return ends if operation.forward else ends[::-1]

    def leaving(self, forward: bool) -> NDArray[np.uint8]:
        """The memory of what the stage makes."""
        return self._flat[-1 if forward else 0]

    def entering(self, forward: bool) -> NDArray[np.uint8]:
        """The memory of what the stage takes."""
        return self._flat[0 if forward else -1]


def _kernels(backend: str) -> dict[str, Kernel]:
    name = resolve_backend(backend)
    names = installed() if name == ANY else list(dict.fromkeys((name, "scipy")))
    kernels = {}
    for each in names:
        try:
            kernels[each] = load_kernel(each)
        except UnsupportedError:  # there, but broken
            continue
    return kernels


def _zeros(nbytes: int) -> NDArray[np.uint8]:
    memory = empty_packed((nbytes,), "B", (0,))
    memory.fill(0)  # every page is there from now on
    return memory


def _shaped(
    memory: NDArray[np.uint8], pencil: PencilGeometry, dtype: np.dtype[Any], order: Sequence[int]
) -> NDArray[Any]:
    shape = pencil.subshape
    count = int(np.prod(shape, dtype=np.int64))
    flat = memory[: count * dtype.itemsize].view(dtype)
    return flat.reshape([shape[axis] for axis in order]).transpose(np.argsort(order))


def _seconds(call: _Step) -> float:
    began = perf_counter()
    call()
    return perf_counter() - began
