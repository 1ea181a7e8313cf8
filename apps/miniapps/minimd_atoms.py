"""What is to be computed, atoms that attract and repel each other in a periodic box; those of one
rank, how they and its ghosts come to be there, and what brings ghosts up to date.

All numbers are in the reduced units of Lennard and Jones, the mass of an atom is 1.

Source: Mantevo's MiniMD; paper 002, section III-B.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from math import ceil, prod
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.cli.failures import CommandError
from onesided.apps.miniapps.halos import Need, parts
from onesided.collectives import Grid, OnesidedError
from onesided.sparse import HaloPattern

AXES = 3
ATOMS_PER_CELL = 4  # of a face-centered cubic lattice


@dataclass(frozen=True)
class Problem:
    """The standard problem of MiniMD by default, but for its size.

    ``cells``: lattice cells along every axis. ``temperature``: at the start. ``every``: steps
    from one set of neighbor lists to the next; these have all pairs within ``cutoff`` + ``skin``.
    ``thermo``: steps from one line of output to the next, 0: only at the start and at the end.
    """

    cells: tuple[int, int, int] = (10, 10, 10)
    steps: int = 100
    dt: float = 0.005
    temperature: float = 1.44
    density: float = 0.8442
    every: int = 20
    cutoff: float = 2.5
    skin: float = 0.3
    thermo: int = 100
    epsilon: float = 1.0
    sigma: float = 1.0

    @property
    def atoms(self) -> int:
        """Local. In the whole box."""
        return ATOMS_PER_CELL * prod(self.cells)

    @property
    def constant(self) -> float:
        """Local. The edge of a lattice cell."""
        return float((ATOMS_PER_CELL / self.density) ** (1.0 / 3.0))

    @property
    def halves(self) -> tuple[int, ...]:
        """Local. Half cells along every axis: the atoms are at corners of these."""
        return tuple(2 * count for count in self.cells)

    @property
    def lengths(self) -> tuple[float, ...]:
        """Local. Of the box, along every axis."""
        return tuple(count * self.constant for count in self.cells)

    @property
    def reach(self) -> float:
        """Local. How far apart two atoms of a list are at most, when it is made."""
        return self.cutoff + self.skin

    @property
    def end_energy(self) -> float:
        """Local. The energy of a pair at the cutoff, where it ends. The potential jumps there to
        zero, so that it is not the potential energy of the output which is conserved, but that of a
        potential shifted by this for each pair."""
        sixth = (self.sigma / self.cutoff) ** 6
        return 4.0 * self.epsilon * sixth * (sixth - 1.0)

    def due(self, step: int) -> bool:
        """Local. Whether a line of output belongs to a step."""
        return step in (0, self.steps) or (self.thermo > 0 and step % self.thermo == 0)


class Atoms:
    """Positions, velocities and forces, arrays of shape (3, n), and the numbers of the atoms.
    Ghosts, which come behind the own atoms, have positions and forces only."""

    def __init__(self, state: NDArray[Any]) -> None:
        """Local. Of a state, and no ghosts."""
        x, v, (numbers,) = np.split(state, [AXES, 2 * AXES])
        self.x, self.v, self.numbers = x.copy(), v.copy(), numbers.copy()
        self.f = np.zeros_like(x)

    @property
    def own(self) -> int:
        """How many are no ghosts."""
        return len(self.numbers)

    def state(self) -> NDArray[Any]:
        """Local. A copy of what own atoms are: a column for each, with positions, velocities and
        its number."""
        return np.concatenate([self.x[:, : self.own], self.v, self.numbers[None]])


@dataclass(frozen=True)
class Border:
    """Which own atoms are ghosts of which rank, and whose ghosts are here; images of own atoms are
    ghosts of the rank itself.

    ``leaving``: own atoms, by the rank that gets them, ``sent`` of them each; ``received``: ghosts
    of every rank, in that order; ``shifts``: what is added to the position of the atom that a
    ghost is of, because the box is periodic.
    """

    rank: int
    leaving: NDArray[np.int64]
    sent: NDArray[np.int64]
    received: NDArray[np.int64]
    shifts: NDArray[np.float64]


class Block:
    """The part of the periodic box that a rank has: a block of a grid, whose cells are half as long
    as those of the lattice. ``low`` and ``high``: its corners, the first of which belongs to it."""

    def __init__(self, comm: MPI.Intracomm, problem: Problem) -> None:
        """Collective. :class:`CommandError` where parts are thinner than lists reach: ghosts come
        from ranks that are next to this one."""
        cells, bounds = problem.halves, [(0.0, length) for length in problem.lengths]
        layers = ceil(2 * problem.reach / problem.constant)
        self.grid = Grid(comm, cells, layers, periodic=True, bounds=bounds)
        thinnest = min(n // parts * each for n, parts, each in zip(
            cells, self.grid.dims, self.grid.spacing, strict=True))  # fmt: skip
        if thinnest < problem.reach:
            self.grid.Free()
            raise CommandError(
                f"{' x '.join(map(str, problem.cells))} lattice cells are too few for {comm.size} "
                f"rank{'s' if comm.size > 1 else ''}: a part is {thinnest:.3g} thin, the cutoff "
                f"with its skin is {problem.reach:.3g}"
            )
        self.low, self.high = np.array(
            [(at.start * each, end if at.stop == n else at.stop * each) for at, each, n, (_, end)
             in zip(self.grid.box, self.grid.spacing, cells, bounds, strict=True)]
        ).T  # fmt: skip
        self._lengths, self._reach = np.array(problem.lengths), problem.reach
        self._comm = comm
        self._ranks = {at: rank for rank, at in enumerate(comm.allgather(tuple(self.grid.coords)))}

    def migrate(self, state: NDArray[Any]) -> NDArray[Any]:
        """Collective. Columns of atoms; those that belong to this rank."""
        (rest,), x = self.grid.migrate([state[AXES:].T], state[:AXES].T)
        return np.concatenate([x.T, rest.T])

    def find_ghosts(self, atoms: Atoms) -> Border:
        """Collective. Give all ranks the ghosts within reach of their part. A copy of an atom
        travels to each block on whose side it is near enough, and tells what its place there
        differs by."""
        x = atoms.x
        near = {
            -1: x < (self.low + self._reach)[:, None],
            0: np.ones(x.shape, bool),
            1: x >= (self.high - self._reach)[:, None],
        }
        half = 0.5 * np.array(self.grid.spacing)
        beside = {-1: self.low - half, 0: self.low + half, 1: self.high + half}
        copies, ranks, places = list[Any](), list[int](), list[list[float]]()
        for steps in product((-1, 0, 1), repeat=AXES):
            if any(steps):
                chosen = near[steps[0]][0] & near[steps[1]][1] & near[steps[2]][2]
                copies.append(np.flatnonzero(chosen))
                places.append([beside[step][axis] for axis, step in enumerate(steps)])
                to = zip(self.grid.coords, steps, self.grid.dims, strict=True)
                ranks.append(self._ranks[tuple((at + step) % parts for at, step, parts in to)])
        lengths = [len(each) for each in copies]
        leaving, place, rank = (
            np.concatenate(copies), np.repeat(places, lengths, axis=0), np.repeat(ranks, lengths)
        )  # fmt: skip
        shifts = self._lengths * ((place < 0.0).astype(float) - (place >= self._lengths))
        sender = np.full(len(leaving), self._comm.rank)
        (came, moved, sender), _ = self.grid.migrate([x[:, leaving].T, shifts, sender], place)
        order, size = np.argsort(sender, kind="stable"), self._comm.size
        atoms.x = np.concatenate([x, (came + moved)[order].T], axis=1)
        atoms.f = np.zeros_like(atoms.x)
        return Border(
            self._comm.rank, leaving[np.argsort(rank, kind="stable")],
            np.bincount(rank, minlength=size), np.bincount(sender, minlength=size),
            np.ascontiguousarray(moved[order].T),
        )  # fmt: skip


# What brings positions to ghosts, and the forces on them back, again and again.
#
# The ways are those of :mod:`onesided.apps.miniapps.halos`. The numbers of ghosts change with every
# new set of neighbor lists, what is persistent cannot. It is therefore planned with some room, and
# planned anew where that does not suffice on a rank; all the room is sent. The reference, whose
# messages need no plan, sends just as many numbers as there are.

ROOM = 1.15  # room for so many times the atoms that there are at first
SPARE = 32  # and so many more


class Link:
    """A vector for each of so many atoms to every other rank, and from it."""

    def __init__(
        self, comm: MPI.Intracomm, make: Callable[[Need], Any], info: Mapping[str, str],
        leaving: NDArray[np.int64], coming: NDArray[np.int64],
    ) -> None:  # fmt: skip
        """Collective. ``leaving`` and ``coming``: room, by rank. Raises what the way raises."""
        numbers = np.arange(AXES * leaving.sum())
        ghosts = np.zeros(AXES * coming.sum(), np.int64)
        pattern = HaloPattern(len(numbers), ghosts, numbers, AXES * leaving, AXES * coming)
        self._vector = np.zeros(len(numbers))
        self._out, self._into = (np.cumsum(room) - room for room in (leaving, coming))
        self.halo = make(Need(comm, pattern, np.dtype(float), info))

    def out(self, rank: int, count: int) -> NDArray[Any]:
        """Local. What goes to a rank, (3, count), to be written before ``exchange``."""
        return _vectors(self._vector, self._out[rank], count)

    def exchange(self) -> Callable[[int, int], NDArray[Any]]:
        """Collective. Tells what has come from a rank, (3, count), until the next exchange."""
        self.halo.start(self._vector)
        came = self.halo.finish()
        return lambda rank, count: _vectors(came, self._into[rank], count)


def _vectors(array: NDArray[Any], start: int, count: int) -> NDArray[Any]:
    return array[AXES * start : AXES * (start + count)].reshape(AXES, count)


class Links:
    """Forward for positions and back for forces, in one way. ``plans``: how often they have been
    made."""

    def __init__(
        self, comm: MPI.Intracomm, make: Callable[[Need], Any], info: Mapping[str, str],
        border: Border, *, exact: bool = False,
    ) -> None:  # fmt: skip
        """Collective. ``exact``: without room to spare. Raises what the way raises."""
        self._comm, self._make, self._info, self._exact = comm, make, info, exact
        self._counts = np.zeros((2, comm.size), np.int64)
        self.plans = 0
        self._plan(border)

    @property
    def label(self) -> str:
        """What the way has chosen itself."""
        return ", ".join(sorted({self._forward.halo.label, self._back.halo.label} - {""}))

    def fit(self, border: Border) -> None:
        """Collective. Plan again where the room does not suffice."""
        if self._comm.allreduce(bool((_counts(border) > self.rooms).any()), MPI.LOR) or self._exact:
            self.free()
            self._plan(border)

    def free(self) -> None:
        """Collective."""
        self._back.halo.Free()
        self._forward.halo.Free()

    def _plan(self, border: Border) -> None:
        """Collective. Both ranks of a pair have had the same numbers, and so the same room."""
        self.plans += 1
        counts = _counts(border)
        if not self._exact:
            self._counts = counts = np.maximum(self._counts, counts)
            counts = np.where(counts, np.ceil(ROOM * counts).astype(np.int64) + SPARE, 0)
        self.rooms = counts
        sent, received = counts
        self._forward = Link(self._comm, self._make, self._info, sent, received)
        try:
            self._back = Link(self._comm, self._make, self._info, received, sent)
        except OnesidedError:  # the same on every rank
            self._forward.halo.Free()
            raise

    def forward(self, x: NDArray[Any], own: int, border: Border) -> None:
        """Collective. Bring the positions of all ghosts up to date."""
        ghosts, link = x[:, own : own + len(border.shifts.T)], self._forward
        for rank, part in _parts(border.sent):
            if rank != border.rank:
                out = link.out(rank, part.stop - part.start)
                np.take(x, border.leaving[part], axis=1, out=out, mode="clip")
        came = link.exchange()
        images = border.leaving[dict(_parts(border.sent)).get(border.rank, slice(0))]
        for rank, part in _parts(border.received):
            here = rank == border.rank
            of = x[:, images] if here else came(rank, part.stop - part.start)
            np.add(of, border.shifts[:, part], out=ghosts[:, part])

    def reverse(self, f: NDArray[Any], own: int, border: Border) -> None:
        """Collective. Add the forces on ghosts to those on the atoms, by ascending rank."""
        ghosts, link = f[:, own : own + len(border.shifts.T)], self._back
        for rank, part in _parts(border.received):
            if rank != border.rank:
                link.out(rank, part.stop - part.start)[...] = ghosts[:, part]
        images = ghosts[:, dict(_parts(border.received)).get(border.rank, slice(0))]
        came = link.exchange()
        parts = [
            images if rank == border.rank else came(rank, part.stop - part.start)
            for rank, part in _parts(border.sent)
        ]
        if parts:
            for row, forces in zip(f, np.concatenate(parts, axis=1), strict=True):
                row[:own] += np.bincount(border.leaving, forces, own)


def _counts(border: Border) -> NDArray[np.int64]:
    """Local. To and from the other ranks."""
    found = np.stack([border.sent, border.received])
    found[:, border.rank] = 0
    return found


def _parts(counts: NDArray[np.int64]) -> list[tuple[int, slice]]:
    """Local. Ranks of which there is something, and where it is."""
    return [(rank, part) for rank, part in enumerate(parts(counts)) if part.stop > part.start]
