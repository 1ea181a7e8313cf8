"""Gray and Scott's reaction and diffusion in three dimensions, on a grid with ghost cells."""

import sys

import numpy as np
from mpi4py import MPI

from onesided.collectives import Grid

cells, steps = (int(word) for word in (*sys.argv[2:], 24, 100)[:2])
feed, kill, diffusion = 0.03, 0.06, np.array([0.16, 0.08]).reshape(2, 1, 1, 1)
grid = Grid(MPI.COMM_WORLD, (cells,) * 3, halo=1, periodic=True, ghosts="faces")


def start(x, y, z):  # a cube of the second substance in the first
    far = np.broadcast_arrays(*(abs(w - cells / 2) for w in (x, y, z)))
    seed = np.maximum.reduce(far) < 6
    return np.array([1 - 0.5 * seed, 0.25 * seed]) * (1 + 0.05 * np.sin(x + 2 * y + 3 * z))


def laplacian(w):  # of what this rank owns
    around = sum(np.roll(w, s, axis)[grid.owned] for axis in (1, 2, 3) for s in (-1, 1))
    return around - 6 * w[grid.owned]


uv = grid.from_function(start, components=2)  # in memory that neighbors write to
for _ in range(steps):
    grid.update(uv)  # all ghosts, one message per neighbor
    u, v = own = uv[grid.owned]
    react = u * v * v
    own += diffusion * laplacian(uv) + np.array([feed * (1 - u) - react, react - (feed + kill) * v])
whole = grid.gather(uv)
if whole is not None and len(sys.argv) > 1:  # gray_scott.py PICTURE 64 1500
    import matplotlib.pyplot as plt

    plt.imsave(sys.argv[1], whole[1, cells // 2].repeat(4, 0).repeat(4, 1), cmap="magma")
grid.Free()
