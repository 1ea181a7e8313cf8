"""Programs about the end of a job and about communicators: progress.py WHAT [ARGUMENT]...

Each of them is a whole program, because what is looked at comes after its last line, or ends it.
"""

import os
import signal
import sys
import time

import numpy as np
from mpi4py import MPI

from onesided.collectives import (
    Alltoallv_init,
    Bcast_init,
    Precv_init,
    Psend_init,
    ResourceError,
    empty,
    free,
)

COMM = MPI.COMM_WORLD
keep = []
MB = 1 << 20


def rounds(request, send, count=2):
    for turn in range(count):
        send[:] = 10 * turn + COMM.rank
        request.Start()
        got = request.Wait()
        if not np.array_equal(got, 10 * turn + np.arange(COMM.size)):
            raise AssertionError(f"wrong data: {got}")


def left_over(method, late, seconds):
    """Nothing is freed, and one rank comes to its end much later than the others."""
    comm = COMM.Split(0)
    keep.append(empty(COMM, 1000))
    keep.append(empty(comm, 10))
    send = np.zeros(COMM.size)
    keep.append(Alltoallv_init(COMM, send, None, method=method))
    rounds(keep[-1], send)
    keep.append(Alltoallv_init(comm, send, None, method=method))
    keep.append(Bcast_init(COMM, np.zeros(10), 0))
    for pair in range(2):  # of one rank each, with and without a round
        keep.append(Psend_init(COMM, np.ones(8), 2, COMM.rank, pair))
        keep.append(Precv_init(COMM, np.ones(8), 2, COMM.rank, pair))
    keep[-1].Start()
    keep[-2].Start()
    keep[-2].Pready_range(0, 1)
    keep[-1].Wait()
    keep[-2].Wait()
    if COMM.rank == int(late) % COMM.size:
        time.sleep(float(seconds))
    print(f"rank {COMM.rank} is at its end", flush=True)


def fork(method):
    """A child that ends as every program does; MPI belongs to the parent."""
    send = np.zeros(COMM.size)
    request = Alltoallv_init(COMM, send, None, method=method)
    memory = empty(COMM, 100)
    keep.extend([request, memory])
    rounds(request, send)
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        sys.stdout.write(f"child of rank {COMM.rank} ends\n")
        sys.stdout.flush()
        sys.exit(5)
    _, status = os.waitpid(child, 0)
    if os.waitstatus_to_exitcode(status) != 5:
        raise AssertionError(f"the child ended with {os.waitstatus_to_exitcode(status)}")
    rounds(request, send)  # nothing has happened to what the parent has
    memory[:] = 1
    COMM.Barrier()
    request.Free()
    free(memory)
    print(f"rank {COMM.rank} goes on", flush=True)


def fork_while_active(method):
    """The child of a rank whose round is under way, while a helper may be at work."""
    send = np.zeros(COMM.size)
    request = Alltoallv_init(COMM, send, [np.zeros(COMM.size), [1] * COMM.size], method=method)
    rounds(request, send)
    send[:] = COMM.rank
    if COMM.rank == 0:
        request.Start()
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            sys.exit(5)
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) != 5:
            raise AssertionError(f"the child ended with {os.waitstatus_to_exitcode(status)}")
        COMM.Barrier()
    else:
        COMM.Barrier()
        request.Start()
    if not np.array_equal(request.Wait(), np.arange(COMM.size)):
        raise AssertionError("wrong data")
    request.Free()
    print(f"rank {COMM.rank} goes on", flush=True)


def attributes():
    """Communicators with everything on them, freed while MPICH's pool of attributes is full."""
    MPI.COMM_SELF.Create_cart([1]).Free()
    for _ in range(80):
        comm = COMM.Dup()
        free(empty(comm, 4))
        Psend_init(comm, np.zeros(4), 4, MPI.PROC_NULL).Free()
        comm.Free()
        keep.append(COMM.Dup())
        Psend_init(keep[-1], np.zeros(4), 4, MPI.PROC_NULL).Free()
    for comm in keep:
        comm.Free()
    keep.clear()
    print(f"rank {COMM.rank} has freed all", flush=True)


def too_much(comm, size):
    """True where the memory was refused; it is used where it was not."""
    try:
        memory = empty(comm, size, np.uint8)
    except ResourceError:
        return True
    memory[:] = 7
    keep.append(memory)
    return False


def small_shm(how):
    """/dev/shm has 64 MB, or 16 MB for slots: what does not fit is refused on all ranks."""
    if how == "twice":  # the second allocation sees what the first one has reserved
        refused = [too_much(COMM, 40 * MB // COMM.size) for _ in range(2)]
        expected = [False, True]
    elif how == "at once":  # two communicators, each with 40 MB, at the same time
        part = COMM.Split(COMM.rank % 2)
        COMM.Barrier()
        refused = [too_much(part, 40 * MB // part.size)]
        whole = COMM.allgather(refused[0])
        if not any(whole):
            raise AssertionError("80 MB were given away of 64 MB")
        expected = [part.allreduce(refused[0], MPI.LAND)]
    else:  # two slots of 3 MB on each of two ranks, twice: the second does not fit into 16 MB
        refused = []
        for _ in range(2):
            send = np.zeros(3 * MB // COMM.size * COMM.size, np.uint8)
            try:
                request = Alltoallv_init(COMM, send, None, method="rma-notify")
            except ResourceError:
                refused.append(True)
                continue
            refused.append(False)
            for _ in range(3):
                request.Start()
                request.Wait()[:] = 1
            keep.append(request)
        expected = [False, True]
    everyone = COMM.allgather(refused)
    if how != "at once" and any(entry != refused for entry in everyone):
        raise AssertionError(f"not agreed: {everyone}")
    if refused != expected:
        raise AssertionError(f"refused {refused}, expected {expected}")
    for thing in keep:
        free(thing) if isinstance(thing, np.ndarray) else thing.Free()
    keep.clear()
    small = empty(COMM, 1000)  # and the communicator is as good as before
    small[:] = 1
    free(small)
    print(f"rank {COMM.rank} was refused {refused}", flush=True)


if __name__ == "__main__":
    programs = {"left over": left_over, "fork": fork, "fork while active": fork_while_active,
                "attributes": attributes, "small shm": small_shm}
    programs[sys.argv[1]](*sys.argv[2:])
