"""A program as somebody else would write it for mpi4py-fft, or for NumPy where there is none."""

import pickle

import numpy as np
from mpi4py import MPI


class Settings:
    """Written to a file and read again, which looks for the class in ``__main__``."""


pickle.loads(pickle.dumps(Settings()))
N = 8
u = np.random.default_rng(MPI.COMM_WORLD.rank).random((N, N, N))
try:
    from mpi4py_fft import PFFT, newDistArray
except ImportError:
    u = np.fft.ifftn(np.fft.fftn(u))
else:
    fft = PFFT(MPI.COMM_WORLD, [N, N, N], dtype=float)
    field = newDistArray(fft, False)
    field[:] = u[: field.shape[0]]
    u = fft.backward(fft.forward(field), field)
