"""The faces of a block in a Cartesian grid of ranks: pure geometry, no MPI call."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onesided.collectives.errors import PatternError
from onesided.collectives.halo.face import Face, is_empty
from onesided.collectives.pattern import Box

#: Ghost layers of one axis: below and above the block's own layers.
Layers = tuple[int, int]


@dataclass(frozen=True)
class Grid:
    """A Cartesian grid of ranks, numbered in C order as by MPI, and one rank's place in it."""

    dims: tuple[int, ...]
    periods: tuple[bool, ...]
    coords: tuple[int, ...]

    def neighbor(self, offset: tuple[int, ...]) -> int | None:
        """The rank in a direction; None beyond the end of an axis that is not periodic."""
        place = [coord + step for coord, step in zip(self.coords, offset, strict=True)]
        for axis, (extent, periodic) in enumerate(zip(self.dims, self.periods, strict=True)):
            if periodic:
                place[axis] %= extent
            elif not 0 <= place[axis] < extent:
                return None
        return int(np.ravel_multi_index(place, self.dims)) if place else 0


def read_width(width: Any, shape: tuple[int, ...], gridded: int) -> tuple[Layers, ...]:
    """Ghost layers (low, high) per axis, from a number, or one or a pair of them per axis.

    A number is meant for the first ``gridded`` axes, the others have no ghost layers then.
    Raises :class:`PatternError` for anything else, negative numbers, ghost layers on axes that are
    not decomposed, and more ghost layers than the array has.
    """
    if isinstance(width, int | np.integer):
        width = [width] * gridded + [0] * (len(shape) - gridded)
    if not isinstance(width, Sequence | np.ndarray) or len(width) != len(shape):
        raise PatternError(
            f"the width is {width!r}, not a number or one per axis of an array of shape {shape}"
        )
    layers = tuple(_layers(entry, axis) for axis, entry in enumerate(width))
    for axis, (low, high) in enumerate(layers):
        if low + high and axis >= gridded:
            raise PatternError(f"ghost layers on axis {axis}; the grid has {gridded} axes only")
        if low + high > shape[axis]:
            raise PatternError(
                f"{low} and {high} ghost layers on axis {axis}, where the array, ghost layers "
                f"included, has an extent of {shape[axis]}"
            )
    return layers


def _layers(entry: Any, axis: int) -> Layers:
    pair = (entry, entry) if isinstance(entry, int | np.integer) else entry
    if not isinstance(pair, Sequence | np.ndarray) or len(pair) != 2 or not all(
        isinstance(number, int | np.integer) and number >= 0 for number in pair
    ):
        raise PatternError(
            f"the width of axis {axis} is {entry!r}, not a number of ghost layers or (low, high)"
        )
    return int(pair[0]), int(pair[1])


def grid_faces(
    shape: tuple[int, ...], width: Any, grid: Grid, corners: bool = True
) -> list[Face]:
    """Local. The faces of a block, then its edges and corners, in the order of their axes.

    ``shape`` is the array's with its ghost layers. The grid's axes are the first ones of the
    array. Raises :class:`PatternError` where the array has fewer axes than the grid, for a width
    as :func:`read_width` does, and where a block has fewer layers than a neighbor needs of it.
    """
    gridded = len(grid.dims)
    if gridded > len(shape):
        raise PatternError(f"a grid of {gridded} axes, and an array of shape {shape}")
    layers = read_width(width, shape, gridded)
    faces = []
    for offset in directions(gridded, corners):
        rank = grid.neighbor(offset)
        if rank is None:
            continue
        steps = offset + (0,) * (len(shape) - gridded)
        send, recv = _send_box(shape, layers, steps), _recv_box(shape, layers, steps)
        if not (is_empty(send) and is_empty(recv)):
            opposite = tuple(-step for step in offset)
            faces.append(Face(rank, send, recv, offset, _key(offset), _key(opposite)))
    return faces


def directions(axes: int, corners: bool) -> list[tuple[int, ...]]:
    """Local. All directions to neighbors, those along one axis first."""
    found = [offset for offset in itertools.product((-1, 0, 1), repeat=axes) if any(offset)]
    if not corners:
        found = [offset for offset in found if sum(map(abs, offset)) == 1]

    def place(offset: tuple[int, ...]) -> tuple[int, list[int], tuple[int, ...]]:
        across = [axis for axis, step in enumerate(offset) if step]
        return len(across), across, offset

    return sorted(found, key=place)


def _key(offset: tuple[int, ...]) -> int:
    """A number for a direction: its digits to the base 3."""
    return sum((step + 1) * 3**axis for axis, step in enumerate(offset))


def _send_box(shape: tuple[int, ...], layers: Sequence[Layers], steps: Sequence[int]) -> Box:
    """The block's own layers that are ghosts of the neighbor."""
    box = []
    for axis, ((low, high), step) in enumerate(zip(layers, steps, strict=True)):
        start, stop = low, shape[axis] - high
        wanted = {-1: high, 0: 0, 1: low}[step]
        if wanted > stop - start:
            raise PatternError(
                f"the block has {stop - start} layers of its own on axis {axis}, and a neighbor "
                f"needs {wanted} of them: use fewer ranks along this axis, or fewer ghost layers"
            )
        box.append({-1: slice(start, start + high), 0: slice(start, stop),
                    1: slice(stop - low, stop)}[step])
    return tuple(box)


def _recv_box(shape: tuple[int, ...], layers: Sequence[Layers], steps: Sequence[int]) -> Box:
    """The ghost layers that show the neighbor's own ones."""
    box = []
    for extent, (low, high), step in zip(shape, layers, steps, strict=True):
        box.append({-1: slice(0, low), 0: slice(low, extent - high),
                    1: slice(extent - high, extent)}[step])
    return tuple(box)
