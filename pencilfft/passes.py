"""A pass over local data: a chain of operations, a block of planes at a time.

Local data is larger than the caches, so a block goes through the whole chain before the next one
is touched, in scratch memory that never leaves the cache; its result is then copied to where it
belongs, into one array or into several (the memory of the ranks that take it next). All that is
written down once for arrays of one layout, as a script. Measured on
67 MB, that takes two thirds to four fifths of the time of the same calls on the whole arrays: a
strided transform from one array to another is slower than a copy and a transform in place, and a
copy writes faster than a kernel does.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.collectives.scripts import Part, Place, Step, copy_array, script
from onesided.pencilfft.decomposition import array_in, memory_order, nbytes_of
from onesided.pencilfft.kernels.protocol import ALIGNMENT, REAL_KINDS, Layout, Run, Task, aligned
from onesided.pencilfft.kernels.selection import Selection
from onesided.pencilfft.stages import Operation, resizer

#: Bytes that a block may touch so that it stays in the second-level cache between two kernels.
#: Of a quarter, a half and twice as many none was faster for more than a few shapes.
CACHE_BYTES = 1 << 20

#: Caches that one index of the axis of blocks may fill before blocks are cut once more.
MOST_CACHES = 2

#: Fewest neighboring elements in a block that cuts the last axis: whole cache lines.
COLUMNS = 16

#: Bytes of a message between nodes from which on its latency hardly counts.
MESSAGE_BYTES = 1 << 15

#: Rows of scratch memory begin at cache lines, and do not lie multiples of this many bytes apart,
#: where strided transforms would find few places in the caches; they take up to twice as long.
CROWDED = 512
#: Bytes of a row from which on that is worth the memory.
LONG_ROW = 256

#: Power of 1/sqrt(N) in both directions with which cosine and sine transforms are orthogonal.
ORTHONORMAL = 1

#: Called when a chunk of the result has been delivered.
Mark = Callable[[], object]

#: A pass over arrays of known layouts: called with them, and where they begin.
Script = Callable[..., object]

#: Part of a result, as slices of the whole local array, and the array of that shape it goes to.
Outlet = tuple[tuple[slice, ...], NDArray[Any]]

_SOURCE, _TARGET = 0, 1  # the ends of a script
# what a step of a block reads and writes: scratch memory, or, for None, the block of the source
_Place = NDArray[Any] | None
_BlockStep = tuple[Run, _Place, _Place]


class Scratch:
    """Local. Two pieces of memory for blocks, shared by the passes of a plan."""

    def __init__(self) -> None:
        self._nbytes = 0
        self._memory: list[NDArray[np.uint8]] = []

    @property
    def nbytes(self) -> int:
        """Bytes of both pieces."""
        return 2 * self._nbytes

    def reserve(self, nbytes: int) -> None:
        """Local. See to it that both pieces are this large; before any view is asked for."""
        if nbytes > self._nbytes:
            self._nbytes, self._memory = nbytes, []

    def view(
        self, place: int, shape: Sequence[int], dtype: np.dtype[Any], order: Sequence[int]
    ) -> NDArray[Any]:
        """Local. An array in a piece, with its axes in this order of memory, its rows apart."""
        if not self._memory:
            for _ in range(2):
                self._memory.append(aligned(self._nbytes))
        extents = _apart(shape, dtype, order)
        rows = array_in(self._memory[place], extents, dtype)[..., : shape[order[-1]]]
        return rows.transpose(np.argsort(order))


class Pass:
    """Local. Operations on arrays of ``shape``, whole along the axes that they change.

    At least one axis must be left alone. ``axis`` is the one along which blocks are formed. A block
    may be cut once more along another axis so that it fits the cache. ``stops`` holds the ends,
    along ``axis``, of the *chunks* of a result that is delivered to several arrays: of one block
    each, or of as many as it takes to have ``least`` bytes.
    """

    def __init__(
        self,
        selection: Selection,
        steps: Sequence[Operation],
        shape: Sequence[int],
        scratch: Scratch,
        uncut: int | None = None,
        in_source: bool = False,
        least: int = 0,
    ) -> None:
        """Local. Blocks are not cut along ``uncut`` either; ``in_source``: transforms may be made
        in what is read, otherwise a block is copied first."""
        self._selection, self._operations = selection, list(steps)
        self._scratch, self._in_source = scratch, in_source
        self._shapes = [tuple(shape)]
        for step in steps:
            changed = list(self._shapes[-1])
            changed[step.axis] = step.lengths[1]
            self._shapes.append(tuple(changed))
        axes = sorted({step.axis for step in steps})
        self._order = memory_order(len(shape), axes)
        largest = max(
            (
                nbytes_of(shape, step.dtypes[1])
                for shape, step in zip(self._shapes[1:], steps, strict=True)
            ),
            default=0,
        )
        reads = nbytes_of(shape, steps[0].dtypes[0]) if steps else 0
        self._empty = any(0 in each for each in self._shapes)
        self.axis, self._blocks, self._inner, self._parts = cut(
            [*axes, *([] if uncut is None else [uncut])], shape, (largest + reads) / CACHE_BYTES
        )
        block = max(np.diff([0, *self._blocks]), default=0)
        #: The shape of the result.
        self.shape = self._shapes[-1]
        self.stops = [shape[self.axis]]
        if not self._empty:
            dtype = steps[-1].dtypes[1] if steps else np.dtype(np.uint8)
            self.stops = chunks(self._blocks, nbytes_of(self.shape, dtype), least)
            part = max(np.diff([0, *self._parts])) if self._inner >= 0 else 0
            for step, each in zip(steps, self._block_shapes((block, part))[1:], strict=True):
                dtype = step.dtypes[1]
                scratch.reserve(nbytes_of(_apart(each, dtype, self._order), dtype))
        self._chosen: dict[Operation, set[str]] = {}  # kernels
        self._routes: dict[str, tuple[Sequence[Sequence[Outlet]], Sequence[Mark]]] = {}

    def add_route(
        self, name: str, outlets: Sequence[Sequence[Outlet]], marks: Sequence[Mark] = ()
    ) -> None:
        """Local. Where the result may go: by chunk, parts of it and their arrays, and what is
        called when it is there."""
        self._routes[name] = outlets, marks

    def script(
        self, source: NDArray[Any], target: NDArray[Any], scale: int, route: str | None, fields: int
    ) -> Script:
        """Local. What runs for arrays of these memory layouts.

        Each axis is divided by sqrt(modes)**scale. The result goes to ``target``, which may be the
        source where operations change neither shape nor dtype, or by a route. ``fields``: of the
        first axis only so many, 0 is all.
        """
        ends = source, target
        return script(self._plan(ends, scale, route, fields), ends)

    def describe(self) -> list[str]:
        """Local. Each operation, with the kernels that do it, as far as it has been planned."""
        lines = []
        for step in self._operations:
            found = sorted(self._chosen.get(step, ()))
            names = f": {', '.join(found)}" if found else ""
            lines.append(f"{step.kind} along axis {step.axis}, {step.lengths[0]} to "
                         f"{step.lengths[1]}{names}")  # fmt: skip
        return lines

    def forget(self) -> None:
        """Local. Drop the views of all routes."""
        self._routes = {}

    # -- planning ------------------------------------------------------------------------------

    def _plan(
        self, ends: tuple[NDArray[Any], NDArray[Any]], scale: int, route: str | None, fields: int
    ) -> list[Step | Callable[[], object]]:
        """The steps of all blocks."""
        made: dict[tuple[int, int], tuple[Sequence[_BlockStep], _Place]] = {}
        source, target = ends[0], ends[1] if route is None else None
        outlets, marks = ((), ()) if route is None else self._routes[route]
        if self._empty:
            return list(marks)
        steps: list[Step | Callable[[], object]] = []
        begin = 0
        some = slice(0, fields) if fields else slice(None)  # of the first axis
        parts = [(0, 0)]
        if self._inner >= 0:
            parts = self._chosen_of(self._inner, ranges(self._parts), fields)
        for start, stop in ranges(self._blocks):
            chunk = bisect_left(self.stops, stop)
            blocks = self._chosen_of(self.axis, [(start, stop)], fields)
            for (first, last), (low, high) in product(blocks, parts):
                where = [some, *[slice(None)] * (source.ndim - 1)]
                where[self.axis] = slice(first, last)
                if self._inner >= 0:
                    where[self._inner] = slice(low, high)
                places = Part(_SOURCE, tuple(where)), Part(_TARGET, tuple(where))
                size = (last - first, high - low)
                if size not in made:
                    made[size] = self._steps(size, source[tuple(where)], scale, fields)
                calls, result = made[size]
                for run, *sides in calls:
                    reads, writes = (places[_SOURCE] if s is None else s for s in sides)
                    steps.append((run, reads, writes))
                left = places[_SOURCE] if result is None else result
                if target is not None and not (result is None and target is source):
                    steps.append((copy_array, left, places[_TARGET]))
                spans = slice(first - begin, last - begin), slice(low, high)
                for outlet in outlets[chunk] if outlets else ():
                    steps.append(self._copy_of(left, spans, some, *outlet))
            if stop == self.stops[chunk]:
                begin = stop
                if marks:
                    steps.append(marks[chunk])
        return steps

    def _steps(
        self, size: tuple[int, int], source: NDArray[Any], scale: int, fields: int
    ) -> tuple[Sequence[_BlockStep], _Place]:
        """The calls for blocks of one size, and where they leave their result."""
        shapes = self._block_shapes(size, fields)
        steps: list[_BlockStep] = []
        here: _Place = None
        place = 0
        for k, step in enumerate(self._operations):
            before, after = shapes[k : k + 2]
            ours = self._in_source or here is not None
            if step.fits_in_place and not ours and step.axis != len(before) - 1:
                there = self._scratch.view(place, before, step.dtypes[0], self._order)
                steps.append((copy_array, here, there))
                here, ours = there, True
            reads = Layout.of(source if here is None else here)
            if step.fits_in_place and ours:
                steps.append((self._call(step, reads, None, scale), here, here))
                continue
            place = 1 - place
            there = self._scratch.view(place, after, step.dtypes[1], self._order)
            steps.append((self._call(step, reads, there, scale), here, there))
            here = there
        return steps, here

    @staticmethod
    def _chosen_of(
        axis: int, spans: Sequence[tuple[int, int]], fields: int
    ) -> list[tuple[int, int]]:
        """Spans of an axis, of the first one as far as there are fields."""
        if axis or not fields:
            return list(spans)
        return [(low, min(high, fields)) for low, high in spans if low < fields]

    def _block_shapes(self, size: tuple[int, int], fields: int = 0) -> list[tuple[int, ...]]:
        """Before the first operation and after each, of a block of this size."""
        shapes = []
        for shape in self._shapes:
            block = [fields or shape[0], *shape[1:]]
            block[self.axis] = size[0]
            if self._inner >= 0:
                block[self._inner] = size[1]
            shapes.append(tuple(block))
        return shapes

    def _call(
        self, step: Operation, source: Layout, target: NDArray[Any] | None, scale: int
    ) -> Run:
        orthogonal = scale == ORTHONORMAL and step.transform.kind in REAL_KINDS
        if not step.is_kernel:
            return resizer(step, orthogonal)
        own, others = step.normalization(scale)
        task = Task(
            kind=step.kind,
            axis=step.axis,
            forward=step.forward,
            scale=own,
            orthogonal=orthogonal,
            source=source,
            target=source if target is None else Layout.of(target),
            in_place=target is None,
            threads=self._selection.threads,
            others=others,
        )
        run = self._selection.run_for(task)
        self._chosen.setdefault(step, set()).add(self._selection.choices.get(task, "nothing"))
        return run

    def _copy_of(
        self,
        left: Place,
        spans: tuple[slice, slice],
        some: slice,
        part: tuple[slice, ...],
        array: NDArray[Any],
    ) -> Step:
        """From where a block's result is to one of the arrays that take its chunk; ``spans``: where
        the block lies in it, along the two axes that are cut, and ``some``, along the first one."""
        inside = [slice(None)] * len(part)
        for axis, chosen in enumerate(part):
            if axis not in (self.axis, self._inner):
                inside[axis] = chosen
        place = [slice(None)] * len(part)
        if some.stop and 0 not in (self.axis, self._inner):
            inside[0] = place[0] = some
        place[self.axis] = spans[0]
        if self._inner >= 0:
            place[self._inner] = spans[1]
        target = array[tuple(place)]
        if isinstance(left, Part):
            whole = (slice(None),) * len(part)
            pairs = zip(inside, left.where, whole, strict=True)
            where = tuple(of if one == every else one for one, of, every in pairs)
            return copy_array, Part(left.end, where), target
        return copy_array, left[tuple(inside)], target


def _apart(shape: Sequence[int], dtype: np.dtype[Any], order: Sequence[int]) -> list[int]:
    """The extents in memory of an array in scratch, rows longer than they need be."""
    extents = [shape[axis] for axis in order]
    row = extents[-1] * dtype.itemsize
    if row >= LONG_ROW and dtype.itemsize <= ALIGNMENT and not ALIGNMENT % dtype.itemsize:
        row = -(-row // ALIGNMENT) * ALIGNMENT
        row += ALIGNMENT * (row % CROWDED == 0)
        extents[-1] = row // dtype.itemsize
    return extents


def ranges(stops: Sequence[int]) -> list[tuple[int, int]]:
    """Local. Start and end of every part, from the ends."""
    return list(zip([0, *stops[:-1]], stops, strict=True))


def _stops(length: int, step: int) -> list[int]:
    return [*range(step, length, step), length] if length else []


def chunks(blocks: Sequence[int], nbytes: int, least: int) -> list[int]:
    """Local. The ends of chunks of ``least`` bytes at least, each of whole blocks.

    ``blocks`` are the ends of the blocks of a result of ``nbytes``. The last chunk may have less.
    """
    found = []
    start = 0
    for stop in blocks:
        if (stop - start) * nbytes >= least * blocks[-1]:
            found.append(stop)
            start = stop
    return found if start == blocks[-1] else [*found, blocks[-1]]


def cut(
    axes: Sequence[int], shape: Sequence[int], caches: float
) -> tuple[int, list[int], int, list[int]]:
    """Local. The axis of the blocks and their ends; a second axis and its ends, or -1.

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
