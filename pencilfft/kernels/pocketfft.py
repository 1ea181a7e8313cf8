"""Kernels: SciPy's own, always there: pocketfft or, from SciPy 1.18 on, its successor ducc;
and ducc0 itself, vectorized over lines. Their calls are the same.

``scipy.fft`` allocates its results. The extension module under it writes into a given array; it
is private, so it is tried out at import, and the public functions take its place where it is
gone or behaves otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any, Literal

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from onesided.pencilfft.kernels.protocol import Run, Task, real_view

_Norm = Literal["backward", "ortho", "forward"]
#: The extension module under ``scipy.fft``, of newer and of older versions.
_EXTENSIONS = ("scipy.fft._duccfft.pyduccfft", "scipy.fft._pocketfft.pypocketfft")
#: By power of 1/sqrt(n): of a forward transform, and of an inverse one.
_NORMS: tuple[_Norm, ...] = ("backward", "ortho", "forward")
_INVERSE_NORMS: tuple[_Norm, ...] = ("forward", "ortho", "backward")


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
    factor = task.factor

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


class PocketfftKernel:
    """Local. See :class:`~.protocol.Kernel`; calls the extension module under ``scipy.fft``."""

    name = "scipy"

    def __init__(self, extension: Any) -> None:
        self._extension = extension

    def plan(self, task: Task, effort: str) -> Run | None:
        if task.complex_kind:
            return complex_call(self._extension, task)
        return real_call(self._extension, task, task.orthogonal)


class ScipyKernel:
    """Local. See :class:`~.protocol.Kernel`; public functions, which allocate each result."""

    name = "scipy"

    def plan(self, task: Task, effort: str) -> Run:
        if task.others != 1 and task.scale:
            return scaled(self.plan(replace(task, scale=0), effort), task)
        function, arguments = _public_call(task)
        axis, workers = task.axis, task.threads

        def run(source: NDArray[Any], target: NDArray[Any]) -> None:
            target[...] = function(source, axis=axis, workers=workers, **arguments)

        if task.complex_kind:
            return run
        return lambda source, target: run(real_view(source), real_view(target))


def _public_call(task: Task) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The function of ``scipy.fft`` for a task, and its arguments but array and axis."""
    if task.kind == "c2c" and task.forward:
        return scipy.fft.fft, {"norm": _NORMS[task.scale]}
    if task.kind == "c2c":
        return scipy.fft.ifft, {"norm": _INVERSE_NORMS[task.scale]}
    if task.kind == "r2c":
        return scipy.fft.rfft, {"norm": _NORMS[task.scale]}
    if task.kind == "c2r":
        return scipy.fft.irfft, {"n": task.length, "norm": _INVERSE_NORMS[task.scale]}
    function = scipy.fft.dst if task.sine else scipy.fft.dct
    arguments = {"type": task.type, "norm": _NORMS[task.scale]}
    return function, {**arguments, "orthogonalize": task.orthogonal}


def scipy_kernel() -> PocketfftKernel | ScipyKernel:
    """Local. The kernel on a private module, where there is one that does what is expected."""
    for name in _EXTENSIONS:
        try:
            extension = import_module(name)
            if _writes_in_place(extension):
                return PocketfftKernel(extension)
        except (ImportError, AttributeError, TypeError, ValueError, RuntimeError):
            continue
    return ScipyKernel()


def _writes_in_place(extension: Any) -> bool:
    """Whether its functions write into a given array what the public ones return."""
    real = np.arange(6.0).reshape(2, 3)
    half, back = np.empty((2, 2), complex), np.empty((2, 3))
    extension.r2c(real, (1,), True, 0, half, 1)
    extension.c2c(half, (0,), True, 0, half, 1)
    right = np.allclose(half, scipy.fft.rfft2(real))
    extension.c2c(half, (0,), False, 2, half, 1)
    extension.c2r(half, (1,), 3, False, 2, back, 1)
    right = right and np.allclose(back, real)
    extension.dct(real, 2, (1,), 1, back, 1, True)
    right = right and np.allclose(back, scipy.fft.dct(real, norm="ortho"))
    extension.dst(real, 1, (1,), 0, back, 1, False)
    return right and np.allclose(back, scipy.fft.dst(real, 1))


class Ducc0Kernel:
    """Local. See :class:`~.protocol.Kernel`."""

    name = "ducc0"

    def __init__(self) -> None:
        """Local. ImportError where it is not installed."""
        self._library = import_module("ducc0").fft

    def plan(self, task: Task, effort: str) -> Run | None:
        if task.complex_kind:
            return complex_call(self._library, task)
        if task.orthogonal != (task.scale == 1):
            return None  # ducc0 makes the matrix orthogonal with this scale, and only then
        return real_call(self._library, task)
