"""A user's program for the type checker: ``make lint`` reads it beside the installed packages."""

from typing import assert_type

import numpy as np
from mpi4py import MPI

from onesided.collectives import Allreduce_init, Grid, Request
from onesided.pencilfft import PFFT, DistArray, newDistArray
from onesided.sparse import DistMatrix, Solution, cg, from_scipy

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
with from_scipy(comm, np.eye(4)) as A:
    assert_type(A, DistMatrix)
    assert_type(cg(A, np.ones(A.row_range[1] - A.row_range[0])), Solution)
