"""Kernel: ducc0, the successor of pocketfft, vectorized over lines."""

from __future__ import annotations

from typing import Any

from ducc0 import fft
from numpy.typing import NDArray

from onesided.pencilfft.kernels.pocketfft_calls import complex_call, real_call
from onesided.pencilfft.kernels.protocol import Run, Task


class Ducc0Kernel:
    """Local. See :class:`~.protocol.Kernel`."""

    name = "ducc0"

    def plan(self, task: Task, effort: str) -> Run | None:
        if task.complex_kind:
            return complex_call(fft, task)
        if task.orthogonal != (task.scale == 1):
            return None  # ducc0 makes the matrix orthogonal with this scale, and only then
        return real_call(fft, task)

    def c2c(
        self, source: NDArray[Any], target: NDArray[Any], axis: int, forward: bool, scale: int
    ) -> None:
        fft.c2c(source, (axis,), forward, scale, target, 1)

    def r2c(self, source: NDArray[Any], target: NDArray[Any], axis: int, scale: int) -> None:
        fft.r2c(source, (axis,), True, scale, target, 1)

    def c2r(self, source: NDArray[Any], target: NDArray[Any], axis: int, scale: int) -> None:
        fft.c2r(source, (axis,), target.shape[axis], False, scale, target, 1)


KERNEL = Ducc0Kernel()
