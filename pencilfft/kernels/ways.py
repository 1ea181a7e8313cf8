"""The ways to have a task done by a kernel: directly, or with copies that make it easier.

Kernels are quickest on lines without gaps, or in place. A copy through memory that stays in the
cache can cost less than the strided transform that it avoids.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.collectives.scripts import Between, Part, Place, PythonScript, copy_array
from onesided.pencilfft.decomposition import array_in
from onesided.pencilfft.kernels.protocol import Kernel, Layout, Run, Task, aligned

#: Largest scratch of one task in bytes: more does not stay in any cache, and is memory taken.
SCRATCH_BYTES = 1 << 22

#: What a call is given.
SOURCE, TARGET = Part(0), Part(1)


class Chain:
    """Local. A call that is several ones; its ``steps`` are between SOURCE, TARGET and scratch."""

    def __init__(self, steps: Sequence[Between]) -> None:
        self.steps = steps
        self._run = PythonScript(steps, 2)

    def __call__(self, source: NDArray[Any], target: NDArray[Any]) -> None:
        self._run((source, target))


def expanded(run: Run, reads: Place, writes: Place) -> list[Between]:
    """Local. A call between two places, or those that it consists of."""
    if not isinstance(run, Chain):
        return [(run, reads, writes)]
    ends = reads, writes
    steps: list[Between] = []
    for inner, *sides in run.steps:
        here, there = (ends[s.end] if isinstance(s, Part) else s for s in sides)
        steps += expanded(inner, here, there)
    return steps


def direct(kernel: Kernel, task: Task, effort: str) -> Run | None:
    """Local. The kernel itself."""
    return kernel.plan(task, effort)


def in_scratch(kernel: Kernel, task: Task, effort: str) -> Run | None:
    """Local. The lines copied next to each other and transformed from there."""
    scratch = _lines(task, task.source)
    if scratch is None:
        return None
    form = Layout.of(scratch)
    onward, then = replace(task, source=form), list[Between]()
    if task.kind not in ("r2c", "c2r"):  # source and target have one form
        onward = replace(onward, target=form, in_place=True)
        then.append((copy_array, scratch, TARGET))
    inner = kernel.plan(onward, effort)
    if inner is None:
        return None
    to = scratch if then else TARGET
    return Chain([(copy_array, SOURCE, scratch), (inner, scratch, to), *then])


def through_scratch(kernel: Kernel, task: Task, effort: str) -> Run | None:
    """Local. The result written as lines next to each other, and copied from there."""
    scratch = _lines(task, task.target)
    if scratch is None:
        return None
    form = Layout.of(scratch)
    inner = kernel.plan(replace(task, target=form, in_place=False), effort)
    if inner is None:
        return None
    return Chain([(inner, SOURCE, scratch), (copy_array, scratch, TARGET)])


#: The ways by name, the simplest first.
WAYS: dict[str, Callable[[Kernel, Task, str], Run | None]] = {
    "direct": direct,
    "in scratch": in_scratch,
    "through scratch": through_scratch,
}


def _lines(task: Task, layout: Layout) -> NDArray[Any] | None:
    """Scratch in which each line of the transform is contiguous, where ``layout`` is not so."""
    dtype = np.dtype(layout.char)
    nbytes = prod(layout.shape) * dtype.itemsize
    if layout.strides[task.axis] == dtype.itemsize or nbytes > SCRATCH_BYTES:
        return None
    order = [axis for axis in layout.order if axis != task.axis]
    return array_in(aligned(nbytes), layout.shape, dtype, (*order, task.axis))

