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

from onesided.pencilfft.blocking import Blocking, cut, ranges
from onesided.pencilfft.decomposition import memory_order
from onesided.pencilfft.kernels.protocol import Layout, Run, Task
from onesided.pencilfft.kernels.selection import Selection
from onesided.pencilfft.operations import Operation, resizer
from onesided.pencilfft.stages import REAL_KINDS

#: Alignment of scratch memory in bytes: vector instructions want it.
ALIGNMENT = 64

#: Power of 1/sqrt(N) in both directions with which cosine and sine transforms are orthogonal.
ORTHONORMAL = 1

#: Part of a result, as slices of the whole local array, and the array of that shape it goes to.
Outlet = tuple[tuple[slice, ...], NDArray[Any]]

# what a step reads and writes: scratch memory, or the block of the source or of the target
_SOURCE, _TARGET = 0, 1
_Place = NDArray[Any] | int
_Step = tuple[Run, _Place, _Place]


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
    """One block: where it lies, its chunk, its steps, and where they leave their result."""

    where: tuple[slice, ...]
    chunk: int
    ends_chunk: bool
    steps: Sequence[_Step]
    result: _Place


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
        blocking: Blocking,
        uncut: int | None = None,
        consumes: bool = False,
    ) -> None:
        """Local. Blocks are not cut along ``uncut`` either; ``consumes``: the source is ours."""
        self._selection, self._operations = selection, list(steps)
        self._scratch = scratch
        self._in_source = blocking.in_source and consumes
        self._in_target = blocking.in_target
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
        self.axis, self.stops, self._inner, self._parts = cut(
            [*axes, *([] if uncut is None else [uncut])], shape, (largest + reads) / blocking.nbytes
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
        for block in self._program(source, scale, target):
            ends = (source[block.where], target[block.where])
            for run, reads, writes in block.steps:
                run(
                    ends[reads] if isinstance(reads, int) else reads,
                    ends[writes] if isinstance(writes, int) else writes,
                )
            result = block.result
            if result is not _TARGET:
                np.copyto(ends[_TARGET], ends[_SOURCE] if isinstance(result, int) else result)

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
                run(
                    here if isinstance(reads, int) else reads,
                    here if isinstance(writes, int) else writes,
                )
            if isinstance(block.result, int):
                for target, part in copies:
                    np.copyto(target, here[part])
            else:
                for target, part in copies:
                    np.copyto(target, part)
            if ready is not None and block.ends_chunk:
                ready(block.chunk)

    def prepare(self, source: NDArray[Any], scale: int, target: NDArray[Any] | None = None) -> None:
        """Local. Plan for these memory layouts; otherwise the first call does.

        Without a target for :meth:`deliver`.
        """
        if not self._empty:
            self._program(source, scale, target)

    def forget(self) -> None:
        """Local. Drop the views of all routes."""
        self._routes, self._copies, self._programs = {}, {}, {}

    # -- planning ------------------------------------------------------------------------------

    def _program(
        self, source: NDArray[Any], scale: int, target: NDArray[Any] | None = None
    ) -> list[_Block]:
        """For sources and targets of these memory layouts."""
        ends: tuple[NDArray[Any] | None, ...] = (source, target)
        key = (scale, *(None if end is None else end.strides for end in ends))
        program = self._programs.get(key)
        if program is None:
            program = self._programs[key] = self._plan(source, target, scale)
        return program

    def _plan(self, source: NDArray[Any], target: NDArray[Any] | None, scale: int) -> list[_Block]:
        steps: dict[tuple[int, int], tuple[Sequence[_Step], _Place]] = {}
        blocks = []
        ndim = len(self._shapes[0])
        for chunk, (start, stop) in enumerate(ranges(self.stops)):
            for low, high in ranges(self._parts) if self._inner >= 0 else [(0, 0)]:
                where = [slice(None)] * ndim
                where[self.axis] = slice(start, stop)
                if self._inner >= 0:
                    where[self._inner] = slice(low, high)
                size = (stop - start, high - low)
                if size not in steps:
                    here, there = (e if e is None else e[tuple(where)] for e in (source, target))
                    steps[size] = self._steps(size, here, there, scale)
                last = self._inner < 0 or high == self._parts[-1]
                blocks.append(_Block(tuple(where), chunk, last, *steps[size]))
        return blocks

    def _steps(
        self,
        size: tuple[int, int],
        source: NDArray[Any] | None,
        target: NDArray[Any] | None,
        scale: int,
    ) -> tuple[Sequence[_Step], _Place]:
        """The calls for blocks of one size, and where they leave their result."""
        shapes = []
        for shape in self._shapes:
            block = list(shape)
            block[self.axis] = size[0]
            if self._inner >= 0:
                block[self._inner] = size[1]
            shapes.append(tuple(block))
        ends = (source, target)
        into = self._into(target)
        steps: list[_Step] = []
        here: _Place = _SOURCE
        place = 0
        for k, step in enumerate(self._operations):
            before, after = shapes[k : k + 2]
            ours = self._in_source or here is not _SOURCE
            if step.fits_in_place and not ours and step.axis != len(before) - 1:
                there = self._place(k >= into, place, before, step.dtypes[0])
                steps.append((_copy, here, there))
                here, ours = there, True
            reads = _array(here, ends)
            if step.fits_in_place and ours:
                steps.append((self._run(step, Layout.of(reads), None, scale), here, here))
                continue
            place = 1 - place
            there = self._place(k >= into, place, after, step.dtypes[1])
            run = self._run(step, Layout.of(reads), _array(there, ends), scale)
            steps.append((run, here, there))
            here = there
        return steps, here

    def _into(self, target: NDArray[Any] | None) -> int:
        """The first operation that leaves its result in the target: none, or all from then on."""
        steps = self._operations
        count = len(steps)
        if target is None or not self._in_target or _memory_order(target) != self._order:
            return count
        free = count  # the operations from here on are made in place
        while free and steps[free - 1].fits_in_place:
            free -= 1
        return count if free == 0 and self._in_source else max(free - 1, 0)

    def _place(
        self, in_target: bool, place: int, shape: Sequence[int], dtype: np.dtype[Any]
    ) -> _Place:
        if in_target:
            return _TARGET
        return self._scratch.view(place, shape, dtype, self._order)

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
        for axis, chosen in enumerate(part):
            if axis not in (self.axis, self._inner):
                inside[axis] = chosen
        target = array
        if self._inner >= 0:
            target = array[(*[slice(None)] * self._inner, block.where[self._inner])]
        if isinstance(block.result, int):
            return target, tuple(inside)
        return target, block.result[tuple(inside)]


def _copy(source: NDArray[Any], target: NDArray[Any]) -> None:
    np.copyto(target, source)


def _array(place: _Place, ends: Sequence[NDArray[Any] | None]) -> NDArray[Any]:
    found = ends[place] if isinstance(place, int) else place
    if found is None:
        raise TypeError("no array is there to be planned for")
    return found


def _memory_order(array: NDArray[Any]) -> tuple[int, ...]:
    return tuple(sorted(range(array.ndim), key=lambda axis: -array.strides[axis]))


def _nbytes(shape: Sequence[int], dtype: np.dtype[Any]) -> int:
    return int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
