"""The atoms of one rank: own ones first, then the ghosts that it has of others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.cli.failures import CommandError
from onesided.apps.miniapps.minimd_problem import AXES, Problem
from onesided.collectives import Grid

# How the box is cut over a process grid: pure geometry, no MPI call.

Parts = tuple[int, int, int]
AUTO = "auto"


def grids(size: int) -> Iterator[Parts]:
    """Local. All process grids of so many ranks."""
    for first in range(1, size + 1):
        if size % first == 0:
            rest = size // first
            for second in range(1, rest + 1):
                if rest % second == 0:
                    yield first, second, rest // second


def fits(grid: Parts, given: Sequence[int | str]) -> bool:
    """Local. Whether a process grid is one that is ``given``, with missing entries at the end."""
    return all(entry in (AUTO, parts) for entry, parts in zip(given, grid, strict=False))


def surface(grid: Sequence[int], lengths: Sequence[float]) -> float:
    """Local. Of the part of the box that a rank has."""
    x, y, z = (length / parts for length, parts in zip(lengths, grid, strict=True))
    return x * y + y * z + z * x


def process_grid(problem: Problem, size: int, given: Sequence[int | str]) -> Parts:
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


# The two neighbors of a rank along one axis of the process grid, and what is sent to them.
#
# What is set up from time to time has another size every time. It travels by messages, whatever way
# of exchanging is chosen for the rest.

LOW, HIGH = SIDES = (0, 1)
#: For the lower and the higher neighbor, or from them.
Counts = tuple[int, int]
Pair = tuple[NDArray[Any], NDArray[Any]]


class Axis:
    """The ranks that have the same place along the other axes, as a periodic line.

    ``comm`` has these ranks, ``neighbors`` are the next lower and the next higher one in it;
    ``shifts`` is what positions sent to these are shifted by, because the box is periodic.
    """

    def __init__(self, cart: MPI.Cartcomm, number: int, domain: Domain) -> None:
        """Collective."""
        self.number = number
        self.comm = cart.Sub([axis == number for axis in range(cart.Get_dim())])
        size, rank = self.comm.size, self.comm.rank
        self.neighbors = ((rank - 1) % size, (rank + 1) % size)
        self.edges = domain.edges(number)
        length = float(self.edges[-1])
        self.shifts = (length if rank == 0 else 0.0, -length if rank == size - 1 else 0.0)

    @property
    def alone(self) -> bool:
        """Local. Whether this rank is its own neighbor: nothing is sent."""
        return self.comm.size == 1

    def steps(self, x: NDArray[Any]) -> NDArray[np.int64]:
        """Local. How many ranks higher atoms belong that are in the box, around the end of it."""
        place = np.searchsorted(self.edges, x, side="right") - 1
        steps: NDArray[np.int64] = (place - self.comm.rank) % self.comm.size
        return steps

    def swap(self, leaving: Pair) -> Pair:
        """Collective over the line. Columns for both neighbors; the columns that come from them."""
        if self.alone:
            return leaving[HIGH], leaving[LOW]
        low, high = self.neighbors
        from_high = self.comm.sendrecv(np.ascontiguousarray(leaving[LOW]), low, source=high)
        from_low = self.comm.sendrecv(np.ascontiguousarray(leaving[HIGH]), high, source=low)
        return from_low, from_high

    def free(self) -> None:
        """Collective over the line."""
        self.comm.Free()


# Atoms that have left the part of their rank move to the rank that they have come to.


def wrap(x: NDArray[Any], domain: Domain) -> None:
    """Local. Bring positions back into the periodic box."""
    for row, length in zip(x, domain.lengths, strict=True):
        row -= length * np.floor(row / length)
        row[(row < 0.0) | (row >= length)] = 0.0  # tiny negative numbers, or what became of them


def lost(x: NDArray[Any], axes: Sequence[Axis]) -> int:
    """Local. Atoms in the box that belong to no neighbor of this rank, or nowhere."""
    astray = ~np.isfinite(x).all(axis=0)
    for axis in axes:
        steps = axis.steps(np.where(astray, 0.0, x[axis.number]))
        astray |= (steps > 1) & (steps < axis.comm.size - 1)
    return int(np.count_nonzero(astray))


def migrate(state: NDArray[Any], grid: Grid) -> NDArray[Any]:
    """Collective. Columns of atoms in the box; those that belong to this rank."""
    (rest,), x = grid.migrate([state[AXES:].T], state[:AXES].T)
    return np.concatenate([x.T, rest.T])


SPARE = 1.2  # room for so many times the atoms that there are
LEAST = 64


class Atoms:
    """Positions, velocities and forces, arrays of shape (3, room), and the numbers of the atoms.

    Ghosts have positions and forces only.
    """

    def __init__(self) -> None:
        self.own = self.total = 0
        self.x, self.v, self.f = (np.zeros((AXES, LEAST)) for _ in range(3))
        self.numbers = np.zeros(LEAST)

    def reserve(self, total: int) -> None:
        """Local. Room for so many atoms, ghosts included; what is there is kept."""
        if total <= self.x.shape[1]:
            return
        room = int(SPARE * total) + LEAST
        kept = self.x.shape[1]
        for name in ("x", "v", "f"):
            array = np.zeros((AXES, room))
            array[:, :kept] = getattr(self, name)
            setattr(self, name, array)
        numbers = np.zeros(room)
        numbers[:kept] = self.numbers
        self.numbers = numbers

    def state(self) -> NDArray[Any]:
        """Local. A copy of what own atoms are: a column for each, with positions, velocities and
        its number."""
        own = slice(0, self.own)
        return np.concatenate([self.x[:, own], self.v[:, own], self.numbers[None, own]])

    def load(self, state: NDArray[Any]) -> None:
        """Local. Have these atoms, and no ghosts."""
        self.own = self.total = state.shape[1]
        self.reserve(self.own)
        own = slice(0, self.own)
        self.x[:, own] = state[:AXES]
        self.v[:, own] = state[AXES : 2 * AXES]
        self.numbers[own] = state[2 * AXES]

    def add_ghosts(self, positions: NDArray[Any]) -> slice:
        """Local. Append ghosts; where they are."""
        start, self.total = self.total, self.total + positions.shape[1]
        self.reserve(self.total)
        self.x[:, start : self.total] = positions
        return slice(start, self.total)

    def drop_ghosts(self) -> None:
        """Local."""
        self.total = self.own


# Which atoms are ghosts of which rank: six swaps, along one axis after the other.
#
# Along the second axis a rank sends on what it has got along the first one, and so on, so that
# edges and corners need no messages of their own.


@dataclass(frozen=True)
class Border:
    """The swaps along one axis: for each side the atoms that are sent, and where ghosts come."""

    axis: Axis
    leaving: tuple[NDArray[np.int64], NDArray[np.int64]]
    ghosts: tuple[slice, slice]

    @property
    def sent(self) -> Counts:
        """Local. Atoms that leave, to the lower and the higher neighbor."""
        return self.leaving[LOW].size, self.leaving[HIGH].size

    @property
    def received(self) -> Counts:
        """Local. Ghosts that come from them."""
        low, high = self.ghosts
        return low.stop - low.start, high.stop - high.start


def find_borders(
    atoms: Atoms, axes: Sequence[Axis], low: NDArray[Any], high: NDArray[Any], reach: float
) -> list[Border]:
    """Collective. Give all ranks the ghosts within ``reach`` of their part, and remember whose
    they are."""
    atoms.drop_ghosts()
    borders = []
    for axis in axes:
        at = atoms.x[axis.number, : atoms.total]
        leaving = (
            np.flatnonzero(at < low[axis.number] + reach),
            np.flatnonzero(at >= high[axis.number] - reach),
        )
        positions = [atoms.x[:, which] for which in leaving]
        for side in SIDES:
            positions[side][axis.number] += axis.shifts[side]
        coming = axis.swap((positions[LOW], positions[HIGH]))
        ghosts = atoms.add_ghosts(coming[LOW]), atoms.add_ghosts(coming[HIGH])
        borders.append(Border(axis, leaving, ghosts))
    return borders
