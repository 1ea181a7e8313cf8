"""Kernel: FFTW as mpi4py-fft brings it, which plans for arrays without gaps in one memory order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpi4py_fft import fftw
from mpi4py_fft.fftw.factory import fftlib
from numpy.typing import NDArray

from onesided.pencilfft.kernels.fftw_calls import BRIEF_SECONDS, FftwRun, can_do, transform_name
from onesided.pencilfft.kernels.memory import memory_order, packed
from onesided.pencilfft.kernels.protocol import Run, Task


class Mpi4pyFftKernel:
    """Local. See :class:`~.protocol.Kernel`."""

    name = "mpi4py-fft"

    def plan(self, task: Task, effort: str) -> Run | None:
        library = fftlib.get(task.source.char.upper())
        order = memory_order(task.target)
        same_order = memory_order(task.source) == order
        gaps = any(packed(layout) != layout for layout in (task.source, task.target))
        if library is None or gaps or not same_order or not can_do(task):
            return None
        split = not task.complex_kind and task.source.char in "FD"
        if split:
            order = (*order, len(order))
        kind = _kind(task)
        flags = fftw.FFTW_ESTIMATE if effort == "estimate" else fftw.FFTW_MEASURE
        axes = (order.index(task.axis),)

        def planner(source: NDArray[Any], target: NDArray[Any], aligned: bool) -> Run:
            library.set_timelimit(BRIEF_SECONDS if effort == "brief" else -1.0)
            plan = library.FFT(
                source.transpose(order),
                target.transpose(order),
                axes,
                kind,
                task.threads,
                flags | fftw.FFTW_PRESERVE_INPUT | (0 if aligned else fftw.FFTW_UNALIGNED),
            )
            library.set_timelimit(-1.0)
            return _run(plan, order)

        try:
            return FftwRun(task, planner)
        except RuntimeError:  # FFTW has no such plan
            return None


def _run(plan: Callable[..., Any], order: tuple[int, ...]) -> Run:
    """The call of an FFTW plan that was made for the axes in this order."""

    def run(source: NDArray[Any], target: NDArray[Any]) -> None:
        plan(source.transpose(order), target.transpose(order))

    return run


def _kind(task: Task) -> int:
    """The number that mpi4py-fft has for the transform."""
    names = {"r2c": "R2C", "c2r": "C2R"}
    number: int = getattr(fftw, names.get(task.kind) or f"FFTW_{transform_name(task)}")
    return number


KERNEL = Mpi4pyFftKernel()
