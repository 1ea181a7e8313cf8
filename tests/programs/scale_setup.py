"""Seconds of setting up and freeing a plan, a matrix and an exchange: scale_setup.py [TURNS].

Rank 0 prints one line of JSON: by what is set up the times of the slowest rank, by turn. The size
on a rank is fixed, whatever the number of ranks, and every turn has a communicator of its own.
"""

import json
import sys

import numpy as np
from mpi4py import MPI

from onesided import collectives, pencilfft, sparse

ESTIMATE = {"effort": "estimate"}


def plan(comm, effort):
    dims = MPI.Compute_dims(comm.size, 2)
    shape = (16 * dims[0], 16 * dims[1], 16 * max(dims))
    return pencilfft.PFFT(comm, shape, dtype=complex, effort=effort, wisdom=False)


def matrix(comm, info):
    n = (64 * comm.size, 8, 8)
    block = sparse.stencil7(n, (comm.rank * 4096, (comm.rank + 1) * 4096))
    return sparse.from_rows(comm, block, info=info)


def ring(comm, info):
    counts = np.zeros(comm.size, np.int64)
    counts[(comm.rank + 1) % comm.size] = 512
    return collectives.Alltoallv_init(comm, [np.ones(512), counts], None, info=info)


#: What is set up, and what gives it back.
SETUPS = {
    "plan": (lambda comm: plan(comm, "brief"), pencilfft.PFFT.destroy),
    "plan, effort=estimate": (lambda comm: plan(comm, "estimate"), pencilfft.PFFT.destroy),
    "matrix": (lambda comm: matrix(comm, {}), sparse.DistMatrix.Free),
    "matrix, effort=estimate": (lambda comm: matrix(comm, ESTIMATE), sparse.DistMatrix.Free),
    "exchange": (lambda comm: ring(comm, {}), collectives.Request.Free),
    "exchange, effort=estimate": (lambda comm: ring(comm, ESTIMATE), collectives.Request.Free),
}


def main():
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    world, found = MPI.COMM_WORLD, {name: [] for name in SETUPS}
    for turn in range(turns + 1):
        for name, (make, free) in SETUPS.items():
            comm = world.Dup()
            comm.Barrier()
            began = MPI.Wtime()
            free(make(comm))
            slowest = world.allreduce(MPI.Wtime() - began, MPI.MAX)
            comm.Free()
            if turn:  # once for what Python loads
                found[name].append(slowest)
    if world.rank == 0:
        print("@setup " + json.dumps({"ranks": world.size, "seconds": found}), flush=True)


if __name__ == "__main__":
    main()
