"""Poisson's equation in a periodic box: the potential of a few charges, by one forward and one
backward transform."""

import sys

import numpy as np
from mpi4py import MPI

from onesided.pencilfft import PFFT, newDistArray

comm, n = MPI.COMM_WORLD, 64
with PFFT(comm, (n, n, n), dtype=float) as fft:
    x, y, z = np.ix_(*(np.arange(s.start, s.stop) / n for s in fft.local_slice(False)))
    charge = newDistArray(fft, False)
    for a, b, sign in ((0.3, 0.3, 1), (0.7, 0.4, -1), (0.45, 0.75, 1), (0.8, 0.8, -1)):
        charge += sign * np.exp(-((x - a) ** 2 + (y - b) ** 2 + (z - 0.5) ** 2) / 0.002)

    hat = fft.forward(charge, newDistArray(fft))
    waves = [2 * np.pi * np.fft.fftfreq(n, 1 / n)] * 2 + [2 * np.pi * np.arange(n // 2 + 1.0)]
    k = np.ix_(*(w[s] for w, s in zip(waves, fft.local_slice(), strict=True)))
    k2 = k[0] ** 2 + k[1] ** 2 + k[2] ** 2
    hat *= np.where(k2 == 0, 0, 1 / np.where(k2 == 0, 1, k2))
    potential = fft.backward(hat, newDistArray(fft, False))

    plane = potential.get((slice(None), slice(None), n // 2))  # on rank 0

if comm.rank == 0 and len(sys.argv) > 1:
    import matplotlib.pyplot as plt

    plt.figure(figsize=(4, 4))
    plt.contourf(plane.T, 24, cmap="RdBu_r")
    plt.axis("off")
    plt.savefig(sys.argv[1], dpi=72, bbox_inches="tight")
