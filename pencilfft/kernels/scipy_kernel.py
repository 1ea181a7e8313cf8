"""Kernel: SciPy's own, pocketfft or, from SciPy 1.18 on, its successor ducc; always there.

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

from onesided.pencilfft.kernels.pocketfft_calls import complex_call, real_call, scaled
from onesided.pencilfft.kernels.protocol import Run, Task, real_view

_Norm = Literal["backward", "ortho", "forward"]
#: The extension module under ``scipy.fft``, of newer and of older versions.
_EXTENSIONS = ("scipy.fft._duccfft.pyduccfft", "scipy.fft._pocketfft.pypocketfft")
#: By power of 1/sqrt(n): of a forward transform, and of an inverse one.
_NORMS: tuple[_Norm, ...] = ("backward", "ortho", "forward")
_INVERSE_NORMS: tuple[_Norm, ...] = ("forward", "ortho", "backward")


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


def _choose() -> PocketfftKernel | ScipyKernel:
    """The kernel on a private module, where there is one that does what is expected of it."""
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


KERNEL = _choose()
