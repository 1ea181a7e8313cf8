"""The steps of a stage along single axes: kernels' transforms, and the spectra cut or padded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.pencilfft.kernels.protocol import COMPLEX_KINDS
from onesided.pencilfft.stages import AxisTransform, Stage

CUT, PAD = "cut", "pad"


@dataclass(frozen=True)
class Operation:
    """One step along ``axis``, between arrays of these lengths and dtypes.

    ``kind`` is that of a kernel's task, "cut" or "pad", and ``forward`` its direction;
    ``transform`` is what it belongs to. ``others`` is the product of the points of the axes whose
    factor it takes over, 0 where another one has taken over its own.
    """

    kind: str
    forward: bool
    transform: AxisTransform
    lengths: tuple[int, int]
    dtypes: tuple[np.dtype[Any], np.dtype[Any]]
    others: int = 1

    @property
    def axis(self) -> int:
        """The axis along which the step goes."""
        return self.transform.axis

    @property
    def is_kernel(self) -> bool:
        """Whether a kernel does it."""
        return self.kind not in (CUT, PAD)

    def normalization(self, scale: int) -> tuple[int, int]:
        """Local. ``scale`` and ``others`` of its task."""
        return (scale, self.others) if scale and self.others else (0, 1)

    @property
    def fits_in_place(self) -> bool:
        """Whether it may work in the array that it reads."""
        return self.is_kernel and self.kind not in ("r2c", "c2r")


def operations(stage: Stage, forward: bool) -> list[Operation]:
    """Local. The steps of a stage in one direction."""
    steps: list[Operation] = []
    dtype = stage.dtypes[0]
    for transform in stage.transforms:
        before = dtype
        if transform.kind == "r2c":
            dtype = stage.dtypes[1]
        steps += _of_axis(transform, before, dtype)
    if forward:
        return steps
    return [_reversed(step) for step in reversed(steps)]


def chains(stages: Sequence[Stage], forward: bool) -> list[list[Operation]]:
    """Local. The steps of all stages in one direction, by stage in the order in which they run.

    Of all transforms that have complex data one multiplies by the factor of them all, that along
    the last axis if there is one: its lines are dense, and a factor costs next to nothing there,
    along other axes up to a third of a transform.
    """
    found = [operations(stage, forward) for stage in (stages if forward else stages[::-1])]
    scaled = [step for steps in found for step in steps if step.kind in COMPLEX_KINDS]
    if not scaled:
        return found
    chosen = max(scaled, key=lambda step: step.axis)
    others = prod(step.transform.modes for step in scaled if step is not chosen)
    return [
        [
            replace(step, others=others if step is chosen else 0)
            if step.kind in COMPLEX_KINDS
            else step
            for step in steps
        ]
        for steps in found
    ]


def _of_axis(
    transform: AxisTransform, before: np.dtype[Any], after: np.dtype[Any]
) -> list[Operation]:
    lengths = (transform.physical, transform.full)
    steps = [Operation(*transform.forward, transform, lengths, (before, after))]
    if transform.padded:
        lengths = (transform.full, transform.spectral)
        steps.append(Operation(CUT, True, transform, lengths, (after, after)))
    return steps


def _reversed(step: Operation) -> Operation:
    call = step.transform.backward if step.is_kernel else (PAD, False)
    return Operation(*call, step.transform, step.lengths[::-1], step.dtypes[::-1])


def resizer(
    step: Operation, orthogonal: bool = False
) -> Callable[[NDArray[Any], NDArray[Any]], None]:
    """Local. What cuts or pads a spectrum: ``run(source, target)``.

    A spectrum is cut to the modes that the unpadded points carry. Of an even number of points the
    highest mode stands for both signs (the symmetric interpolant): it takes the sum of the two
    when cut, and gives each a half when padded. So does the highest mode of "dct1" and "dst2";
    where transforms are ``orthogonal`` it gives the root of a half.
    """
    transform = step.transform
    if transform.kind == "c2c" and not transform.kept:
        return _resize_full(step)
    factor = (0.5 if step.kind == PAD else 2.0) if transform.shares_highest else 1.0
    return _resize_half(step, factor**0.5 if orthogonal else factor)


def _resize_half(step: Operation, factor: float) -> Callable[[NDArray[Any], NDArray[Any]], None]:
    """Of non-negative modes, or of cosines and sines: the first ones are kept, the highest of them
    times a factor."""
    axis, kept = step.axis, min(step.lengths)
    low, rest = _along(axis, 0, kept), _along(axis, kept, None)
    top = _along(axis, kept - 1, kept)
    real = step.transform.kind == "r2c"

    def run(source: NDArray[Any], target: NDArray[Any]) -> None:
        np.copyto(target[low], source[low])
        target[rest] = 0
        if factor != 1.0:
            highest = target[top]
            np.multiply(highest, factor, out=highest)
            if real:
                highest.imag[...] = 0

    return run


def _resize_full(step: Operation) -> Callable[[NDArray[Any], NDArray[Any]], None]:
    """Of modes of both signs: the low ones of each are kept."""
    axis, n, cuts = step.axis, step.transform.length, step.kind == CUT
    shared = n % 2 == 0
    positive, negative = (n + 1) // 2, (n - 1) // 2
    low = _along(axis, 0, positive)
    high_from = _along(axis, step.lengths[0] - negative, None)
    high_to = _along(axis, step.lengths[1] - negative, None)
    middle = _along(axis, positive, step.lengths[1] - negative)
    full = max(step.lengths)
    single, plus = _along(axis, n // 2, n // 2 + 1), _along(axis, n // 2, n // 2 + 1)
    minus = _along(axis, full - n // 2, full - n // 2 + 1)

    def run(source: NDArray[Any], target: NDArray[Any]) -> None:
        np.copyto(target[low], source[low])
        np.copyto(target[high_to], source[high_from])
        if not cuts:
            target[middle] = 0
        if shared and cuts:
            np.add(source[plus], source[minus], out=target[single])
        elif shared:
            np.multiply(source[single], 0.5, out=target[plus])
            np.copyto(target[minus], target[plus])

    return run


def _along(axis: int, start: int, stop: int | None) -> tuple[slice, ...]:
    return (*[slice(None)] * axis, slice(start, stop))
