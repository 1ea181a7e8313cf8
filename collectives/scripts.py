"""A script: steps on local data, in a fixed order, run by one call.

What a leg of an FFT does between two exchanges is a list of hundreds of short steps that is known
when it is planned: copy a box, let a library transform some lines, tell that a chunk is ready. So
is a product of a sparse matrix: gather what neighbors need, start a request, multiply, wait,
multiply the rest. The steps are between *places*: an array, or a :class:`Part` of one of the arrays
(*ends*) that are given when the script is run, or that a call in it answers (:class:`Answer`).
These have the strides, and about the alignment, of the samples that it was made with.

The compiled core runs a script without the interpreter but for the steps that need it, see
:mod:`.program`; :class:`PythonScript` is the reference, and the fallback. It stands here because
that core is one library, with the copies of boxes that rounds use as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.collectives.program import COMPILED
from onesided.collectives.steps import (
    CALL,
    GATHER,
    KERNEL,
    SCALE,
    WORK,
    _core,
    address,
    joined_axes,
    lowered_copy,
)

#: Addresses that differ by a multiple of this many bytes are alike to all kernels.
ALIGNMENT = 16

#: Bytes that a script touches from which on it gives up the interpreter lock.
ALONE = 1 << 18

Ends = tuple[NDArray[Any], ...]


@dataclass(frozen=True)
class Part:
    """A part of the array that is this end, from 0 to 3."""

    end: int
    where: tuple[slice, ...] = ()

    def of(self, ends: Ends) -> NDArray[Any]:
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


@dataclass(frozen=True)
class Work:
    """A C function of this package, ``f(handle, number, addresses of the places)``. ``handle``
    belongs to ``keep``; ``nbytes``: that it touches, or so. ``reference`` does the same in Python,
    called with the arrays; without it the step is for the core alone."""

    places: tuple[Place, ...]
    function: int
    number: int = 0
    handle: int = 0
    nbytes: int = 0
    keep: Any = None
    reference: Callable[..., object] | None = None


@dataclass(frozen=True)
class Answer:
    """A call without arguments that answers an array, which is this end from then on."""

    call: Callable[[], NDArray[Any]]
    end: int


@dataclass(frozen=True, eq=False)
class Gather:
    """``target[...] = source[index]``, of whole rows; known to the core."""

    index: NDArray[np.int64]

    def __call__(self, source: NDArray[Any], target: NDArray[Any]) -> None:
        """Local. Both are contiguous."""
        np.take(source, self.index, axis=0, out=target, mode="clip")


#: What to call with source and target, and these. ``copy_array`` and :class:`Gather` are known to
#: the core, and so is what has a method ``lowered(source, target)`` that returns a list of kernels
#: and scalings.
Between = tuple[Callable[[NDArray[Any], NDArray[Any]], object], Place, Place]
Step = Between | Work | Answer | Callable[[], object]


def copy_array(source: NDArray[Any], target: NDArray[Any]) -> None:
    """Local. ``target[...] = source``."""
    np.copyto(target, source)


class PythonScript:
    """Local. The steps in their order, with so many ends; of some, calls give the memory."""

    def __init__(self, steps: Sequence[Step], ends: int) -> None:
        self._steps, self._count = list(steps), ends

    def __call__(self, ends: tuple[Any, ...], addresses: tuple[int, ...] = ()) -> None:
        if len(ends) > self._count:
            raise ValueError(f"a script has {self._count} ends")
        ends += (None,) * (self._count - len(ends))
        for step in self._steps:
            if isinstance(step, tuple):
                step[0](*(_array(place, ends) for place in step[1:]))
            elif isinstance(step, Work):
                if step.reference is None:
                    raise TypeError("a step of the compiled core alone")
                step.reference(*(_array(place, ends) for place in step.places))
            elif isinstance(step, Answer):
                ends = (*ends[: step.end], step.call(), *ends[step.end + 1 :])
            else:
                step()


def script(steps: Sequence[Step], samples: Ends) -> Callable[..., object]:
    """Local. What runs the steps: ``call(ends, addresses of their first elements)``, or
    ``call(ends)`` where all ends are contiguous.

    ``samples`` have the strides of the ends that will be given, or answered, and the addresses of
    these are theirs but for multiples of :data:`ALIGNMENT`. All ends but the first are writable.
    """
    if not COMPILED:
        return PythonScript(steps, len(samples))
    lines: list[tuple[Any, ...]] = []
    lowering = _Lowering(samples)
    for step in steps:
        lines += lowering.lines(step)
    sizes = tuple(sample.nbytes for sample in samples)
    return _core.Script(lines, list(steps), lowering.nbytes >= ALONE, sizes)


def _array(place: Place, ends: Ends) -> NDArray[Any]:
    return place.of(ends) if isinstance(place, Part) else place


class _Lowering:
    """Steps in addresses, and offsets from the samples."""

    def __init__(self, samples: Ends) -> None:
        self._samples = samples
        self._starts = [address(sample) for sample in samples]
        self.nbytes = 0

    def lines(self, step: Step) -> list[tuple[Any, ...]]:
        """Local. What the core takes for a step."""
        if isinstance(step, Answer):
            return [(CALL, step.call, True, step.end)]
        if isinstance(step, Work):
            self.nbytes += step.nbytes
            at = tuple(self._place(place, _array(place, self._samples)) for place in step.places)
            return [(WORK, step.function, step.handle, step.number, at)]
        if not isinstance(step, tuple):
            return [(CALL, step, True, -1)]
        return self._between(*step)

    def _between(self, run: Any, *places: Place) -> list[tuple[Any, ...]]:
        arrays = [_array(place, self._samples) for place in places]
        source, target = arrays
        if not target.size and not source.size:
            return []
        out, into = (self._place(p, a) for p, a in zip(places, arrays, strict=True))
        self.nbytes += target.nbytes
        alike = source.shape == target.shape and source.dtype == target.dtype
        if run is copy_array and alike:
            return [(kind, into, out, *rest)
                    for kind, _, _, *rest in lowered_copy(target, source)]
        if isinstance(run, Gather):
            if not target.size:
                return []
            item = target.nbytes // len(target)
            return [(GATHER, into, out, address(run.index), len(run.index), item)]
        if hasattr(run, "lowered") and target.dtype.char in "fdFD":
            lines: list[tuple[Any, ...]] = []
            for each in run.lowered(source, target):  # at these addresses
                if isinstance(each, Scaling):
                    lines.append(_scaling(each.factor, target, into))
                else:
                    to, at = into[1] + each.target, out[1] + each.source
                    lines.append((KERNEL, (into[0], to), (out[0], at), each.function, each.handle,
                                  each.checked))
            return lines
        return [(CALL, partial(_in_python, run, *places), False, -1)]

    def _place(self, place: Place, array: NDArray[Any]) -> tuple[int, int]:
        if isinstance(place, Part):
            return place.end, address(array) - self._starts[place.end]
        return -1, address(array)


def _in_python(run: Callable[..., object], source: Place, target: Place, *ends: Any) -> None:
    run(_array(source, ends), _array(target, ends))


def _scaling(factor: float, target: NDArray[Any], into: tuple[int, int]) -> tuple[Any, ...]:
    """Multiply all real numbers of an array."""
    shape, strides, item = target.shape, target.strides, target.itemsize
    if target.dtype.kind == "c":
        item //= 2
        shape, strides = (*shape, 2), (*strides, item)
    axes = joined_axes(shape, strides, strides)
    return (SCALE, into, item, factor, *(tuple(int(a[i]) for a in axes) for i in range(2)))
