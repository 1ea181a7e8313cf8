"""Discs that repel each other run through a periodic box; those that leave a rank's part of it
migrate to the rank where they are now. Filled by where a disc began, ringed by where it is."""

import sys

import numpy as np
from mpi4py import MPI

from onesided.collectives import Grid

comm, side, dt = MPI.COMM_WORLD, 24.0, 0.01
grid = Grid(comm, (24, 24), periodic=True, bounds=[(0, side), (0, side)])
rng = np.random.default_rng(comm.rank)
start = np.mgrid[0:20, 0:20].reshape(2, -1).T * side / 20 + 0.5
_, position = grid.migrate([], start[comm.rank :: comm.size])
velocity = rng.normal(0, 1.0, position.shape)
origin = np.full(len(position), comm.rank)


def forces(position):
    """Of all discs on this rank's: those of the other ranks are told to everybody."""
    every = np.concatenate(comm.allgather(position))
    apart = position[:, None] - every[None]
    apart -= side * np.round(apart / side)
    square = np.maximum((apart**2).sum(axis=2), 0.25)
    push = np.where((square < 1) & (square > 0), 100 * (1 / np.sqrt(square) - 1), 0)
    return (push[:, :, None] * apart).sum(axis=1)


for _ in range(150):
    velocity += dt * forces(position)
    position = position + dt * velocity
    (velocity, origin), position = grid.migrate([velocity, origin], position)
total = comm.reduce(len(position))
where = comm.gather((position, origin))
if comm.rank == 0:
    assert total == 400
    if len(sys.argv) > 1:
        import matplotlib.pyplot as plt

        plt.figure(figsize=(4, 4))
        for rank, (here, came_from) in enumerate(where):
            face = [f"C{each}" for each in came_from]
            plt.scatter(*here.T, s=60, c=face, edgecolors=f"C{rank}", linewidths=2, alpha=0.8)
        plt.axis("off")
        plt.savefig(sys.argv[1], dpi=72, bbox_inches="tight")
grid.Free()
