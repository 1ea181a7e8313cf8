"""Passive broadcasts in programs that end in one way each: passive.py KIND."""

import atexit
import sys
import threading

import mpi4py

KIND = sys.argv[1]
LEVELS = ("single", "funneled", "serialized")
if KIND in LEVELS:
    mpi4py.rc.thread_level = KIND

import numpy as np  # noqa: E402
from mpi4py import MPI  # noqa: E402

from onesided.collectives import (  # noqa: E402
    OneSidedBroadcast,
    UnsupportedError,
    abort_on_exception,
    bcast_linear,
)

comm = MPI.COMM_WORLD
data = np.arange(1000, dtype=np.uint16)
keep = []


def window():
    made = MPI.Win.Allocate(data.nbytes, 1, comm=comm)
    memory = np.asarray(memoryview(made.tomemory()), np.uint8)
    memory[:] = 0
    comm.Barrier()
    return made, memory


def without_threads():
    """The error names the linear method, which works."""
    try:
        OneSidedBroadcast(comm)
    except UnsupportedError as error:
        print(f"rank {comm.rank}: {error}", flush=True)
    made, memory = window()
    root = comm.size - 1
    if comm.rank == root:
        bcast_linear(made, data, 0, root)
    comm.Barrier()
    made.Lock(comm.rank)
    right = np.array_equal(memory.view(data.dtype), data)
    made.Unlock(comm.rank)
    print(f"rank {comm.rank}: {'right' if right else 'wrong'}", flush=True)
    del memory
    made.Free()


def unclosed(finalize):
    """A broadcast is under way when the program ends, or calls MPI_Finalize."""
    memory = np.zeros(data.nbytes, np.uint8)
    made = MPI.Win.Create(memory, 1, comm=comm)
    if finalize:  # in both cases after what the library does, which is made later
        MPI.COMM_SELF.Set_attr(MPI.Comm.Create_keyval(delete_fn=lambda *_: made.Free()), True)
    else:
        atexit.register(made.Free)
    broadcast = OneSidedBroadcast(comm)
    wid = broadcast.register(made)
    keep.append(broadcast)
    if comm.rank == 0:
        broadcast.bcast(data, wid, 0, 0)
    if finalize:
        MPI.Finalize()
        names = [thread.name for thread in threading.enumerate()]
        right = np.array_equal(memory.view(data.dtype), data)
        print(f"{'right' if right else 'wrong'}, {len(names)} thread", flush=True)


def leaving(everyone):
    """An exception that nobody catches, with a broadcast under way."""
    abort_on_exception()
    made, _ = window()
    with OneSidedBroadcast(comm) as broadcast:
        wid = broadcast.register(made)
        if comm.rank == 0:
            broadcast.bcast(data, wid, 0, 0)
        if everyone or comm.rank == comm.size - 1:
            raise ArithmeticError("only here")
        broadcast.wait(wid, 2, 0)


if __name__ == "__main__":
    if KIND in LEVELS:
        without_threads()
    elif KIND in ("unclosed", "finalize"):
        unclosed(KIND == "finalize")
    else:
        leaving(KIND == "everyone")
