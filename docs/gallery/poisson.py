"""Poisson's equation in a periodic box: the potential of a few charges, by one forward and one
backward transform."""

import sys

import numpy as np
from mpi4py import MPI

from onesided.pencilfft import PFFT, newDistArray

comm, n = MPI.COMM_WORLD, 64
with PFFT(comm, (n, n, n), dtype=float) as fft:
    x, y, z = fft.local_mesh([1.0] * 3)
    charge = newDistArray(fft, False)
    for a, b, sign in ((0.3, 0.3, 1), (0.7, 0.4, -1), (0.45, 0.75, 1), (0.8, 0.8, -1)):
        charge += sign * np.exp(-((x - a) ** 2 + (y - b) ** 2 + (z - 0.5) ** 2) / 0.002)

    hat = fft.forward(charge, newDistArray(fft))
    k2 = sum(k**2 for k in fft.wavenumbers(scaled=1.0))
    hat *= np.where(k2 == 0, 0, 1 / np.where(k2 == 0, 1, k2))
    potential = fft.backward(hat, newDistArray(fft, False))

    plane = potential.get((slice(None), slice(None), n // 2))  # on rank 0

if comm.rank == 0 and len(sys.argv) > 1:
    import matplotlib.pyplot as plt

    plt.figure(figsize=(4, 4))
    plt.contourf(plane.T, 24, cmap="RdBu_r")
    plt.axis("off")
    plt.savefig(sys.argv[1], dpi=72, bbox_inches="tight")
