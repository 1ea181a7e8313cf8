"""What is to be computed: atoms that attract and repel each other, in a periodic box.

All numbers are in the reduced units of Lennard and Jones, the mass of an atom is 1.

Source: Mantevo's MiniMD; paper 002, section III-B.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

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
        """Local. The energy of a pair at the cutoff, where it ends.

        The potential jumps there to zero, so that it is not the potential energy of the output
        which is conserved, but that of a potential shifted by this for each pair.
        """
        sixth = (self.sigma / self.cutoff) ** 6
        return 4.0 * self.epsilon * sixth * (sixth - 1.0)

    def due(self, step: int) -> bool:
        """Local. Whether a line of output belongs to a step."""
        return step in (0, self.steps) or (self.thermo > 0 and step % self.thermo == 0)
