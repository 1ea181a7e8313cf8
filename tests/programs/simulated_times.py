"""Seconds of a transform, a product and an iteration of CG: simulated_times.py METHOD SIZE...

Rank 0 prints one line of JSON: by program and size of the cube the median over the calls of the
slowest rank. What is timed is what ``onesided model --program`` follows: forward transforms of
complex cubes, and the matrix of the seven-point stencil.
"""

import json
import sys
import time

import numpy as np
from mpi4py import MPI

from onesided import pencilfft, sparse

REPEATS, IN_A_ROW, WARM_UP = 15, 4, 30
FEW, MANY = 10, 30  # iterations of CG; the difference has nothing of its beginning


def median(comm, call, in_a_row=IN_A_ROW, warm_up=WARM_UP):
    for _ in range(warm_up):
        call()
    seconds = np.empty(REPEATS)
    for k in range(REPEATS):
        comm.Barrier()
        began = time.perf_counter()
        for _ in range(in_a_row):
            call()
        seconds[k] = (time.perf_counter() - began) / in_a_row
    comm.Allreduce(MPI.IN_PLACE, seconds, MPI.MAX)
    return float(np.median(seconds))


def transform(comm, method, size):
    """Forward transforms; the last result is that of a plane wave."""
    with pencilfft.PFFT(comm, (size,) * 3, dtype=complex, method=method, wisdom=False) as plan:
        values, result = pencilfft.newDistArray(plan, False), pencilfft.newDistArray(plan, True)
        values[:] = 1.0
        found = median(comm, lambda: plan.forward(values, result))
        most = comm.allreduce(float(np.abs(result).max()), MPI.MAX)
        assert abs(most - 1.0) < 1e-12, most
    return found


def products(comm, method, size):
    """Products, and iterations of CG."""
    rows = size**3
    mine = comm.rank * rows // comm.size, (comm.rank + 1) * rows // comm.size
    with sparse.from_rows(comm, sparse.stencil7((size,) * 3, mine), method=method) as matrix:
        x, y = np.ones(mine[1] - mine[0]), np.empty(mine[1] - mine[0])
        product = median(comm, lambda: matrix.multiply(x, y))
        assert np.isfinite(y).all()
        assert y.any()
        few, many = (median(comm, lambda n=n: sparse.cg(matrix, x, rtol=0.0, maxiter=n), 1, 2)
                     for n in (FEW, MANY))  # fmt: skip
    return product, (many - few) / (MANY - FEW)


def main():
    comm, method, found = MPI.COMM_WORLD, sys.argv[1], {"fft": {}, "spmv": {}, "cg": {}}
    for size in map(int, sys.argv[2:]):
        found["fft"][size] = transform(comm, method, size)
        found["spmv"][size], found["cg"][size] = products(comm, method, size)
    if comm.rank == 0:
        print(f"@simulated {json.dumps(found)}", flush=True)


main()
