"""The ways to have a task done by a kernel: directly, or with copies that make it easier.

Kernels are quickest on lines without gaps, or in place. A copy through memory that stays in the
cache can cost less than the strided transform that it avoids.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.pencilfft.kernels.memory import empty_packed, memory_order
from onesided.pencilfft.kernels.protocol import Kernel, Layout, Run, Task

#: Largest scratch of one task in bytes: more does not stay in any cache, and is memory taken.
SCRATCH_BYTES = 1 << 22


def direct(kernel: Kernel, task: Task, effort: str) -> Run | None:
    """Local. The kernel itself."""
    return kernel.plan(task, effort)


def in_target(kernel: Kernel, task: Task, effort: str) -> Run | None:
    """Local. A copy to the target, transformed in place there."""
    if task.in_place or not task.same_form:
        return None
    inner = kernel.plan(replace(task, source=task.target, in_place=True), effort)
    if inner is None:
        return None

    def run(source: NDArray[Any], target: NDArray[Any]) -> None:
        np.copyto(target, source)
        inner(target, target)

    return run


def in_scratch(kernel: Kernel, task: Task, effort: str) -> Run | None:
    """Local. The lines copied next to each other and transformed from there."""
    scratch = _lines(task, task.source)
    if scratch is None:
        return None
    form = Layout.of(scratch)
    if not task.same_form:
        onward = kernel.plan(replace(task, source=form), effort)
        return None if onward is None else _gathered(scratch, onward)
    inner = kernel.plan(replace(task, source=form, target=form, in_place=True), effort)
    if inner is None:
        return None

    def run(source: NDArray[Any], target: NDArray[Any]) -> None:
        np.copyto(scratch, source)
        inner(scratch, scratch)
        np.copyto(target, scratch)

    return run


def through_scratch(kernel: Kernel, task: Task, effort: str) -> Run | None:
    """Local. The result written as lines next to each other, and copied from there."""
    scratch = _lines(task, task.target)
    if scratch is None:
        return None
    form = Layout.of(scratch)
    inner = kernel.plan(replace(task, target=form, in_place=False), effort)
    if inner is None:
        return None

    def run(source: NDArray[Any], target: NDArray[Any]) -> None:
        inner(source, scratch)
        np.copyto(target, scratch)

    return run


#: The ways by name, the simplest first.
WAYS: dict[str, Callable[[Kernel, Task, str], Run | None]] = {
    "direct": direct,
    "in target": in_target,
    "in scratch": in_scratch,
    "through scratch": through_scratch,
}


def _lines(task: Task, layout: Layout) -> NDArray[Any] | None:
    """Scratch in which each line of the transform is contiguous, where ``layout`` is not so."""
    size = np.dtype(layout.char).itemsize
    if layout.strides[task.axis] == size or prod(layout.shape) * size > SCRATCH_BYTES:
        return None
    order = [axis for axis in memory_order(layout) if axis != task.axis]
    return empty_packed(layout.shape, layout.char, (*order, task.axis))


def _gathered(scratch: NDArray[Any], onward: Run) -> Run:
    def run(source: NDArray[Any], target: NDArray[Any]) -> None:
        np.copyto(scratch, source)
        onward(scratch, target)

    return run
