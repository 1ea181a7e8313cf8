"""A Klein-Gordon equation with shenfun: Fourier spaces, a nonlinear term, Runge-Kutta steps."""

import numpy as np
from mpi4py import MPI
from shenfun import Array, Function, FunctionSpace, TensorProductSpace

N = 48
STEPS = 20
DT = 0.005

spaces = [FunctionSpace(N, "F", dtype="D", domain=(-2 * np.pi, 2 * np.pi)) for _ in range(2)]
spaces.append(FunctionSpace(N, "F", dtype="d", domain=(-2 * np.pi, 2 * np.pi)))
space = TensorProductSpace(MPI.COMM_WORLD, spaces, slab=True, dtype="d")
x = space.local_mesh(True)
k2 = sum(k**2 for k in space.local_wavenumbers(True, True))
field, speed = Array(space), Array(space)
field[:] = 0.1 * np.exp(-sum(each**2 for each in x))
f_hat, s_hat = Function(space), Function(space)
f_hat, s_hat = field.forward(f_hat), speed.forward(s_hat)
cubed = Array(space)
c_hat = Function(space)
for _ in range(STEPS):
    cubed = space.backward(f_hat, cubed)
    cubed[:] = cubed**3
    c_hat = space.forward(cubed, c_hat)
    s_hat += DT * (c_hat - (k2 + 1) * f_hat)
    f_hat += DT * s_hat
field = space.backward(f_hat, field)
result, spectrum = np.array(field), np.array(f_hat)
