"""Kernel: FFTW through pyfftw."""

from __future__ import annotations

from typing import Any

import pyfftw
from numpy.typing import NDArray

from onesided.pencilfft.kernels.fftw_calls import BRIEF_SECONDS, FftwRun, can_do, transform_name
from onesided.pencilfft.kernels.protocol import Run, Task


class PyfftwKernel:
    """Local. See :class:`~.protocol.Kernel`."""

    name = "pyfftw"

    def plan(self, task: Task, effort: str) -> Run | None:
        if not can_do(task):
            return None
        options = {
            "axes": (task.axis,),
            "threads": task.threads,
            "direction": f"FFTW_{transform_name(task)}",
            "planning_timelimit": BRIEF_SECONDS if effort == "brief" else None,
        }
        flags = ["FFTW_ESTIMATE" if effort == "estimate" else "FFTW_MEASURE"]

        def planner(source: NDArray[Any], target: NDArray[Any], aligned: bool) -> Run:
            more = [] if aligned else ["FFTW_UNALIGNED"]
            plan = pyfftw.FFTW(source, target, flags=[*flags, *more], **options)
            update, execute = plan.update_arrays, plan.execute

            def run(source: NDArray[Any], target: NDArray[Any]) -> None:
                update(source, target)
                execute()

            return run

        try:
            return FftwRun(task, planner)
        except (RuntimeError, ValueError):  # FFTW has no such plan
            return None


KERNEL = PyfftwKernel()
