"""A script: steps on local data, in a fixed order, run by one call.

What a leg of an FFT does between two exchanges is a list of hundreds of short steps that is known
when it is planned: copy a box, let a library transform some lines, tell that a chunk is ready. The
steps are between *places*: an array, or a :class:`Part` of one of the two arrays (*ends*) that are
given when the script is run. These have the strides, and about the alignment, of the samples that
it was made with.

The compiled core runs a script without the interpreter but for the steps that need it, see
:mod:`.program`; :class:`PythonScript` is the reference, and the fallback.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.collectives.program import (
    BOX,
    CALL,
    COMPILED,
    COPY,
    KERNEL,
    SCALE,
    _core,
    address,
    joined_axes,
)

#: Addresses that differ by a multiple of this many bytes are alike to all kernels.
ALIGNMENT = 16

#: Bytes that a script touches from which on it gives up the interpreter lock.
ALONE = 1 << 18

Ends = tuple[NDArray[Any], NDArray[Any]]


@dataclass(frozen=True)
class Part:
    """A part of the array given as this end, 0 or 1."""

    end: int
    where: tuple[slice, ...] = ()

    def of(self, ends: Ends) -> NDArray[Any]:
        """Local. The part."""
        part: NDArray[Any] = ends[self.end][self.where]
        return part


Place = NDArray[Any] | Part


@dataclass(frozen=True)
class Kernel:
    """A C function of a library that transforms lines, ``f(handle, source, target)``.

    ``source`` and ``target`` are offsets from the first elements of the arrays. ``checked``: it
    returns a status, 0 for success, and is variadic. ``handle`` belongs to ``keep``.
    """

    function: int
    handle: int
    checked: bool
    source: int = 0
    target: int = 0
    keep: Any = None


@dataclass(frozen=True)
class Scaling:
    """The target, of real or complex numbers of single or double precision, times a factor."""

    factor: float


#: A step: what to call with source and target, and these. ``copy_array`` is known to the core, and
#: so is what has a method ``lowered(source, target)`` that returns a list of kernels and scalings.
Step = tuple[Callable[[NDArray[Any], NDArray[Any]], object], Place, Place]


def copy_array(source: NDArray[Any], target: NDArray[Any]) -> None:
    """Local. ``target[...] = source``."""
    np.copyto(target, source)


class PythonScript:
    """Local. Steps, or calls without arguments, in their order."""

    def __init__(self, steps: Sequence[Step | Callable[[], object]]) -> None:
        self._steps = list(steps)

    def __call__(self, ends: Ends, addresses: tuple[int, int] = (0, 0)) -> None:
        for step in self._steps:
            if not isinstance(step, tuple):
                step()
                continue
            run, source, target = step
            run(
                source.of(ends) if isinstance(source, Part) else source,
                target.of(ends) if isinstance(target, Part) else target,
            )


def script(
    steps: Sequence[Step | Callable[[], object]], samples: Ends
) -> Callable[[Ends, tuple[int, int]], object]:
    """Local. What runs the steps: ``call(ends, addresses of their first elements)``.

    ``samples`` have the strides of the ends that will be given, and the addresses of these are
    theirs but for multiples of :data:`ALIGNMENT`.
    """
    if not COMPILED:
        return PythonScript(steps)
    lines: list[tuple[Any, ...]] = []
    lowering = _Lowering(samples)
    for step in steps:
        lines += lowering.lines(step) if isinstance(step, tuple) else [(CALL, _ignoring(step))]
    return _core.Script(lines, list(steps), lowering.nbytes >= ALONE)


def _ignoring(call: Callable[[], object]) -> Callable[..., object]:
    return lambda *ends: call()


class _Lowering:
    """Steps in addresses, and offsets from the samples."""

    def __init__(self, samples: Ends) -> None:
        self._samples = samples
        self._starts = [address(sample) for sample in samples]
        self.nbytes = 0

    def lines(self, step: Step) -> list[tuple[Any, ...]]:
        run, *places = step
        arrays = [p.of(self._samples) if isinstance(p, Part) else p for p in places]
        source, target = arrays
        if not target.size and not source.size:
            return []
        (from_end, from_at), (to_end, to_at) = (
            self._place(p, a) for p, a in zip(places, arrays, strict=True)
        )
        self.nbytes += target.nbytes
        alike = source.shape == target.shape and source.dtype == target.dtype
        if run is copy_array and alike:
            axes = joined_axes(target.shape, target.strides, source.strides)
            item = target.itemsize
            if len(axes) == 1 and (axes[0][1] == axes[0][2] == item or axes[0][0] == 1):
                return [(COPY, to_end, to_at, from_end, from_at, target.nbytes)]
            sides = (tuple(int(axis[i]) for axis in axes) for i in range(3))
            return [(BOX, to_end, to_at, from_end, from_at, item, *sides)]
        if hasattr(run, "lowered") and target.dtype.char in "fdFD":
            lines: list[tuple[Any, ...]] = []
            for each in run.lowered(source, target):  # at these addresses
                if isinstance(each, Scaling):
                    lines.append(_scaling(each.factor, target, to_end, to_at))
                else:
                    lines.append((
                        KERNEL, to_end, to_at + each.target, from_end, from_at + each.source,
                        each.function, each.handle, each.checked,
                    ))  # fmt: skip
            return lines
        return [(CALL, partial(_in_python, run, *places))]

    def _place(self, place: Place, array: NDArray[Any]) -> tuple[int, int]:
        if isinstance(place, Part):
            return place.end, address(array) - self._starts[place.end]
        return -1, address(array)


def _in_python(
    run: Callable[[NDArray[Any], NDArray[Any]], object], source: Place, target: Place, *ends: Any
) -> None:
    run(
        source.of(ends) if isinstance(source, Part) else source,
        target.of(ends) if isinstance(target, Part) else target,
    )


def _scaling(factor: float, target: NDArray[Any], end: int, at: int) -> tuple[Any, ...]:
    """Multiply all real numbers of an array."""
    shape, strides, item = target.shape, target.strides, target.itemsize
    if target.dtype.kind == "c":
        item //= 2
        shape, strides = (*shape, 2), (*strides, item)
    axes = joined_axes(shape, strides, strides)
    return (SCALE, end, at, item, factor, *(tuple(int(a[i]) for a in axes) for i in range(2)))
