"""The Taylor-Green vortex with mpi4py-fft: Navier-Stokes in spectral space, dealiased."""

import numpy as np
from mpi4py import MPI
from mpi4py_fft import PFFT, newDistArray

N = 64
STEPS = 5
DT = 0.01
NU = 1 / 1600

fft = PFFT(MPI.COMM_WORLD, (N, N, N), dtype=float)
padded = PFFT(MPI.COMM_WORLD, (N, N, N), dtype=float, padding=[1.5, 1.5, 1.5])
counts = [np.fft.fftfreq(N, 1 / N)] * 2 + [np.fft.rfftfreq(N, 1 / N)]
mine = [count[part] for count, part in zip(counts, fft.local_slice(True), strict=True)]
k = np.array(np.meshgrid(*mine, indexing="ij"))
k2 = (k**2).sum(axis=0)
over = k / np.where(k2 == 0, 1, k2)
velocity, rate, stage, total = (newDistArray(fft, True, rank=1) for _ in range(4))
u, w, product = (newDistArray(padded, False, rank=1) for _ in range(3))
points = np.meshgrid(*(np.arange(N)[part] * 2 * np.pi / N for part in fft.local_slice(False)),
                     indexing="ij")
start = newDistArray(fft, False, rank=1)
start[0] = np.sin(points[0]) * np.cos(points[1]) * np.cos(points[2])
start[1] = -np.cos(points[0]) * np.sin(points[1]) * np.cos(points[2])
for i in range(3):
    fft.forward(start[i], velocity[i])


def change(of):
    """The rate of change of a velocity, in ``rate``."""
    for i in range(3):
        padded.backward(of[i], u[i])
        j, m = (i + 1) % 3, (i + 2) % 3
        padded.backward(1j * (k[j] * of[m] - k[m] * of[j]), w[i])
    for i in range(3):
        j, m = (i + 1) % 3, (i + 2) % 3
        product[i] = u[j] * w[m] - u[m] * w[j]
        padded.forward(product[i], rate[i])
    rate[:] -= (rate * k).sum(axis=0) * over + NU * k2 * of


for _ in range(STEPS):
    stage[:], total[:] = velocity, velocity
    for weight, ahead in ((1 / 6, 0.5), (1 / 3, 0.5), (1 / 3, 1.0), (1 / 6, 0.0)):
        change(stage)
        total[:] += weight * DT * rate
        stage[:] = velocity + ahead * DT * rate
    velocity[:] = total
for i in range(3):
    fft.backward(velocity[i], start[i])
fft.destroy()
padded.destroy()
