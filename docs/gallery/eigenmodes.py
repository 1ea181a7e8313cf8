"""Eigenmodes of an L-shaped drum: a mesh of triangles, linear elements assembled in parallel, and
LOBPCG with multigrid."""

import sys

import numpy as np
from mpi4py import MPI

from onesided import sparse

comm, n = MPI.COMM_WORLD, 32
side = np.linspace(-1, 1, n + 1)
inside = ~((side[:, None] >= 0) & (side[None, :] >= 0))
inside[[0, -1]] = inside[:, [0, -1]] = False  # the membrane is held at its edge
number = np.where(inside, inside.cumsum().reshape(inside.shape) - 1, -1)
i, j = (each.ravel() for each in np.mgrid[:n, :n])
a, b, c, d = number[i, j], number[i + 1, j], number[i, j + 1], number[i + 1, j + 1]
triangles = np.concatenate([np.stack([a, b, c], 1), np.stack([d, c, b], 1)])
mine = triangles[comm.rank :: comm.size]  # elements on any rank
stiffness = np.array([[1, -0.5, -0.5], [-0.5, 0.5, 0], [-0.5, 0, 0.5]])
rows, cols = np.broadcast_arrays(mine[:, :, None], mine[:, None, :])
values = np.broadcast_to(stiffness, rows.shape) * (n / 2) ** 2  # over the lumped mass
kept = (rows >= 0) & (cols >= 0)
size = int(inside.sum())
with sparse.from_triplets(comm, rows[kept], cols[kept], values[kept], (size, size)) as A:
    modes = sparse.lobpcg(A, 6, rtol=1e-4, M=sparse.AMG(A))
    vectors = comm.gather(modes.vectors)
if comm.rank == 0:
    print(np.round(modes.values, 2))
    assert abs(modes.values[0] - 9.64) < 0.3  # known: 9.6397
    if len(sys.argv) > 1:
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots(2, 3, figsize=(6, 4))
        for axis, vector in zip(axes.flat, np.concatenate(vectors).T, strict=True):
            shown = np.full(inside.shape, np.nan)
            shown[inside] = vector / abs(vector).max()
            axis.imshow(shown, cmap="RdBu_r", vmin=-1, vmax=1)
            axis.axis("off")
        figure.tight_layout()
        plt.savefig(sys.argv[1], dpi=72)
