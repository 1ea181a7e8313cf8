"""The atoms of a rank in time: velocity Verlet, neighbor lists, ghosts, and migration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.evidence.stopwatch import Stopwatch
from onesided.apps.failures import CommandError
from onesided.apps.minimd.atoms import Atoms
from onesided.apps.minimd.axis import Axis
from onesided.apps.minimd.borders import Border, find_borders
from onesided.apps.minimd.decomposition import Domain
from onesided.apps.minimd.ghosts import forward, reverse
from onesided.apps.minimd.kernels.cells import Cells
from onesided.apps.minimd.kernels.kernel import Tally
from onesided.apps.minimd.kernels.registry import load
from onesided.apps.minimd.links import Links
from onesided.apps.minimd.migration import lost, migrate, wrap
from onesided.apps.minimd.problem import AXES, Problem
from onesided.apps.minimd.start import lattice, velocities, warm
from onesided.apps.minimd.thermo import Output, check_energy, output
from onesided.collectives import Grid, agreed

PARTS = FORCES, LISTS, COMMUNICATION = "forces", "lists", "communication"


class Simulation:
    """One set of atoms for all ways of exchanging, which take turns: ``resume`` sets the scene.

    ``outputs``: lines of output since then. ``farthest``: how far an atom has moved between two
    sets of lists. ``needed``: atoms that are sent to a neighbor at most, by axis, on any rank.
    """

    def __init__(
        self, comm: MPI.Intracomm, problem: Problem, grid: Sequence[int], kernel: str
    ) -> None:
        """Collective. The atoms at the start, with their lists."""
        self.problem = problem
        self.cart = comm.Create_cart(grid, [True] * AXES, reorder=False)
        self.domain = Domain(problem.lengths, tuple(grid), tuple(self.cart.coords))
        self.axes = [Axis(self.cart, number, self.domain) for number in range(AXES)]
        bounds = [(0.0, length) for length in problem.lengths]
        self.parts = Grid(self.cart, grid, 0, periodic=True, dims=grid, bounds=bounds)
        self.kernel = load(kernel, problem)
        self.atoms = Atoms()
        self.borders: list[Border] = []
        self.links: Links | None = None
        self.needed = np.zeros(AXES, dtype=np.int64)
        self.step, self.farthest = 0, 0.0
        self.outputs: list[Output] = []
        self.first: Output | None = None
        self._low, self._high = self.domain.low, self.domain.high
        self._origin: NDArray[Any] | None = None
        self._work = np.empty((AXES, 0))
        self._watch({part: Stopwatch() for part in PARTS})
        self._begin()

    def _begin(self) -> None:
        with agreed(self.cart, f"{self.problem.atoms} atoms"):
            x, numbers = lattice(self.problem, self._low.tolist(), self._high.tolist())
            v = velocities(numbers)
        warm(self.cart, self.problem, v)
        self.atoms.load(np.concatenate([x, v, numbers[None]]))
        self.rebuild()

    def resume(
        self, state: NDArray[Any], step: int, links: Links, watches: Mapping[str, Stopwatch]
    ) -> None:
        """Collective. Go on from a state of a step, with new lists and forces.

        The parts of what follows are under ``watches``, by the names of ``PARTS``.
        """
        self._watch(watches)
        self.links, self.step, self.outputs = links, step, []
        self.atoms.load(state)
        self._origin = None
        self.rebuild()
        tally = self._forces(step == 0)
        if step == 0:
            self._write(tally)

    def advance(self, steps: int) -> None:
        """Collective. So many time steps.

        :class:`CommandError` on all ranks where the atoms have blown up.
        """
        problem = self.problem
        with np.errstate(all="ignore"):
            for _ in range(steps):
                self.step += 1
                self._kick()
                self._drift()
                if self.step % problem.every == 0:
                    self._rebuild()
                else:
                    self._forward(self.atoms.x, self.borders, self._need().forward)
                due = problem.due(self.step)
                tally = self._forces(due)
                self._kick()
                if due:
                    self._write(tally)

    def rebuild(self) -> None:
        """Collective. Atoms move to the ranks that they have come to; new ghosts, new lists."""
        atoms, problem = self.atoms, self.problem
        self._check_moves()
        state = atoms.state()
        wrap(state[:AXES], self.domain)
        state = migrate(state, self.parts)
        cells = Cells.of(state, state.shape[1], self._low, self._high, problem.reach)
        atoms.load(state[:, cells.order])
        self._origin = atoms.x[:, : atoms.own].copy()
        self.borders = find_borders(atoms, self.axes, self._low, self._high, problem.reach)
        self.needed[:] = [max(*each.sent, *each.received) for each in self.borders]
        self.cart.Allreduce(MPI.IN_PLACE, self.needed, op=MPI.MAX)
        if self.links is not None:
            self.links.fit(self.needed)
        self.kernel.build(atoms.x, atoms.own, atoms.total, self._low, self._high)

    def free(self) -> None:
        """Collective."""
        self.parts.Free()
        for axis in self.axes:
            axis.free()
        self.cart.Free()

    def _watch(self, watches: Mapping[str, Stopwatch]) -> None:
        """Local."""
        self._compute = watches[FORCES].timed(self.kernel.forces)
        self._rebuild = watches[LISTS].timed(self.rebuild)
        self._forward = watches[COMMUNICATION].timed(forward)
        self._reverse = watches[COMMUNICATION].timed(reverse)

    def _need(self) -> Links:
        if self.links is None:
            raise RuntimeError("no way of exchanging has been chosen: resume comes first")
        return self.links

    def _check_moves(self) -> None:
        """Collective. :class:`CommandError` where an atom has moved farther than to a neighbor."""
        x = self.atoms.x[:, : self.atoms.own]
        moved = 0.0
        if self._origin is not None and self.atoms.own:
            apart = x - self._origin
            moved = float(np.einsum("an,an->n", apart, apart).max()) ** 0.5
        wrapped = x.copy()
        wrap(wrapped, self.domain)
        astray = lost(wrapped, self.axes)
        width = float((self._high - self._low).min())
        bad = astray > 0 or not moved < width
        facts = np.array([float(bad), 0.0 if bad else moved])
        self.cart.Allreduce(MPI.IN_PLACE, facts, op=MPI.MAX)
        if facts[0]:
            raise CommandError(
                f"step {self.step}: atoms have moved farther than the part of a rank is wide; the "
                f"time step {self.problem.dt:g} is too long, or {self.problem.every} steps "
                "without new neighbor lists are too many"
            )
        self.farthest = max(self.farthest, float(facts[1]))

    def _kick(self) -> None:
        """Local. Half a time step of the velocities."""
        own = self.atoms.own
        work = self._scratch(own)
        np.multiply(self.atoms.f[:, :own], 0.5 * self.problem.dt, out=work)
        self.atoms.v[:, :own] += work

    def _drift(self) -> None:
        """Local. A time step of the positions."""
        own = self.atoms.own
        work = self._scratch(own)
        np.multiply(self.atoms.v[:, :own], self.problem.dt, out=work)
        self.atoms.x[:, :own] += work

    def _scratch(self, count: int) -> NDArray[Any]:
        if self._work.shape[1] < count:
            self._work = np.empty_like(self.atoms.x)
        return self._work[:, :count]

    def _forces(self, tally: bool) -> Tally:
        """Collective. The forces on own atoms."""
        atoms = self.atoms
        found: Tally = self._compute(atoms.x, atoms.f, atoms.own, atoms.total, tally)
        self._reverse(atoms.f, self.borders, self._need().back)
        return found

    def _write(self, tally: Tally) -> None:
        """Collective. A line of output."""
        line = output(
            self.cart, self.problem, self.atoms.v[:, : self.atoms.own], tally, self.step
        )
        self.outputs.append(line)
        if self.first is None:
            self.first = line
        check_energy(self.problem, self.first, line)
