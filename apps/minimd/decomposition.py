"""How the box is cut over a process grid: pure geometry, no MPI call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.apps.failures import CommandError
from onesided.apps.minimd.problem import AXES, Problem

Grid = tuple[int, int, int]
AUTO = "auto"


def grids(size: int) -> Iterator[Grid]:
    """Local. All process grids of so many ranks."""
    for first in range(1, size + 1):
        if size % first == 0:
            rest = size // first
            for second in range(1, rest + 1):
                if rest % second == 0:
                    yield first, second, rest // second


def fits(grid: Grid, given: Sequence[int | str]) -> bool:
    """Local. Whether a process grid is one that is ``given``, with missing entries at the end."""
    return all(entry in (AUTO, parts) for entry, parts in zip(given, grid, strict=False))


def surface(grid: Sequence[int], lengths: Sequence[float]) -> float:
    """Local. Of the part of the box that a rank has."""
    x, y, z = (length / parts for length, parts in zip(lengths, grid, strict=True))
    return x * y + y * z + z * x


def process_grid(problem: Problem, size: int, given: Sequence[int | str]) -> Grid:
    """Local. The grid whose parts have the least surface, among those that are allowed.

    ``given``: an entry per axis, a number or "auto". :class:`CommandError` where ranks cannot be
    arranged like this, and where parts are thinner than the cutoff with its skin: ghost atoms
    come from the next rank only.
    """
    shown = " ".join(map(str, given))
    if len(given) > AXES:
        raise CommandError(f"--grid {shown}: {len(given)} entries for {AXES} axes")
    fitting = [grid for grid in grids(size) if fits(grid, given)]
    if not fitting:
        raise CommandError(
            f"--grid {shown}: {size} rank{'s' if size > 1 else ''} cannot be arranged like this"
        )
    lengths = problem.lengths
    thick = [grid for grid in fitting if _thinnest(grid, lengths) >= problem.reach]
    if not thick:
        best = max(fitting, key=lambda grid: _thinnest(grid, lengths))
        raise CommandError(
            f"{' x '.join(map(str, problem.cells))} lattice cells are too few for {size} "
            f"rank{'s' if size > 1 else ''}: the parts of a {' x '.join(map(str, best))} process "
            f"grid are {_thinnest(best, lengths):.3g} thin, the cutoff with its skin is "
            f"{problem.reach:.3g}"
        )
    return min(thick, key=lambda grid: surface(grid, lengths))


def _thinnest(grid: Sequence[int], lengths: Sequence[float]) -> float:
    return min(length / parts for length, parts in zip(lengths, grid, strict=True))


@dataclass(frozen=True)
class Domain:
    """The part of the box at one place of the process grid: where it starts and ends."""

    lengths: tuple[float, ...]
    grid: tuple[int, ...]
    place: tuple[int, ...]

    def edges(self, axis: int) -> NDArray[Any]:
        """Local. Where the parts along an axis begin, and the end of the box; same on all ranks."""
        parts = self.grid[axis]
        edges = np.arange(parts + 1) * (self.lengths[axis] / parts)
        edges[-1] = self.lengths[axis]
        return edges

    @property
    def low(self) -> NDArray[Any]:
        """Local. The lower corner, which belongs to the part."""
        return np.array([self.edges(axis)[self.place[axis]] for axis in range(AXES)])

    @property
    def high(self) -> NDArray[Any]:
        """Local. The upper corner, which does not."""
        return np.array([self.edges(axis)[self.place[axis] + 1] for axis in range(AXES)])
