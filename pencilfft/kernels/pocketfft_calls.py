"""The calls that pocketfft, inside SciPy, and its successor ducc0 have in common."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.pencilfft.kernels.protocol import Run, Task, real_view


def complex_call(library: Any, task: Task) -> Run:
    """Local. The call for "c2c", "r2c" or "c2r"."""
    axes, forward, scale = (task.axis,), task.forward, task.scale
    threads = task.threads
    if task.others != 1 and scale:
        return scaled(complex_call(library, replace(task, scale=0)), task)
    if task.kind == "c2c":
        c2c = library.c2c
        return lambda source, target: c2c(source, axes, forward, scale, target, threads)
    if task.kind == "r2c":
        r2c = library.r2c
        return lambda source, target: r2c(source, axes, True, scale, target, threads)
    c2r, length = library.c2r, task.length
    return lambda source, target: c2r(source, axes, length, False, scale, target, threads)


def scaled(run: Run, task: Task) -> Run:
    """Local. An unscaled call, and then the factor of a task."""
    real = np.dtype(task.target.char.lower()).type
    factor = real(task.logical_length * task.others) ** real(-0.5 * task.scale)

    def both(source: NDArray[Any], target: NDArray[Any]) -> None:
        run(source, target)
        np.multiply(target, factor, out=target)

    return both


def real_call(library: Any, task: Task, *more: Any) -> Run:
    """Local. The call for a cosine or sine transform; ``more`` are its last arguments."""
    axes, scale, kind, threads = (task.axis,), task.scale, task.type, task.threads
    function = library.dst if task.sine else library.dct

    def run(source: NDArray[Any], target: NDArray[Any]) -> None:
        function(source, kind, axes, scale, target, threads, *more)

    if task.source.char in "fdg":
        return run
    return lambda source, target: run(real_view(source), real_view(target))
