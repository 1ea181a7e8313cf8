"""Kernel: FFTW through pyfftw. FFTW plans belong to shapes and strides and are kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyfftw
from numpy.typing import NDArray


class PyfftwKernel:
    """Local. See :class:`~.protocol.Kernel`.

    FFTW plans are made at the first call with new shapes, strides, dtypes or alignment, by
    FFTW_MEASURE on memory of their own; later calls only execute.
    """

    def __init__(self) -> None:
        self._plans: dict[Any, Any] = {}

    def _execute(
        self,
        source: NDArray[Any],
        target: NDArray[Any],
        axis: int,
        direction: str,
        length: int,
        scale: int,
    ) -> None:
        alignments = pyfftw.is_byte_aligned(source), pyfftw.is_byte_aligned(target)
        in_place = source.ctypes.data == target.ctypes.data
        key = (
            source.shape,
            source.strides,
            source.dtype.char,
            target.strides,
            axis,
            direction,
            length,
            alignments,
            in_place,
        )
        plan = self._plans.get(key)
        if plan is None:
            flags = ["FFTW_MEASURE"]
            if not all(alignments):
                flags.append("FFTW_UNALIGNED")
            trial = _like(source)
            plan = self._plans[key] = pyfftw.FFTW(
                trial,
                trial if in_place else _like(target),
                axes=(axis,),
                direction=direction,
                flags=flags,
            )
        plan.update_arrays(source, target)
        plan.execute()
        if scale:
            np.multiply(target, length ** (-0.5 * scale), out=target)

    def c2c(
        self, source: NDArray[Any], target: NDArray[Any], axis: int, forward: bool, scale: int
    ) -> None:
        direction = "FFTW_FORWARD" if forward else "FFTW_BACKWARD"
        self._execute(source, target, axis, direction, source.shape[axis], scale)

    def r2c(self, source: NDArray[Any], target: NDArray[Any], axis: int, scale: int) -> None:
        self._execute(source, target, axis, "FFTW_FORWARD", source.shape[axis], scale)

    def c2r(self, source: NDArray[Any], target: NDArray[Any], axis: int, scale: int) -> None:
        self._execute(source, target, axis, "FFTW_BACKWARD", target.shape[axis], scale)


def _like(array: NDArray[Any]) -> NDArray[Any]:
    """Aligned memory in the form of ``array``, for FFTW to measure with."""
    extent = sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True))
    memory = pyfftw.zeros_aligned(extent // array.itemsize + 1, array.dtype)
    return np.lib.stride_tricks.as_strided(memory, array.shape, array.strides)


KERNEL = PyfftwKernel()
