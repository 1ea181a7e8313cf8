"""A user's program for the type checker: ``make lint`` reads it beside the installed packages."""

from typing import Any, assert_type

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives import Allreduce_init, Grid, Request
from onesided.pencilfft import PFFT, DistArray, newDistArray
from onesided.sparse import DistMatrix, DistVector, Solution, cg, from_scipy

comm = MPI.COMM_WORLD
with Allreduce_init(comm, np.ones(1), np.zeros(1)) as request:
    assert_type(request, Request)
    request.Start()
    assert_type(request.Test(), bool)
grid = Grid(comm, (8, 8), halo=1)
assert_type(grid.shape, tuple[int, ...])
with PFFT(comm, (8, 8)) as fft:
    u: DistArray = newDistArray(fft)
    assert_type(fft.shape(False), tuple[int, ...])
    assert_type(fft.forward(newDistArray(fft, False)), DistArray)
    back: NDArray[np.float64] = np.zeros(fft.shape(False))
    assert_type(fft.backward(u, back), NDArray[np.float64])
with from_scipy(comm, np.eye(4)) as A:
    assert_type(A, DistMatrix)
    b: NDArray[np.float64] = np.ones(A.row_range[1] - A.row_range[0])
    found = cg(A, b)
    assert_type(found, Solution[NDArray[Any]])
    assert_type(found.x, NDArray[Any])
    assert_type(cg(A, DistVector.zeros(comm, A.row_partition)).x, DistVector)
