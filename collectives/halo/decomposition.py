"""How a grid of cells is cut into blocks, one per rank, what is where, and what an array tells as a
field of it. Pure geometry."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from onesided.collectives.buffers import as_number
from onesided.collectives.errors import PatternError
from onesided.collectives.halo.faces import Layers, Link, Place, extents, links_between, read_width
from onesided.collectives.memory import Region, find_region

#: By form of a grid a number, the same for all of it in this process, by which plans are found.
FORMS: dict[tuple[Any, ...], int] = {}

#: The form of the grid that memory has been made for, and the axes along which it is staggered.
MADE: WeakKeyDictionary[Region, tuple[tuple[Any, ...], Sequence[int]]] = WeakKeyDictionary()


class Decomposition:
    """A grid of cells in blocks, seen by one rank.

    ``shape``, ``dims`` (ranks per axis), ``coords`` (this rank's place), ``periodic``, and
    ``layers`` (ghost layers, (low, high)) have an entry per axis. ``owned`` indexes what a rank
    owns in any field, components included; ``box`` is where it is in the global array. ``starts``
    says, by axis, where blocks begin, and the end; some may be empty. ``order`` are the ranks by
    place, in C order, () where they are numbered so; ``place`` is that of this rank.
    """

    def __init__(
        self, shape: Sequence[int], halo: Any, rank: int, nodes: Sequence[int],
        periodic: bool | Sequence[bool], dims: Sequence[int] | None,
        bounds: Sequence[tuple[float, float]] | None, sizes: Sequence[Sequence[int]] | None,
        reorder: bool,
    ) -> None:
        """Local. ``nodes`` has the node of each rank; the rest as for :class:`~.grid.Grid`, whose
        errors it raises."""
        size = len(nodes)
        self.shape = tuple(operator.index(n) for n in shape)
        axes = len(self.shape)
        if not axes or min(self.shape) < 1:
            raise PatternError(f"no grid of shape {self.shape}")
        self.layers = read_width(halo, tuple(1 << 40 for _ in self.shape), axes)
        each = [periodic] * axes if isinstance(periodic, bool | np.bool_) else list(periodic)
        if len(each) != axes or any(p not in (False, True) for p in each):
            raise PatternError(f"periodic is {periodic!r}, not one truth per axis of {axes}")
        self.periodic = tuple(bool(p) for p in each)
        cuts = () if sizes is None else read_sizes(sizes, self.shape)
        blocks = tuple(map(len, cuts))
        if cuts and dims is not None:
            if len(dims) != axes or any(n and n != m for n, m in zip(dims, blocks, strict=True)):
                raise PatternError(f"dims is {dims!r}, sizes has {blocks} blocks")
        self.dims = choose_dims(self.shape, size, self.layers, blocks or dims)
        ends = [(0.0, float(n)) for n in self.shape] if bounds is None else list(bounds)
        self.bounds = tuple((float(low), float(high)) for low, high in ends)
        if len(self.bounds) != axes or not all(0 < high - low < math.inf
                                               for low, high in self.bounds):
            raise PatternError(f"bounds is {bounds!r}, not (low, high) for each of {axes} axes")
        block = [n / parts for n, parts in zip(self.shape, self.dims, strict=True)]
        self._areas = [math.prod(block) / n * sum(layers)
                       for n, layers in zip(block, self.layers, strict=True)]
        self._nodes = list(nodes)
        self.order: tuple[int, ...] = ()
        if reorder:
            self.order = order_by_node(self.dims, self.periodic, self._areas, nodes)
        self._places = {rank: place for place, rank in enumerate(self.order or range(size))}
        cuts = cuts or tuple(  # the first ones are larger, by one layer
            tuple(n // parts + (place < n % parts) for place in range(parts))
            for n, parts in zip(self.shape, self.dims, strict=True)
        )
        self.starts = tuple((0, *itertools.accumulate(each)) for each in cuts)
        self._lasts = [each.index(each[-1]) - 1 for each in self.starts]  # that have layers
        self.coords = self._coords(rank)
        self.box = self.part(rank, self.shape)
        self.place = Place(self.dims, self.periodic, self.coords, self.order)

    @property
    def local_shape(self) -> tuple[int, ...]:
        """Local. Cells of this rank, without ghosts."""
        return extents(self.box)

    @cached_property
    def owned(self) -> tuple[Any, ...]:
        """Local. The index of what this rank owns, in any field."""
        return (..., *(slice(low, -high or None) for low, high in self.layers))

    @cached_property
    def interior(self) -> tuple[Any, ...]:
        """Local. The index of what can be computed before ghosts have come."""
        thin = any(n < sum(ghosts) for n, ghosts in zip(self.local_shape, self.layers, strict=True))
        inner = [slice(2 * low, -2 * high or None) for low, high in self.layers]
        return (..., *([slice(0, 0)] * len(inner) if thin else inner))  # stays empty when shifted

    @cached_property
    def boundary(self) -> list[tuple[Any, ...]]:
        """Local. Indices of the rest of what this rank owns, each cell in one of them."""
        if slice(0, 0) in self.interior:
            return [self.owned]  # some axis has no interior
        found = []
        for axis, (low, high) in enumerate(self.layers):
            before, after = self.interior[1 : axis + 1], self.owned[axis + 2 :]
            if low:
                found.append((..., *before, slice(low, 2 * low), *after))
            if high:
                found.append((..., *before, slice(-2 * high, -high), *after))
        return found

    @property
    def spacing(self) -> tuple[float, ...]:
        """Local. Between cells, by axis."""
        ends = zip(self.bounds, self.shape, strict=True)
        return tuple((high - low) / n for (low, high), n in ends)

    def coordinates(
        self, staggered: int | Sequence[int] = (), ghosts: bool = False
    ) -> list[NDArray[np.float64]]:
        """Local. By axis, the coordinates of this rank's points, shaped to be broadcast: the
        middles of cells, along ``staggered`` axes their lower ends; with ``ghosts`` theirs, too."""
        axes = self._axes(staggered)
        found = []
        for axis, count in enumerate(self._extents(axes, False)):
            low, high = self.layers[axis] if ghosts else (0, 0)
            start = self.box[axis].start
            points = np.arange(start - low, start + count + high, dtype=float)
            points = self.bounds[axis][0] + (points + 0.5 * (axis not in axes)) * self.spacing[axis]
            found.append(points.reshape([-1 if a == axis else 1 for a in range(len(self.shape))]))
        return found

    def beyond(self, axis: int, staggered: bool) -> Layers:
        """Local. How many ghost layers of this block lie beyond the ends of an axis."""
        if self.periodic[axis] or 0 in self.local_shape:
            return 0, 0
        (low, high), here = self.layers[axis], self.box[axis]
        left = self.shape[axis] - here.stop + (staggered and not self._last(axis))
        return max(0, low - here.start), max(0, high - left)

    def part(self, rank: int, shape: Sequence[int]) -> tuple[slice, ...]:
        """Local. What a rank owns of a global array of this :meth:`global_shape`."""
        lead = len(shape) - len(self.shape)
        found = [slice(0, n) for n in shape[:lead]]
        more = np.subtract(shape[lead:], self.shape).tolist()  # points at the end
        for axis, place in enumerate(self._coords(rank)):
            start, stop = self.starts[axis][place : place + 2]
            found.append(slice(start, stop + more[axis] * (place == self._lasts[axis])))
        return tuple(found)

    def report(self) -> str:
        """Local. In words: blocks, ghosts, and the bytes of a field of doubles that leave nodes in
        an update, by faces, beside those with ranks in C order."""
        placed = [self._nodes[rank] for rank in self.order] or self._nodes
        here, there = (4 * bytes_off(self.dims, self.periodic, self._areas, nodes)
                       for nodes in (placed, self._nodes))
        return (f"{self.shape} cells on {self.dims} ranks of {len(set(self._nodes))} nodes, ghosts "
                f"{self.layers}: {here:.0f} bytes leave nodes ({there:.0f} with ranks in C order)")

    # -- inside -----------------------------------------------------------------------------------

    def _axes(self, axes: int | Sequence[int]) -> tuple[int, ...]:
        given = (axes,) if isinstance(axes, int | np.integer) else tuple(axes)
        for axis in given:
            if not -len(self.shape) <= axis < len(self.shape):
                raise PatternError(f"axis {axis} of a grid of {len(self.shape)}")
        return tuple(axis % len(self.shape) for axis in given)

    def _coords(self, rank: int) -> tuple[int, ...]:
        """The place of a rank."""
        return tuple(int(n) for n in np.unravel_index(self._places[rank], self.dims))

    def _last(self, axis: int) -> bool:
        return not self.periodic[axis] and self.coords[axis] == self._lasts[axis]

    def links(self, layers: Sequence[Layers], staggered: Sequence[int] = ()) -> list[list[Link]]:
        """Local. By axis, the blocks that have ghosts in common with this one."""
        axes = zip(self.starts, self.coords, layers, self.periodic, strict=True)
        return [links_between(*each, axis in staggered and not each[-1])
                for axis, each in enumerate(axes)]

    def _extents(self, staggered: Sequence[int], ghosts: bool = True) -> tuple[int, ...]:
        """Of a field on this rank."""
        return tuple(
            n + (axis in staggered and self._last(axis)) + ghosts * sum(self.layers[axis])
            for axis, n in enumerate(self.local_shape)
        )

    def edges(self, axis: int) -> NDArray[np.float64]:
        """Local. Where blocks begin along an axis, in coordinates, and the end."""
        low, high = self.bounds[axis]
        starts = np.array(self.starts[axis])
        return np.where(starts < self.shape[axis], low + starts * self.spacing[axis], high)

    @property
    def _form(self) -> tuple[Any, ...]:
        """What fields have to agree with: the shape first, the layers last."""
        return self.shape, self.starts, self.order, self.layers

    def _staggering(self, array: Any) -> NDArray[np.int64]:
        """By axis, 1 where a field is staggered; raises :class:`PatternError` for what is no field
        of a grid of this form."""
        if not isinstance(array, np.ndarray):
            raise PatternError(f"a field is an array, not {type(array).__name__}")
        usual, lead = self._extents(()), array.ndim - len(self.shape)
        if lead < 0:
            raise PatternError(f"an array of shape {array.shape} in a grid of {len(usual)} axes")
        more = np.subtract(array.shape[lead:], usual)
        for axis, extra in enumerate(more.tolist()):
            if extra not in (0, int(self._last(axis))):
                raise PatternError(
                    f"a field of this grid has {usual[axis]} layers along axis {axis} on this "
                    f"rank, ghosts included, not {array.shape[lead + axis]}: shape {array.shape}"
                )
        region = find_region(array)
        made, along = (self._form, ()) if region is None else MADE.get(region, (self._form, ()))
        if made != self._form:
            raise PatternError(
                f"a field of another grid, of shape {made[0]} with {made[-1]} layers of ghosts"
            )
        found = np.zeros(len(usual), np.int64)
        found[list(along)] = 1
        staggered: NDArray[np.int64] = found | more
        return staggered


def read_sizes(sizes: Any, shape: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Local. The layers of blocks by axis, as the caller wants them; raises
    :class:`PatternError`."""
    if not isinstance(sizes, Sequence) or len(sizes) != len(shape):
        raise PatternError(f"sizes is {sizes!r}, not the cells of blocks for each axis")
    found = []
    for axis, given in enumerate(sizes):
        each = tuple(as_number(n, "number of cells") for n in given)
        if sum(each) != shape[axis] or min(each, default=-1) < 0:
            raise PatternError(
                f"blocks of {each} cells along axis {axis} of a grid with {shape[axis]}")
        found.append(each)
    return tuple(found)


def order_by_node(
    dims: Sequence[int], periodic: Sequence[bool], areas: Sequence[float], nodes: Sequence[int]
) -> tuple[int, ...]:
    """Local. The ranks by place, in C order, such that as few faces as possible lead off a node.

    ``areas`` are the sizes of faces across each axis, ``nodes`` has the node of each rank. The
    places of a node are a box; () where ranks in their order do as well, or nodes differ in size.
    """
    counts = np.unique(nodes, return_counts=True)[1].tolist()
    best: tuple[int, ...] = ()
    if len(counts) == 1 or len(set(counts)) > 1:
        return best
    least, order = bytes_off(dims, periodic, areas, nodes), np.zeros(len(nodes), int)
    for box in _factorizations(counts[0], len(dims)):
        if any(n % part for n, part in zip(dims, box, strict=True)):
            continue
        boxes = np.arange(len(counts)).reshape(np.floor_divide(dims, box))
        placed = np.kron(boxes, np.ones(box, int))  # the number of the node, by place
        off = bytes_off(dims, periodic, areas, placed)
        if off < least:
            order[np.argsort(placed, axis=None, kind="stable")] = np.argsort(nodes, kind="stable")
            best, least = tuple(order.tolist()), off
    return best


def bytes_off(
    dims: Sequence[int], periodic: Sequence[bool], areas: Sequence[float], nodes: Any
) -> float:
    """Local. The sizes of all faces that lead off a node, summed; ``nodes`` are by place."""
    placed = np.asarray(nodes).reshape(tuple(dims))
    found = 0.0
    for axis, (extent, around, area) in enumerate(zip(dims, periodic, areas, strict=True)):
        beside = np.roll(placed, -1, axis) != placed
        if not around:
            beside = np.delete(beside, extent - 1, axis)
        found += 2 * area * float(np.count_nonzero(beside))
    return found


def choose_dims(
    shape: Sequence[int], ranks: int, layers: Sequence[Layers], dims: Sequence[int] | None = None
) -> tuple[int, ...]:
    """Local. Ranks per axis such that blocks have as many layers as ghosts, if that is possible, as
    few ranks as possible have none, and blocks have the least surface.

    ``dims`` are given entries, 0 for those to be chosen. Of equals the one whose first axes are
    cut most: faces across these lie in one piece in memory.

    Raises :class:`PatternError` where the ranks cannot be arranged like this.
    """
    wanted = [0] * len(shape) if dims is None else [
        0 if n is None else as_number(n, "number of ranks") for n in dims
    ]
    if len(wanted) != len(shape) or min(wanted) < 0:
        raise PatternError(f"dims is {dims!r}, not a number of ranks for each of {len(shape)} axes")
    fitting = [d for d in _factorizations(ranks, len(shape))
               if all(given in (0, n) for given, n in zip(wanted, d, strict=True))]
    if not fitting:
        raise PatternError(f"{ranks} ranks cannot be arranged as {dims!r}")

    def worth(parts: tuple[int, ...]) -> tuple[bool, int, float, tuple[int, ...]]:
        block = [n / p for n, p in zip(shape, parts, strict=True)]
        area = sum(math.prod(block) / block[a] for a, p in enumerate(parts) if p > 1)
        thin = any(n // p < max(1, *ghosts)
                   for n, p, ghosts in zip(shape, parts, layers, strict=True))
        busy = math.prod(min(n, p) for n, p in zip(shape, parts, strict=True))
        return thin, -busy, area, tuple(-p for p in parts)

    return min(fitting, key=worth)


def _factorizations(number: int, count: int) -> Iterator[tuple[int, ...]]:
    if count == 1:
        yield (number,)
        return
    for first in range(1, number + 1):
        if number % first == 0:
            for rest in _factorizations(number // first, count - 1):
                yield (first, *rest)
