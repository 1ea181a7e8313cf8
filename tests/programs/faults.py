"""Programs that go wrong in one way each: faults.py KIND [VICTIM]."""

import os
import signal
import sys

from mpi4py import MPI


def fault(kind: str, victim: int) -> None:
    comm = MPI.COMM_WORLD
    mine = comm.rank == victim
    if kind == "hang":
        print("begins", flush=True)
    if kind == "hang" and mine:
        comm.recv(source=(victim + 1) % comm.size, tag=99)
    elif kind == "exception" and mine:
        raise ArithmeticError("only here")
    elif kind == "exit3" and mine:
        sys.exit(3)
    elif kind in ("exit_together", "exit_apart"):
        comm.Barrier()
        sys.exit(3 if mine or kind == "exit_together" else 0)
    elif kind == "leave" and mine:
        os._exit(0)
    elif kind == "segfault" and mine:
        os.kill(os.getpid(), signal.SIGSEGV)
    elif kind == "killed" and mine:
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "orphan" and mine:
        os.system("sleep 300 >/dev/null 2>&1 &")
    comm.Barrier()


if __name__ == "__main__":
    fault(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1)
