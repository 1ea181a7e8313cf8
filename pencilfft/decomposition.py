"""Who owns which part of a global array. Pure: nothing here calls MPI.

The P ranks form a process grid with one grid axis for each axis of the array; a grid axis of
size 1 leaves its array axis whole. A one-dimensional transform needs its axis to be local, so a
multi-dimensional one walks through pencils: each step swaps the grid axes of the array axis just
transformed and of the one to be transformed next, and the swap is a transpose among the ranks of
one grid axis. Blocks are as in mpi4py-fft: of n indices over p ranks, the first n % p ranks own
one more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.collectives.errors import PatternError

#: One box per peer: its slices in the local array, None where nothing is exchanged.
Boxes = list[tuple[slice, ...] | None]


def block(length: int, parts: int, index: int) -> tuple[int, int]:
    """Local. The half-open range of the indices that part ``index`` of ``parts`` owns.

    Examples
    --------
    >>> [block(10, 3, index) for index in range(3)]
    [(0, 4), (4, 7), (7, 10)]
    """
    if not 0 <= index < parts:
        raise PatternError(f"part {index} of {parts} does not exist")
    least, more = divmod(length, parts)
    start = index * least + min(index, more)
    return start, start + least + (index < more)


@dataclass(frozen=True)
class PencilGeometry:
    """Local. One rank's block of a global array, whole along ``axis``.

    ``grid`` holds the sizes of the grid axes and ``coords`` this rank's place on them;
    ``layout[i]`` is the grid axis over which array axis i is split. ``substart`` and ``subshape``
    are first global index and length of the block, in elements.

    Examples
    --------
    >>> PencilGeometry((8, 6), (2, 1), (1, 0), (0, 1), 1).subshape
    (4, 6)
    """

    shape: tuple[int, ...]
    grid: tuple[int, ...]
    coords: tuple[int, ...]
    layout: tuple[int, ...]
    axis: int

    def __post_init__(self) -> None:
        if self.parts(self.axis) != 1:
            raise PatternError(
                f"axis {self.axis} is split over {self.parts(self.axis)} ranks, but a pencil is "
                f"whole along it (grid {self.grid})"
            )
        object.__setattr__(self, "axis", self.axis % len(self.shape))

    def parts(self, axis: int) -> int:
        """Local. Over how many ranks an array axis is split."""
        return self.grid[self.layout[axis]]

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """This rank's half-open ranges of global indices, one per axis."""
        return tuple(
            block(length, self.grid[g], self.coords[g])
            for length, g in zip(self.shape, self.layout, strict=True)
        )

    @property
    def substart(self) -> tuple[int, ...]:
        """First global index of the block on each axis."""
        return tuple(start for start, _ in self.ranges)

    @property
    def subshape(self) -> tuple[int, ...]:
        """Local shape."""
        return tuple(stop - start for start, stop in self.ranges)

    def local_slice(self) -> tuple[slice, ...]:
        """Local. The block as slices of the global array."""
        return tuple(slice(start, stop) for start, stop in self.ranges)

    def pencil(self, axis: int) -> PencilGeometry:
        """Local. The pencil that is whole along ``axis`` and split over its grid axis here."""
        layout = list(self.layout)
        layout[self.axis], layout[axis] = layout[axis], layout[self.axis]
        return replace(self, layout=tuple(layout), axis=axis)

    def without(self, batch: int) -> PencilGeometry:
        """Local. The pencil without its first ``batch`` axes, which must not be distributed."""
        layout = tuple(grid_axis - batch for grid_axis in self.layout[batch:])
        axis = self.axis - batch
        return PencilGeometry(
            self.shape[batch:], self.grid[batch:], self.coords[batch:], layout, axis
        )

    def resized(self, axis: int, length: int) -> PencilGeometry:
        """Local. The pencil of an array with another global length along ``axis``."""
        shape = list(self.shape)
        shape[axis] = length
        return replace(self, shape=tuple(shape))


def block_of(pencil: Any) -> tuple[slice, ...]:
    """Local. The block of a pencil, of whoever made it, as slices of the global array."""
    ends = zip(pencil.substart, pencil.subshape, strict=True)
    return tuple(slice(start, start + length) for start, length in ends)


def transpose_boxes(source: PencilGeometry, target: PencilGeometry) -> tuple[Boxes, Boxes]:
    """Local. What a transpose sends and receives, by rank of its grid axis.

    Both pencils are whole along the axis of their own and split alike along all axes but these
    two. Boxes index the local arrays; empty ones are None.
    """
    grid_axis = source.layout[target.axis]
    if target != source.pencil(target.axis):
        raise PatternError(f"no single transpose leads from {source} to {target}")
    boxes: list[Boxes] = []
    for mine, theirs in ((source, target), (target, source)):
        places = [list(theirs.coords) for _ in range(theirs.grid[grid_axis])]
        for peer, place in enumerate(places):
            place[grid_axis] = peer
        blocks = [replace(theirs, coords=tuple(place)).local_slice() for place in places]
        boxes.append(boxes_between(mine.local_slice(), blocks)[0])
    return boxes[0], boxes[1]


def boxes_between(
    mine: tuple[slice, ...], others: Sequence[tuple[slice, ...]]
) -> tuple[Boxes, tuple[int, ...]]:
    """Local. What a block has in common with each of the others, in its own indices, and its shape.

    Blocks are slices of the global array.
    """
    boxes: Boxes = []
    for other in others:
        box = [
            slice(max(a.start, b.start) - a.start, min(a.stop, b.stop) - a.start)
            for a, b in zip(mine, other, strict=True)
        ]
        boxes.append(tuple(box) if all(part.start < part.stop for part in box) else None)
    return boxes, tuple(part.stop - part.start for part in mine)


def memory_order(ndim: int, axes: Sequence[int]) -> tuple[int, ...]:
    """Local. In which order of its axes a stage that transforms ``axes`` lies in memory.

    The last axis stays the fastest; the transformed axes lie next to it, so that the planes which
    a transform touches are contiguous. Outermost first.
    """
    last = ndim - 1
    outer = [axis for axis in range(last) if axis not in axes]
    inner = [axis for axis in range(last) if axis in axes]
    return (*outer, *inner, last)


def nbytes_of(shape: Sequence[int], dtype: np.dtype[Any]) -> int:
    """Local. Bytes of an array."""
    return prod(shape) * dtype.itemsize


def array_in(
    memory: NDArray[np.uint8] | None,
    shape: Sequence[int],
    dtype: np.dtype[Any],
    order: Sequence[int] | None = None,
) -> NDArray[Any]:
    """Local. The first bytes of some memory, or new memory, as an array with its axes in this order
    of memory, outermost first; C order by default."""
    axes = range(len(shape)) if order is None else order
    extents = [shape[axis] for axis in axes]
    if memory is None:
        rows = np.empty(extents, dtype)
    else:
        rows = memory[: nbytes_of(shape, dtype)].view(dtype).reshape(extents)
    return rows.transpose(np.argsort(axes))


def choose_grid(
    size: int,
    shape: Sequence[int],
    whole: Sequence[int],
    grid: Sequence[int] | str | None = None,
    slab: bool | int = False,
) -> tuple[int, ...]:
    """Local. The sizes of the grid axes for ``size`` ranks; axes in ``whole`` are not split.

    ``grid`` gives them as in mpi4py-fft: one entry per axis, missing ones 1, free ones 0 or -1.
    None splits all other axes as evenly as MPI.Compute_dims would, or, where that leaves ranks
    without data, as evenly as keeps most of them busy. "auto" prefers a slab, which
    needs one transpose instead of two, as long as every rank gets planes. ``slab`` splits one
    axis only: the given one, or for True the one after the axis that is transformed first.
    """
    ndim = len(shape)
    if slab is not False and slab is not None:
        if grid is not None:
            raise PatternError(f"slab={slab!r} and grid={grid!r} exclude each other")
        return _slab_grid(size, ndim, whole, (whole[-1] + 1) % ndim if slab is True else slab)
    free = [0 if axis not in whole else 1 for axis in range(ndim)]
    if isinstance(grid, str):
        if grid != "auto":
            raise PatternError(f"grid is {grid!r}; it is a sequence of sizes, None or 'auto'")
        axis = next((axis for axis in range(ndim) if axis not in whole), None)
        if axis is not None and size <= min(shape[axis], *(shape[i] // 2 + 1 for i in whole)):
            return _slab_grid(size, ndim, whole, axis)
    elif grid is not None:
        if len(grid) > ndim:
            raise PatternError(f"grid {tuple(grid)} has more entries than shape {tuple(shape)}")
        free = [max(0, int(part)) for part in grid] + [1] * (ndim - len(grid))
    sizes = balanced(size, free)
    if grid is None and any(part > extent for part, extent in zip(sizes, shape, strict=True)):
        # the grid that gives data to most ranks; of several the most even one
        sizes = min(grids(size, free), key=lambda g: (-_busy(g, shape), _evenness(g), g))
    for axis in whole:
        if sizes[axis] != 1:
            raise PatternError(
                f"grid {sizes} splits axis {axis}, which is transformed first and must be whole"
            )
    return sizes


def on_nodes(sizes: Sequence[int], shape: Sequence[int], near: int) -> tuple[int, ...]:
    """Local. A process grid that splits the same axes, and whose last split axis joins ranks of one
    node only, where consecutive ``near`` ranks are a node: one transpose of two stays there.

    The most even one, with as many busy ranks; ``sizes`` where there is none.
    """
    split = [axis for axis, part in enumerate(sizes) if part > 1]
    best = tuple(sizes)
    if len(split) < 2 or near < 2 or near % best[split[-1]] == 0:
        return best
    busy = _busy(best, shape)
    found = [
        grid
        for grid in grids(prod(sizes), [int(part <= 1) for part in sizes])
        if min(grid[axis] for axis in split) > 1
        and near % grid[split[-1]] == 0
        and _busy(grid, shape) >= busy
    ]
    return min(found, key=_evenness, default=best)


def _busy(grid: Sequence[int], shape: Sequence[int]) -> int:
    """How many ranks have data."""
    return prod(min(part, extent) for part, extent in zip(grid, shape, strict=True))


def _evenness(grid: Sequence[int]) -> list[int]:
    """Less where a grid of as many ranks is more even."""
    return sorted(grid, reverse=True)


def _slab_grid(size: int, ndim: int, whole: Sequence[int], axis: int) -> tuple[int, ...]:
    if not -ndim <= axis < ndim:
        raise PatternError(f"slab={axis} is no axis of an array with {ndim} axes")
    if axis % ndim in whole and size > 1:
        raise PatternError(f"slab={axis} splits an axis which is transformed first")
    return tuple(size if i == axis % ndim else 1 for i in range(ndim))


def balanced(size: int, free: Sequence[int]) -> tuple[int, ...]:
    """Local. Fill the zeros of ``free`` so that the product is ``size``, as evenly as possible.

    Larger factors come first, as in MPI.Compute_dims.
    """
    return min(grids(size, free), key=_evenness)


def grids(size: int, free: Sequence[int]) -> list[tuple[int, ...]]:
    """Local. All process grids for ``size`` ranks that fill the zeros of ``free``; of the same
    factors those with larger ones first come first."""
    places = [i for i, part in enumerate(free) if part == 0]
    rest, more = divmod(size, prod(part or 1 for part in free))
    if more or (not places and rest != 1):
        raise PatternError(f"a process grid of {tuple(free)} does not fit {size} ranks")
    found = []
    for factors in factorizations(rest, len(places)) if places else [()]:
        grid = list(free)
        for place, factor in zip(places, factors, strict=True):
            grid[place] = factor
        found.append(tuple(grid))
    return found


def factorizations(number: int, count: int) -> Iterator[tuple[int, ...]]:
    """Local. All ways to write ``number`` as a product of ``count`` factors, order counting."""
    if count == 1:
        yield (number,)
        return
    for factor in range(number, 0, -1):
        if number % factor == 0:
            for rest in factorizations(number // factor, count - 1):
                yield (factor, *rest)
