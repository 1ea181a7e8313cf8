"""A Fourier operator of pylops-mpi, applied and undone, in three dimensions."""

import numpy as np
import pylops_mpi
from mpi4py import MPI

N = 48
STEPS = 10

operator = pylops_mpi.signalprocessing.MPIFFTND((N, N, N), axes=(0, 1, 2), norm="1/n")
x = pylops_mpi.DistributedArray(N**3, dtype=np.complex128)
draw = np.random.default_rng(MPI.COMM_WORLD.rank)
x[:] = draw.standard_normal(x.local_shape) + 1j * draw.standard_normal(x.local_shape)
for _ in range(STEPS):
    spectrum = operator.matvec(x)
    x = operator.rmatvec(spectrum)
result, transformed = x.local_array, spectrum.local_array
