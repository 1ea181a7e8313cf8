"""The Taylor-Green vortex breaks up: vorticity of the Navier-Stokes equations by a spectral method
with Runge-Kutta steps; three components are transformed in one message."""

import sys

import numpy as np
from mpi4py import MPI

from onesided.pencilfft import PFFT, newDistArray

comm, n, viscosity, dt, steps = MPI.COMM_WORLD, 32, 1 / 400, 0.06, 60
with PFFT(comm, (n, n, n), dtype=float, batch=(3,)) as fft:
    x, y, z = fft.local_mesh()
    velocity, vorticity = newDistArray(fft, False), newDistArray(fft, False)
    velocity[0] = np.sin(x) * np.cos(y) * np.cos(z)
    velocity[1] = -np.cos(x) * np.sin(y) * np.cos(z)

    k, kept = fft.wavenumbers(), fft.mask(2 / 3)
    k2 = k[0] ** 2 + k[1] ** 2 + k[2] ** 2
    hat, u_hat = newDistArray(fft), np.array(fft.forward(velocity, newDistArray(fft)))

    def cross(a, b):
        return np.array([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2],
                         a[0] * b[1] - a[1] * b[0]])

    def rate(u_hat):
        hat[:] = u_hat
        fft.backward(hat, velocity)
        hat[:] = 1j * cross(k, u_hat)
        fft.backward(hat, vorticity)
        velocity[:] = cross(velocity, vorticity)
        change = kept * fft.forward(velocity, hat)
        pressure = sum(a * b for a, b in zip(k, change, strict=True)) / np.where(k2 == 0, 1, k2)
        return np.array([c - a * pressure for a, c in zip(k, change, strict=True)]) - (
            viscosity * k2 * u_hat
        )

    for _ in range(steps):
        half = u_hat + dt / 2 * rate(u_hat)
        u_hat = u_hat + dt * rate(half)

    hat[:] = 1j * cross(k, u_hat)
    w = fft.backward(hat, vorticity)
    speed = newDistArray(fft, False)
    speed[0] = np.sqrt((np.asarray(w) ** 2).sum(axis=0))
    plane = speed.get((0, slice(None), slice(None), n // 8))
    if comm.rank == 0:
        assert np.isfinite(plane).all()

if comm.rank == 0 and len(sys.argv) > 1:
    import matplotlib.pyplot as plt

    plt.figure(figsize=(4, 4))
    plt.imshow(plane.T, origin="lower", cmap="inferno", interpolation="bicubic")
    plt.axis("off")
    plt.savefig(sys.argv[1], dpi=72, bbox_inches="tight")
