"""The calls that pocketfft, inside SciPy, and its successor ducc0 have in common."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from onesided.pencilfft.kernels.protocol import Run, Task, real_view


def complex_call(library: Any, task: Task) -> Run:
    """Local. The call for "c2c", "r2c" or "c2r"."""
    axes, forward, scale = (task.axis,), task.forward, task.scale
    threads = task.threads
    if task.kind == "c2c":
        c2c = library.c2c
        return lambda source, target: c2c(source, axes, forward, scale, target, threads)
    if task.kind == "r2c":
        r2c = library.r2c
        return lambda source, target: r2c(source, axes, True, scale, target, threads)
    c2r, length = library.c2r, task.length
    return lambda source, target: c2r(source, axes, length, False, scale, target, threads)


def real_call(library: Any, task: Task, *more: Any) -> Run:
    """Local. The call for a cosine or sine transform; ``more`` are its last arguments."""
    axes, scale, kind, threads = (task.axis,), task.scale, task.type, task.threads
    function = library.dst if task.sine else library.dct

    def run(source: NDArray[Any], target: NDArray[Any]) -> None:
        function(source, kind, axes, scale, target, threads, *more)

    if task.source.char in "fdg":
        return run
    return lambda source, target: run(real_view(source), real_view(target))
