"""The atoms of one rank, own ones first, then its ghosts; how they come to be there."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import ceil
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.cli.failures import CommandError
from onesided.apps.miniapps.minimd_problem import AXES, Problem
from onesided.collectives import Grid

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
        kept = self.x.shape[1]
        if total <= kept:
            return
        room = int(SPARE * total) + LEAST
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

    def add_ghosts(self, positions: NDArray[Any]) -> None:
        """Local. Behind the own atoms."""
        self.total = self.own + positions.shape[1]
        self.reserve(self.total)
        self.x[:, self.own : self.total] = positions


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
    """The part of the periodic box that a rank has: a block of a grid, whose cells are half as
    long as those of the lattice.

    ``low`` and ``high``: its corners, the first of which belongs to it.
    """

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
        """Collective. Give all ranks the ghosts within reach of their part.

        A copy of an atom travels to each block on whose side it is near enough, and tells what its
        place there differs by.
        """
        x = atoms.x[:, : atoms.own]
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
        atoms.add_ghosts((came + moved)[order].T)
        return Border(
            self._comm.rank, leaving[np.argsort(rank, kind="stable")],
            np.bincount(rank, minlength=size), np.bincount(sender, minlength=size),
            np.ascontiguousarray(moved[order].T),
        )  # fmt: skip

    def free(self) -> None:
        """Collective."""
        self.grid.Free()
