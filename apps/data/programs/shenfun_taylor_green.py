"""The Taylor-Green vortex with shenfun: rotational form, 2/3 rule, Runge-Kutta of fourth order."""

import numpy as np
from mpi4py import MPI
from shenfun import Array, Function, FunctionSpace, TensorProductSpace, VectorSpace

N = 48
STEPS = 4
NU, DT = 1 / 1600, 0.01

bases = [FunctionSpace(N, "F", dtype=kind) for kind in "DDd"]
space = TensorProductSpace(MPI.COMM_WORLD, bases)
vectors = VectorSpace(space)
k = np.array(np.broadcast_arrays(*space.local_wavenumbers(scaled=True)), dtype=float)
square = np.where((k * k).sum(axis=0) == 0, 1, (k * k).sum(axis=0))
kept = np.all(np.abs(k) < N / 3, axis=0)
x, y, z = space.local_mesh(True)
u, omega, u_hat = Array(vectors), Array(vectors), Function(vectors)
u[0], u[1] = np.sin(x) * np.cos(y) * np.cos(z), -np.cos(x) * np.sin(y) * np.cos(z)
u_hat = vectors.forward(u, u_hat)
curl, rate = Function(vectors), Function(vectors)


def change(state):
    global u, omega, rate
    curl[:] = 1j * np.cross(k, state, axis=0)
    u, omega = vectors.backward(state, u), vectors.backward(curl, omega)
    rate = vectors.forward(Array(vectors, buffer=np.cross(u, omega, axis=0)), rate)
    rate *= kept
    rate -= k * ((k * rate).sum(axis=0) / square) + NU * square * state
    return rate


for _ in range(STEPS):
    start, total = u_hat.copy(), u_hat.copy()
    for weight, ahead in ((1 / 6, 0.5), (1 / 3, 0.5), (1 / 3, 1.0), (1 / 6, 0.0)):
        slope = DT * change(u_hat)
        total += weight * slope
        u_hat[:] = start + ahead * slope
    u_hat[:] = total
u = vectors.backward(u_hat, u)
