"""Kernel: ducc0, the successor of pocketfft, vectorized over lines."""

from __future__ import annotations

from ducc0 import fft

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


KERNEL = Ducc0Kernel()
