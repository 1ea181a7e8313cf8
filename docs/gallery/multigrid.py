"""Geometric multigrid for Poisson's equation: V-cycles over grids of half the cells each, down to
two by two, of which most ranks have none. The number of cycles does not grow with the grid."""

import sys

import numpy as np
from mpi4py import MPI

from onesided.collectives import Grid

comm = MPI.COMM_WORLD


class Level:
    """A grid with what -Laplace(u) = f needs there, and the levels below it."""

    def __init__(self, cells):
        self.grid = Grid(comm, (cells, cells), bounds=[(0, 1)] * 2, boundary="antireflect")
        self.u, self.f, self.r = (self.grid.zeros() for _ in range(3))
        self.own, self.h = self.grid.owned, 1 / cells
        self.below = Level(cells // 2) if cells > 2 else None

    def defect(self):
        """f + Laplace(u) where this rank owns cells, with u = 0 at the walls."""
        self.grid.update(self.u)
        beside = sum(np.roll(self.u, by, axis)[self.own] for axis in (0, 1) for by in (-1, 1))
        return self.f[self.own] + (beside - 4 * self.u[self.own]) / self.h**2

    def smooth(self, times):
        for _ in range(times):
            self.u[self.own] += 0.8 * self.h**2 / 4 * self.defect()

    def cycle(self):
        self.smooth(2)
        if self.below is not None:
            self.r[self.own] = self.defect()
            self.grid.coarsen(self.r, self.below.grid, self.below.f)
            self.below.u[...] = 0
            self.below.cycle()
            self.below.grid.refine(self.below.u, self.grid, self.r)
            self.u[self.own] += self.r[self.own]
        self.smooth(2)

    def free(self):
        if self.below is not None:
            self.below.free()
        self.grid.Free()


found = {}
for cells in (32, 64, 128):
    top = Level(cells)
    x, y = top.grid.coordinates()
    top.f[top.own] = np.sign(np.sin(3 * np.pi * x) * np.sin(2 * np.pi * y))
    norms = []
    for _ in range(12):
        norms.append(np.sqrt(comm.allreduce((top.defect() ** 2).sum())) / cells)
        top.cycle()
    found[cells] = norms
    top.free()
if comm.rank == 0:
    assert all(norms[-1] < 1e-7 * norms[0] for norms in found.values())
    if len(sys.argv) > 1:
        import matplotlib.pyplot as plt

        plt.figure(figsize=(4.6, 3.4))
        for cells, norms in found.items():
            plt.semilogy(norms, "o-", label=f"{cells} x {cells}")
        plt.xlabel("V-cycle")
        plt.ylabel("norm of the defect")
        plt.legend(title="cells")
        plt.savefig(sys.argv[1], dpi=72, bbox_inches="tight")
