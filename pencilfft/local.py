"""The transforms of one stage on local data: a chain of kernels, a few planes at a time.

Local data is larger than the caches, so a block of planes goes through the whole chain before the
next one is touched, in scratch memory that never leaves the cache. Measured on 67 MB, that takes
two thirds to four fifths of the time of the same calls on the whole arrays: a strided transform
from one array to another is slower than a copy and a transform in place, and a copy writes faster
than a kernel does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from onesided.pencilfft.decomposition import memory_order
from onesided.pencilfft.kernels.protocol import Kernel

#: Bytes that a block may touch so that it stays in the second-level cache between two kernels.
CACHE_BYTES = 1 << 20

#: Alignment of scratch memory in bytes: vector instructions want it.
ALIGNMENT = 64

#: Fewest neighboring elements in a block that cuts the last axis: whole cache lines.
COLUMNS = 16

#: "work" and "real" are scratch blocks, for the complex steps and for a real result.
Place = Literal["source", "work", "real", "target"]
#: A part of a result, as an index of it, and the array of that shape which takes it.
Outlet = tuple[tuple[slice, ...], NDArray[Any]]
Run = Callable[[NDArray[Any], NDArray[Any], int], None]  # source, target, scale


@dataclass(frozen=True)
class Step:
    """One kernel call or copy of a chain: which array it reads and which it writes."""

    run: Run
    reads: Place
    writes: Place


class LocalTransform:
    """Local. A chain of one-dimensional transforms from ``source`` to ``target``.

    Shapes and dtypes are those of the local arrays; a real one on either side makes the chain
    real to complex at its start or complex to real at its end. At least one axis must be left
    alone. With ``in_place`` the target is the source as well, and the steps work there. With
    ``outlets`` the result goes there and the target is not touched; it may be the source then.
    """

    def __init__(
        self,
        kernel: Kernel,
        axes: Sequence[int],
        forward: bool,
        shapes: tuple[tuple[int, ...], tuple[int, ...]],
        dtypes: tuple[np.dtype[Any], np.dtype[Any]],
        in_place: bool = False,
        outlets: Sequence[Outlet] = (),
    ) -> None:
        spectral = 0 if dtypes[0].kind == "c" else 1
        shape = shapes[spectral]
        ndim = len(shape)
        self._empty = 0 in shapes[0] or 0 in shapes[1]
        nbytes = sum(
            int(np.prod(shape)) * dtype.itemsize
            for shape, dtype in zip(shapes, dtypes, strict=True)
        )
        self._axis, self._planes, self._length = _blocks(axes, shape, nbytes)
        changes = [False] * len(axes)
        changes[0] = dtypes[0].kind == "f"
        changes[-1] = changes[-1] or dtypes[1].kind == "f"
        calls = [
            _kernel_call(kernel, axis, forward, change)
            for axis, change in zip(axes, changes, strict=True)
        ]
        strided = [axis != ndim - 1 for axis in axes]
        self._outlets = outlets
        self._steps = _steps(calls, strided, changes, in_place, "work" if outlets else "target")
        order = memory_order(ndim, axes)
        self._scratch: dict[Place, NDArray[Any]] = {}
        sides: dict[Place, int] = {"work": spectral, "real": 1}
        for place, side in sides.items():
            if any(place in (step.reads, step.writes) for step in self._steps):
                self._scratch[place] = self._allocate(shapes[side], dtypes[side], order)

    def _allocate(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], order: tuple[int, ...]
    ) -> NDArray[Any]:
        """Scratch for one block, its axes in this order of memory."""
        block = list(shape)
        block[self._axis] = min(self._planes, self._length)
        extents = [block[axis] for axis in order]
        nbytes = int(np.prod(extents)) * dtype.itemsize
        raw = np.empty(nbytes + ALIGNMENT, np.uint8)
        start = -raw.ctypes.data % ALIGNMENT
        memory = raw[start : start + nbytes].view(dtype).reshape(extents)
        return memory.transpose(np.argsort(order))

    def __call__(self, source: NDArray[Any], target: NDArray[Any], scale: int = 0) -> None:
        """Local. Transform; each axis of length n is divided by sqrt(n)**scale."""
        if self._empty:
            return
        before = (slice(None),) * self._axis
        for start in range(0, self._length, self._planes):
            stop = min(start + self._planes, self._length)
            where = (*before, slice(start, stop))
            arrays: dict[Place, NDArray[Any]] = {"source": source[where], "target": target[where]}
            for place, scratch in self._scratch.items():
                arrays[place] = scratch[(*before, slice(0, stop - start))]
            for step in self._steps:
                step.run(arrays[step.reads], arrays[step.writes], scale)
            for part, outlet in self._outlets:
                np.copyto(outlet[where], arrays["work"][part])


def _blocks(axes: Sequence[int], shape: tuple[int, ...], nbytes: int) -> tuple[int, int, int]:
    """Axis along which blocks are cut, indices per block, local length of the axis.

    The first axis that no step transforms; of the last one, whole cache lines at least.
    """
    free = [axis for axis in range(len(shape)) if axis not in axes]
    axis = next((axis for axis in free if shape[axis] > 1), free[0])
    planes = CACHE_BYTES * shape[axis] // max(1, nbytes)
    return axis, max(planes, COLUMNS if axis == len(shape) - 1 else 1), shape[axis]


def _steps(
    calls: Sequence[Run],
    strided: Sequence[bool],
    changes: Sequence[bool],
    in_place: bool,
    end: Place,
) -> list[Step]:
    """Kernel calls, with copies where a strided transform would go from one array to another.

    ``changes`` marks transforms between real and complex, which have to do so.
    """
    here: Place = "target" if in_place else "source"
    inner: Place = "target" if in_place else "work"
    steps = []
    for k, run in enumerate(calls):
        goal: Place = end if k == len(calls) - 1 else inner
        if not changes[k] and strided[k]:
            goal = inner if here == "source" else here
            if here != goal:
                steps.append(Step(_copy, here, goal))
                here = goal
        if changes[k] and here == "work":
            goal = "real"
        steps.append(Step(run, here, goal))
        here = goal
    if here != end:
        steps.append(Step(_copy, here, end))
    return steps


def _copy(source: NDArray[Any], target: NDArray[Any], scale: int) -> None:
    np.copyto(target, source)


def _kernel_call(kernel: Kernel, axis: int, forward: bool, changes: bool) -> Run:
    if not changes:
        return lambda source, target, scale: kernel.c2c(source, target, axis, forward, scale)
    function = kernel.r2c if forward else kernel.c2r
    return lambda source, target, scale: function(source, target, axis, scale)
