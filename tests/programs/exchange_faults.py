"""Exchanges in which the last rank goes wrong: exchange_faults.py FAULT PLACE METHOD."""

import os
import signal
import sys
import threading
import time
import types

import numpy as np
from mpi4py import MPI

from onesided.collectives import Alltoallv_init, abort_on_exception


def fail(fault):
    if fault in ("exception", "exception of mpi4py"):
        raise ArithmeticError("only here")
    if fault == "memory":
        raise MemoryError("no more")
    if fault == "exit":
        sys.exit(3)
    if fault.startswith("SIG"):
        os.kill(os.getpid(), signal.Signals[fault])
    if fault == "closed stdout":
        sys.stdout.close()
    if fault in ("thread", "closed stdout", "foreign hook"):
        threading.Thread(target=fail, args=("exception",)).start()
        time.sleep(30)
    if fault == "pause":
        time.sleep(1)


def foreign(args):
    """The program's own hook, which goes wrong."""
    print("the program has heard of", args.exc_value, file=sys.stderr, flush=True)
    raise LookupError


def main():
    fault, place, method = sys.argv[1:4]
    comm = MPI.COMM_WORLD
    victim = comm.rank == comm.size - 1
    if fault == "foreign hook":
        threading.excepthook = foreign
    if fault != "exception of mpi4py":
        abort_on_exception()
    send = np.full(2 * comm.size, comm.rank)

    def here(name):
        if victim and place == name:
            fail(fault)

    here("before init")
    with Alltoallv_init(comm, send, None, method=method) as request:
        for turn in range(4):
            if turn == 2:
                here("before start")
            request.Start()
            if turn == 2:
                here("between")
            got = request.Wait()
            if not np.array_equal(got, np.repeat(np.arange(comm.size), 2)):
                raise AssertionError(f"wrong data: {got}")
            if turn == 2:
                here("after wait")
    here("at the end")
    print(f"rank {comm.rank} is through", flush=True)


def stuck(method):
    """Rank 0 does not start the third round: the watchdogs must say who waits for whom, also where
    standard error is no file, as on rank 1."""
    comm = MPI.COMM_WORLD
    if comm.rank == 1:
        sys.stderr = types.SimpleNamespace(write=sys.stderr.write, flush=sys.stderr.flush)
    request = Alltoallv_init(comm, np.zeros(comm.size), None, method=method)
    for turn in range(3):
        if turn == 2 and comm.rank == 0:
            time.sleep(2.5)
        request.Start()
        request.Wait()
    request.Free()


if __name__ == "__main__":
    if sys.argv[1] == "stuck":
        for method in sys.argv[2:]:
            stuck(method)
    else:
        main()
