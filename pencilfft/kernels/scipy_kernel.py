"""Kernel: SciPy's pocketfft, always there.

``scipy.fft`` allocates its results. The extension module under it writes into a given array; it
is private, so it is tried out at import, and the public functions take its place where it is
gone or behaves otherwise.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Literal

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from onesided.pencilfft.kernels.pocketfft_calls import complex_call, real_call
from onesided.pencilfft.kernels.protocol import Run, Task, real_view

_Norm = Literal["backward", "ortho", "forward"]
#: By power of 1/sqrt(n): of a forward transform, and of an inverse one.
_NORMS: tuple[_Norm, ...] = ("backward", "ortho", "forward")
_INVERSE_NORMS: tuple[_Norm, ...] = ("forward", "ortho", "backward")


class PocketfftKernel:
    """Local. See :class:`~.protocol.Kernel`; calls the extension module under ``scipy.fft``."""

    name = "scipy"

    def plan(self, task: Task, effort: str) -> Run | None:
        if task.complex_kind:
            return complex_call(self._extension, task)
        return real_call(self._extension, task, task.orthogonal)

    def __init__(self, extension: Any) -> None:
        self._extension = extension
        self._c2c, self._r2c, self._c2r = extension.c2c, extension.r2c, extension.c2r

    def c2c(
        self, source: NDArray[Any], target: NDArray[Any], axis: int, forward: bool, scale: int
    ) -> None:
        self._c2c(source, (axis,), forward, scale, target, 1)

    def r2c(self, source: NDArray[Any], target: NDArray[Any], axis: int, scale: int) -> None:
        self._r2c(source, (axis,), True, scale, target, 1)

    def c2r(self, source: NDArray[Any], target: NDArray[Any], axis: int, scale: int) -> None:
        self._c2r(source, (axis,), target.shape[axis], False, scale, target, 1)


class ScipyKernel:
    """Local. See :class:`~.protocol.Kernel`; public functions, which allocate each result."""

    name = "scipy"

    def plan(self, task: Task, effort: str) -> Run | None:
        axis, scale = task.axis, task.scale
        if task.kind == "c2c":
            function = scipy.fft.fft if task.forward else scipy.fft.ifft
            arguments = {"norm": (_NORMS if task.forward else _INVERSE_NORMS)[scale]}
        elif task.kind == "r2c":
            function, arguments = scipy.fft.rfft, {"norm": _NORMS[scale]}
        elif task.kind == "c2r":
            function = scipy.fft.irfft
            arguments = {"n": task.length, "norm": _INVERSE_NORMS[scale]}
        else:
            function = scipy.fft.dst if task.sine else scipy.fft.dct
            arguments = {"type": task.type, "norm": _NORMS[scale]}
            arguments["orthogonalize"] = task.orthogonal

        def run(source: NDArray[Any], target: NDArray[Any]) -> None:
            target[...] = function(source, axis=axis, **arguments)

        if task.complex_kind:
            return run
        return lambda source, target: run(real_view(source), real_view(target))

    def c2c(
        self, source: NDArray[Any], target: NDArray[Any], axis: int, forward: bool, scale: int
    ) -> None:
        function = scipy.fft.fft if forward else scipy.fft.ifft
        norm = (_NORMS if forward else _INVERSE_NORMS)[scale]
        target[...] = function(source, axis=axis, norm=norm, overwrite_x=source is target)

    def r2c(self, source: NDArray[Any], target: NDArray[Any], axis: int, scale: int) -> None:
        target[...] = scipy.fft.rfft(source, axis=axis, norm=_NORMS[scale])

    def c2r(self, source: NDArray[Any], target: NDArray[Any], axis: int, scale: int) -> None:
        length = target.shape[axis]
        target[...] = scipy.fft.irfft(source, length, axis=axis, norm=_INVERSE_NORMS[scale])


def _choose() -> PocketfftKernel | ScipyKernel:
    """The kernel on the private module where that does what is expected of it."""
    real = np.arange(6.0).reshape(2, 3)
    half, back = np.empty((2, 2), complex), np.empty((2, 3))
    try:
        kernel = PocketfftKernel(import_module("scipy.fft._pocketfft.pypocketfft"))
        kernel.r2c(real, half, 1, 0)
        kernel.c2c(half, half, 0, True, 0)
        right = np.allclose(half, scipy.fft.rfft2(real))
        kernel.c2c(half, half, 0, False, 2)
        kernel.c2r(half, back, 1, 2)
        right = right and np.allclose(back, real)
    except (ImportError, AttributeError, TypeError, ValueError, RuntimeError):
        return ScipyKernel()
    return kernel if right else ScipyKernel()


KERNEL = _choose()
