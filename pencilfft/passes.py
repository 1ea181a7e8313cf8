"""A pass over local data: a chain of operations, a block of planes at a time.

Local data is larger than the caches, so a block goes through the whole chain before the next one
is touched, in scratch memory that never leaves the cache; its result is then copied to where it
belongs, into one array or into several (the memory of the ranks that take it next). Measured on
67 MB, that takes two thirds to four fifths of the time of the same calls on the whole arrays: a
strided transform from one array to another is slower than a copy and a transform in place, and a
copy writes faster than a kernel does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.pencilfft.decomposition import memory_order
from onesided.pencilfft.kernels.protocol import Layout, Run, Task
from onesided.pencilfft.kernels.selection import Selection
from onesided.pencilfft.operations import Operation, resizer
from onesided.pencilfft.stages import REAL_KINDS

#: Bytes that a block may touch so that it stays in the second-level cache between two kernels.
CACHE_BYTES = 1 << 20

#: Alignment of scratch memory in bytes: vector instructions want it.
ALIGNMENT = 64

#: Caches that one index of the axis of blocks may fill before blocks are cut once more.
MOST_CACHES = 2

#: Fewest neighboring elements in a block that cuts the last axis: whole cache lines.
COLUMNS = 16

#: Power of 1/sqrt(N) in both directions with which cosine and sine transforms are orthogonal.
ORTHONORMAL = 1

#: Part of a result, as slices of the whole local array, and the array of that shape it goes to.
Outlet = tuple[tuple[slice, ...], NDArray[Any]]

_Step = tuple[Run, NDArray[Any] | None, NDArray[Any] | None]


class Scratch:
    """Local. Two pieces of memory for blocks, shared by the passes of a plan."""

    def __init__(self) -> None:
        self._nbytes = 0
        self._memory: list[NDArray[np.uint8]] = []

    def reserve(self, nbytes: int) -> None:
        """Local. See to it that both pieces are this large; before any view is asked for."""
        if nbytes > self._nbytes:
            self._nbytes, self._memory = nbytes, []

    def view(
        self, place: int, shape: Sequence[int], dtype: np.dtype[Any], order: Sequence[int]
    ) -> NDArray[Any]:
        """Local. An array in a piece, with its axes in this order of memory."""
        if not self._memory:
            for _ in range(2):
                raw = np.empty(self._nbytes + ALIGNMENT, np.uint8)
                start = -raw.ctypes.data % ALIGNMENT
                self._memory.append(raw[start : start + self._nbytes])
        extents = [shape[axis] for axis in order]
        nbytes = int(np.prod(extents)) * dtype.itemsize
        flat = self._memory[place][:nbytes].view(dtype)
        return flat.reshape(extents).transpose(np.argsort(order))


@dataclass(frozen=True)
class _Block:
    """One block: where it lies, its chunk, its steps, and where its result is in scratch."""

    where: tuple[slice, ...]
    chunk: int
    ends_chunk: bool
    steps: Sequence[_Step]
    result: NDArray[Any] | None


class Pass:
    """Local. Operations on arrays of ``shape``, whole along the axes that they change.

    At least one axis must be left alone. ``axis`` is the one along which blocks are formed, and
    ``stops`` holds the end of every block along it: the *chunks* of a result that is delivered to
    several arrays. A block may be cut once more along another axis so that it fits the cache.
    """

    def __init__(
        self,
        selection: Selection,
        steps: Sequence[Operation],
        shape: Sequence[int],
        scratch: Scratch,
        cache_bytes: int = CACHE_BYTES,
        uncut: int | None = None,
    ) -> None:
        """Local. Blocks are not cut along ``uncut`` either."""
        self._selection, self._operations = selection, list(steps)
        self._scratch = scratch
        self._shapes = [tuple(shape)]
        for step in steps:
            changed = list(self._shapes[-1])
            changed[step.axis] = step.lengths[1]
            self._shapes.append(tuple(changed))
        axes = sorted({step.axis for step in steps})
        self._order = memory_order(len(shape), axes)
        largest = max(
            (
                _nbytes(shape, step.dtypes[1])
                for shape, step in zip(self._shapes[1:], steps, strict=True)
            ),
            default=0,
        )
        reads = _nbytes(shape, steps[0].dtypes[0]) if steps else 0
        self._empty = any(0 in each for each in self._shapes)
        self.axis, self.stops, self._inner, self._parts = _cut(
            [*axes, *([] if uncut is None else [uncut])], shape, (largest + reads) / cache_bytes
        )
        block = max(np.diff([0, *self.stops]), default=0)
        share = block / max(1, shape[self.axis])
        if self._inner >= 0:
            share *= max(np.diff([0, *self._parts])) / shape[self._inner]
        if self._empty:
            self.stops = [shape[self.axis]]
        elif steps:
            scratch.reserve(int(np.ceil(largest * share)) + ALIGNMENT)
        #: The shape of the result.
        self.shape = self._shapes[-1]
        self._programs: dict[Any, list[_Block]] = {}
        self._routes: dict[str, Sequence[Sequence[Outlet]]] = {}
        self._copies: dict[Any, list[list[tuple[Any, Any]]]] = {}

    def add_route(self, name: str, outlets: Sequence[Sequence[Outlet]]) -> None:
        """Local. Where to :meth:`deliver` the result: by chunk, parts of it and their arrays."""
        self._routes[name] = outlets

    def __call__(self, source: NDArray[Any], target: NDArray[Any], scale: int) -> None:
        """Local. From ``source`` to ``target``; each axis is divided by sqrt(modes)**scale.

        The two may be one array where operations change neither shape nor dtype.
        """
        if self._empty:
            return
        for block in self._program(source, scale):
            here = source[block.where]
            for run, reads, writes in block.steps:
                run(here if reads is None else reads, writes)  # type: ignore[arg-type]
            np.copyto(target[block.where], here if block.result is None else block.result)

    def deliver(
        self, source: NDArray[Any], scale: int, route: str, ready: Callable[[int], None] | None
    ) -> None:
        """Local. From ``source`` to the arrays of a route; ``ready(k)`` follows chunk k."""
        if self._empty:
            for chunk in range(len(self.stops)):
                if ready is not None:
                    ready(chunk)
            return
        program = self._program(source, scale)
        for block, copies in zip(program, self._deliveries(source, scale, route), strict=True):
            here = source[block.where]
            for run, reads, writes in block.steps:
                run(here if reads is None else reads, writes)  # type: ignore[arg-type]
            if block.result is None:
                for target, part in copies:
                    np.copyto(target, here[part])
            else:
                for target, part in copies:
                    np.copyto(target, part)
            if ready is not None and block.ends_chunk:
                ready(block.chunk)

    def prepare(self, source: NDArray[Any], scale: int) -> None:
        """Local. Plan for a source of this memory layout; otherwise the first call does."""
        if not self._empty:
            self._program(source, scale)

    def forget(self) -> None:
        """Local. Drop the views of all routes."""
        self._routes, self._copies, self._programs = {}, {}, {}

    # -- planning ------------------------------------------------------------------------------

    def _program(self, source: NDArray[Any], scale: int) -> list[_Block]:
        key = (source.strides, scale)
        program = self._programs.get(key)
        if program is None:
            program = self._programs[key] = self._plan(source.strides, scale)
        return program

    def _plan(self, strides: tuple[int, ...], scale: int) -> list[_Block]:
        steps: dict[tuple[int, int], tuple[Sequence[_Step], NDArray[Any] | None]] = {}
        blocks = []
        ndim = len(self._shapes[0])
        for chunk, (start, stop) in enumerate(_ranges(self.stops)):
            for low, high in _ranges(self._parts) if self._inner >= 0 else [(0, 0)]:
                where = [slice(None)] * ndim
                where[self.axis] = slice(start, stop)
                if self._inner >= 0:
                    where[self._inner] = slice(low, high)
                size = (stop - start, high - low)
                if size not in steps:
                    steps[size] = self._steps(size, strides, scale)
                last = self._inner < 0 or high == self._parts[-1]
                blocks.append(_Block(tuple(where), chunk, last, *steps[size]))
        return blocks

    def _steps(
        self, size: tuple[int, int], strides: tuple[int, ...], scale: int
    ) -> tuple[Sequence[_Step], NDArray[Any] | None]:
        """The calls for blocks of one size, and where their result lies in scratch."""
        shapes = []
        for shape in self._shapes:
            block = list(shape)
            block[self.axis] = size[0]
            if self._inner >= 0:
                block[self._inner] = size[1]
            shapes.append(tuple(block))
        steps: list[_Step] = []
        here: NDArray[Any] | None = None
        place = 0
        for step, before, after in zip(self._operations, shapes, shapes[1:], strict=False):
            strided = step.axis != len(before) - 1
            if here is None and step.fits_in_place and strided:
                here = self._scratch.view(place, before, step.dtypes[0], self._order)
                steps.append((_copy, None, here))
            if here is not None and step.fits_in_place:
                steps.append((self._run(step, Layout.of(here), None, scale), here, here))
                continue
            layout = (
                Layout(before, strides, step.dtypes[0].char) if here is None else Layout.of(here)
            )
            place = 1 - place
            target = self._scratch.view(place, after, step.dtypes[1], self._order)
            steps.append((self._run(step, layout, target, scale), here, target))
            here = target
        return steps, here

    def _run(self, step: Operation, source: Layout, target: NDArray[Any] | None, scale: int) -> Run:
        if not step.is_kernel:
            return resizer(step)
        return self._selection.run_for(
            Task(
                kind=step.kind,
                axis=step.axis,
                forward=step.forward,
                scale=scale,
                orthogonal=scale == ORTHONORMAL and step.kind in REAL_KINDS,
                source=source,
                target=source if target is None else Layout.of(target),
                in_place=target is None,
            )
        )

    def _deliveries(
        self, source: NDArray[Any], scale: int, route: str
    ) -> list[list[tuple[Any, Any]]]:
        """By block: arrays to write, and the views of scratch (or slices of the source's block)."""
        key = (source.strides, scale, route)
        copies = self._copies.get(key)
        if copies is None:
            outlets = self._routes[route]
            copies = self._copies[key] = [
                [self._copy_of(block, *outlet) for outlet in outlets[block.chunk]]
                for block in self._program(source, scale)
            ]
        return copies

    def _copy_of(
        self, block: _Block, part: tuple[slice, ...], array: NDArray[Any]
    ) -> tuple[Any, Any]:
        inside = [slice(None)] * len(block.where)
        for axis, cut in enumerate(part):
            if axis not in (self.axis, self._inner):
                inside[axis] = cut
        target = array
        if self._inner >= 0:
            target = array[(*[slice(None)] * self._inner, block.where[self._inner])]
        return target, tuple(inside) if block.result is None else block.result[tuple(inside)]


def _copy(source: NDArray[Any], target: NDArray[Any]) -> None:
    np.copyto(target, source)


def _nbytes(shape: Sequence[int], dtype: np.dtype[Any]) -> int:
    return int(np.prod(shape, dtype=np.int64)) * dtype.itemsize


def _ranges(stops: Sequence[int]) -> list[tuple[int, int]]:
    return list(zip([0, *stops[:-1]], stops, strict=True))


def _stops(length: int, step: int) -> list[int]:
    return [*range(step, length, step), length] if length else []


def _cut(
    axes: Sequence[int], shape: Sequence[int], caches: float
) -> tuple[int, list[int], int, list[int]]:
    """The axis of the blocks and their ends; a second axis and its ends, or -1.

    ``caches`` is how many caches the whole array would fill. Blocks are cut along the first axis
    that no operation changes and of which one index about fits the cache, else along the longest
    and along a second one. Of the last axis a block holds whole cache lines at least.
    """
    last = len(shape) - 1
    free = [axis for axis in range(len(shape)) if axis not in axes]
    axis = next((a for a in free if shape[a] > 1 and caches <= MOST_CACHES * shape[a]), None)
    if axis is None:
        axis = max(free, key=lambda a: (shape[a], -a))
    planes = max(round(shape[axis] / max(caches, 1e-9)), COLUMNS if axis == last else 1)
    stops = _stops(shape[axis], min(planes, max(1, shape[axis])))
    left = caches * planes / max(1, shape[axis])
    others = [a for a in free if a != axis and shape[a] > 1]
    if left < MOST_CACHES or not others:
        return axis, stops, -1, []
    inner = max(others, key=lambda a: (shape[a], a))
    step = max(int(shape[inner] / left), COLUMNS if inner == last else 1)
    return axis, stops, inner, _stops(shape[inner], min(step, shape[inner]))
