"""Heat in a plate with a hot and a cold side, and a cold hole: the interior is computed while the
ghosts are under way."""

import sys

import numpy as np
from mpi4py import MPI

from onesided.collectives import Grid

n, steps = 64, 1000
grid = Grid(MPI.COMM_WORLD, (n, n), halo=1, bounds=[(0, 1), (0, 1)],
            boundary={0: (1.0, 0.0), 1: "copy"})  # fixed at two ends, insulated at the others
u, new = grid.from_function(lambda y, x: 1 - y + 0 * x), grid.zeros()
y, x = grid.coordinates(ghosts=True)
cold = (y - 0.45) ** 2 + (x - 0.5) ** 2 < 0.15**2


def shifted(where, axis, by):
    """An index, moved by some cells along an axis."""
    spans = [s.indices(n)[:2] for s, n in zip(where[1:], u.shape, strict=True)]
    return tuple(
        slice(a + by * (k == axis), b + by * (k == axis)) for k, (a, b) in enumerate(spans)
    )


def step(where):
    new[where] = sum(u[shifted(where, axis, by)] for axis in (0, 1) for by in (-1, 1)) / 4


with grid.halo(u) as halo:
    for _ in range(steps):
        halo.Start()
        step(grid.interior)
        halo.Wait()
        for where in grid.boundary:
            step(where)
        u[grid.owned] = np.where(cold, 0, new)[grid.owned]
whole = grid.gather(u)
if whole is not None:
    assert whole.min() == 0
    assert whole.max() < 1
    if len(sys.argv) > 1:
        import matplotlib.pyplot as plt

        plt.figure(figsize=(4, 4))
        plt.contourf(whole, 20, cmap="inferno")
        plt.axis("off")
        plt.savefig(sys.argv[1], dpi=72, bbox_inches="tight")
grid.Free()
