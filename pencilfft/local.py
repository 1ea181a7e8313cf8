"""The transforms of one stage on local data: a chain of kernels, a few planes at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .kernels.protocol import Kernel

#: Bytes that a block may touch so that it stays in the second-level cache between two kernels.
CACHE_BYTES = 1 << 20

Place = Literal["source", "work", "target"]


@dataclass(frozen=True)
class Step:
    """One kernel call of a chain: which array it reads and which it writes."""

    run: Callable[[NDArray[Any], NDArray[Any], int], None]  # source, target, scale
    axis: int
    reads: Place
    writes: Place
    copies: Literal["", "before", "after"]  # then the transform itself is in place


@dataclass(frozen=True)
class Pass:
    """Steps that run together on a block of planes before the next block is touched."""

    steps: tuple[Step, ...]
    axis: int  # blocks are ranges of this axis, which no step transforms
    planes: int  # indices per block
    length: int  # local length of the axis

    def blocks(self) -> Iterator[slice]:
        """Local. The blocks as ranges of ``axis``."""
        for start in range(0, self.length, self.planes):
            yield slice(start, min(start + self.planes, self.length))


class LocalTransform:
    """Local. A chain of one-dimensional transforms from ``source`` to ``target``.

    ``inner`` says where the steps between work: in ``target``, in ``source`` (which is
    overwritten then), or in a ``work`` array of the shape of the complex side. Shapes and dtypes
    are those of the local arrays; a real one on either side makes the chain real to complex at
    its start or complex to real at its end. Pass the same array twice only with
    ``inner="target"``.
    """

    def __init__(
        self,
        kernel: Kernel,
        axes: Sequence[int],
        forward: bool,
        shapes: tuple[tuple[int, ...], tuple[int, ...]],
        dtypes: tuple[np.dtype[Any], np.dtype[Any]],
        inner: Place,
        in_place: bool = False,
    ) -> None:
        self._empty = 0 in shapes[0] or 0 in shapes[1]
        places = _places(len(axes), "target" if in_place else "source", inner)
        steps = []
        for k, (axis, (reads, writes)) in enumerate(zip(axes, places, strict=True)):
            real_side = dtypes[0].kind == "f" and k == 0
            real_side = real_side or (dtypes[1].kind == "f" and k == len(axes) - 1)
            strided = axis != len(shapes[0]) - 1
            copies: Literal["", "before", "after"] = ""
            if reads != writes and strided and not real_side and not kernel.out_of_place:
                copies = "after" if reads == inner else "before"
            run = _kernel_call(kernel, axis, forward, real_side)
            steps.append(Step(run, axis, reads, writes, copies))
        nbytes = sum(
            int(np.prod(shape)) * dtype.itemsize
            for shape, dtype in zip(shapes, dtypes, strict=True)
        )
        self._passes = _passes(steps, shapes[0], nbytes)
        self.in_place = in_place
        self.needs_work = any("work" in (step.reads, step.writes) for step in steps)

    def __call__(
        self,
        source: NDArray[Any],
        target: NDArray[Any],
        scale: int = 0,
        work: NDArray[Any] | None = None,
    ) -> None:
        """Local. Transform; each axis of length n is divided by sqrt(n)**scale."""
        if self._empty:
            return
        for part in self._passes:
            index: list[slice] = [slice(None)] * (part.axis + 1)
            for index[-1] in part.blocks():
                where = tuple(index)
                arrays: dict[Place, NDArray[Any]] = {
                    "source": source[where],
                    "target": target[where],
                }
                if work is not None:
                    arrays["work"] = work[where]
                _run_block(part.steps, arrays, scale)


def _run_block(steps: Sequence[Step], arrays: dict[Place, NDArray[Any]], scale: int) -> None:
    for step in steps:
        read, write = arrays[step.reads], arrays[step.writes]
        if step.copies == "before":
            np.copyto(write, read)
            step.run(write, write, scale)
        elif step.copies == "after":
            step.run(read, read, scale)
            np.copyto(write, read)
        else:
            step.run(read, write, scale)


def _places(count: int, first: Place, inner: Place) -> list[tuple[Place, Place]]:
    """What each of ``count`` steps reads and writes: first -> inner, inner, ..., -> target."""
    reads = [first] + [inner] * (count - 1)
    writes: list[Place] = [inner] * (count - 1) + ["target"]
    return list(zip(reads, writes, strict=True))


def _kernel_call(
    kernel: Kernel, axis: int, forward: bool, real_side: bool
) -> Callable[[NDArray[Any], NDArray[Any], int], None]:
    if not real_side:
        return lambda source, target, scale: kernel.c2c(source, target, axis, forward, scale)
    function = kernel.r2c if forward else kernel.c2r
    return lambda source, target, scale: function(source, target, axis, scale)


def _passes(steps: Sequence[Step], shape: tuple[int, ...], nbytes: int) -> list[Pass]:
    """Cut a chain where it would leave no axis to form blocks along."""
    ndim = len(shape)
    if len(steps) > 1 and len(steps) == ndim:
        return [_pass(steps[:-1], shape, nbytes), _pass(steps[-1:], shape, nbytes)]
    return [_pass(steps, shape, nbytes)]


def _pass(steps: Sequence[Step], shape: tuple[int, ...], nbytes: int) -> Pass:
    """Blocks of the first axis that no step transforms; not of the last, whose lines are long."""
    transformed = {step.axis for step in steps}
    free = [axis for axis in range(len(shape)) if axis not in transformed]
    axis = next((axis for axis in free if shape[axis] > 1), free[0])
    length = shape[axis]
    planes = length if axis == len(shape) - 1 else CACHE_BYTES * length // max(1, nbytes)
    return Pass(tuple(steps), axis, max(1, planes), length)
