"""One of many ranks goes wrong, in one way each: scale_faults.py KIND."""

import os
import resource
import signal
import sys

import numpy as np
from mpi4py import MPI

from onesided.collectives import Alltoallv_init, abort_on_exception, empty


def main():
    kind, comm = sys.argv[1], MPI.COMM_WORLD
    abort_on_exception()
    victim = comm.rank == comm.size // 2
    request = Alltoallv_init(comm, np.zeros(comm.size), None, method="rma-notify")
    for turn in range(3):
        request.Start()
        if victim and turn == 1:
            if kind == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            elif kind == "terminated":
                os.kill(os.getpid(), signal.SIGTERM)
            elif kind == "stopped":
                os.kill(os.getpid(), signal.SIGSTOP)
            elif kind == "memory":
                resource.setrlimit(resource.RLIMIT_DATA, (1 << 20, 1 << 20))
                np.zeros(1 << 28)[::512] = 1
        request.Wait()
    if kind == "shm":
        empty(comm, 1 << 50, np.uint8)
    print("nothing has gone wrong", flush=True)


main()
