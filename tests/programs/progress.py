"""Programs about the end of a job and about communicators: progress.py WHAT [ARGUMENT]...

Each of them is a whole program, because what is looked at comes after its last line, or ends it.
"""

import atexit
import contextlib
import os
import signal
import sys
import threading
import time

import numpy as np
from mpi4py import MPI

from onesided.collectives import (
    Alltoallv_init,
    OneSidedBroadcast,
    Psend_init,
    ResourceError,
    empty,
    free,
    node_memory,
)
from onesided.pencilfft import PFFT

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


def interrupted_end(method):
    """Ctrl-C while a rank waits for the late others at its end."""
    send = np.zeros(COMM.size)
    keep.append(Alltoallv_init(COMM, send, None, method=method))
    rounds(keep[-1], send)
    if COMM.rank == 0:
        signal.signal(signal.SIGINT, lambda *_: print("interrupted", flush=True))
        timer = threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT))
        timer.daemon = True
        timer.start()
    else:
        time.sleep(3)
    print(f"rank {COMM.rank} is at its end", flush=True)


def broadcasting(end):
    """A passive broadcast is under way when the program ends, or calls MPI_Finalize."""
    data = np.arange(1000, dtype=np.uint16)
    memory = np.zeros(data.nbytes, np.uint8)
    window = MPI.Win.Create(memory, 1, comm=COMM)
    if end == "by hand":  # in both cases after what the library does, which is made later
        MPI.COMM_SELF.Set_attr(MPI.Comm.Create_keyval(delete_fn=lambda *_: window.Free()), True)
    else:
        atexit.register(window.Free)
    broadcast = OneSidedBroadcast(COMM)
    keep.append(broadcast)
    wid = broadcast.register(window)
    if COMM.rank == 0:
        broadcast.bcast(data, wid, 0, 0)
    if end == "by hand":
        MPI.Finalize()
        right = np.array_equal(memory.view(data.dtype), data)
        print(f"{'right' if right else 'wrong'}, {threading.active_count()} thread", flush=True)


def attributes(objects):
    """Communicators with everything on them, freed while MPICH's pool of attributes is full. Where
    objects travel, before our first call or after it, mpi4py attaches something of its own."""
    MPI.COMM_SELF.Create_cart([1]).Free()
    for _ in range(80):
        comm = COMM.Dup()
        if objects == "before":
            comm.allgather(None)
        free(empty(comm, 4))
        if objects == "after":
            comm.allgather(None)
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


@contextlib.contextmanager
def room_left(size):
    """Take what MPI has left of /dev/shm, but for ``size`` bytes; it is this job's own."""
    filler = "/dev/shm/onesided-filler"
    COMM.Barrier()
    if COMM.rank == 0:
        status = os.statvfs("/dev/shm")
        free_ = status.f_bavail * status.f_frsize
        if free_ < size:
            raise AssertionError(f"only {free_} bytes are free, {size} are wanted")
        with open(filler, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(1, free_ - size))
    COMM.Barrier()
    yield
    COMM.Barrier()
    if COMM.rank == 0:
        os.unlink(filler)


def two_requests():
    """Two slots of 3 MB on each rank; True where that was refused."""
    send = np.zeros(3 * MB // COMM.size * COMM.size, np.uint8)
    try:
        request = Alltoallv_init(COMM, send, None, method="rma-notify")
    except ResourceError:
        return True
    for turn in range(4):
        send[:] = 10 * turn + COMM.rank
        request.Start()
        if not np.array_equal(request.Wait()[:: send.size // COMM.size],
                              10 * turn + np.arange(COMM.size)):
            raise AssertionError("wrong data")
    keep.append(request)
    return False


def files_with_names():
    """From now on a node has no memory but that of files with names."""
    def refused(*_):
        raise OSError("no files without names here")
    node_memory._made = refused


def plans():
    """Of 12 MB and more on each rank; nobody is refused."""
    for method in ("p2p", "auto", "mpi"):
        with PFFT(COMM, (64, 64, 64 * 6 * COMM.size // 2), dtype=complex, method=method) as plan:
            there = np.full(plan.shape(False), 1.0 + COMM.rank, complex)
            if not np.allclose(plan.backward(plan.forward(there)), there):
                raise AssertionError("wrong data")
    return False


def small_shm(how):
    """64 MB are free, or 16 MB for slots: what does not fit is refused on all ranks alike; memory
    of the node's own does not lie there, and plans do without."""
    if how != "memfd":
        files_with_names()
    part = COMM.Split(COMM.rank % 2)
    small = empty(COMM, 10)  # what MPI makes at the first window is there
    with room_left(16 * MB if how == "memfd" else 64 * MB):
        if how == "twice":  # the second allocation sees what the first one has reserved
            refused = [too_much(COMM, 40 * MB // COMM.size) for _ in range(2)]
            allowed = [[False, True]]
        elif how == "at once":  # two communicators, each with 40 MB, at the same time
            refused = [too_much(part, 40 * MB // part.size)]
            allowed = [[False], [True]]
            if len(set(part.allgather(refused[0]))) != 1:
                raise AssertionError("not agreed")
            if not any(COMM.allgather(refused[0])):
                raise AssertionError("80 MB were given away of 64 MB")
        else:
            refused, allowed = [too_much(COMM, 20 * MB), two_requests(), plans()], [3 * [False]]
    everyone = COMM.allgather(refused)
    if how != "at once" and any(entry != refused for entry in everyone):
        raise AssertionError(f"not agreed: {everyone}")
    if refused not in allowed:
        raise AssertionError(f"refused {refused}, expected one of {allowed}")
    for thing in [*keep, small]:
        free(thing) if isinstance(thing, np.ndarray) else thing.Free()
    keep.clear()
    again = empty(COMM, 1000)  # and the communicator is as good as before
    again[:] = 1
    free(again)
    part.Free()
    print(f"rank {COMM.rank} was refused {refused}", flush=True)


def profiled(when):
    """Rounds, of requests that are freed or not, or of one rank; what is printed is the
    library's."""
    comm = MPI.COMM_SELF if when == "alone" else COMM
    for method in ("p2p", "rma-notify") if when != "alone" or COMM.rank == 0 else ():
        request = Alltoallv_init(comm, np.ones(comm.size), None, method=method)
        request.label = 7 if when == "alone" else "label of mine"
        for _ in range(5):
            request.Start()
            request.Wait()
        if when == "freed":
            request.Free()
        else:
            keep.append(request)
    print("has done its rounds", flush=True)


if __name__ == "__main__":
    programs = {"interrupted end": interrupted_end, "attributes": attributes,
                "small shm": small_shm, "profiled": profiled, "broadcasting": broadcasting}
    programs[sys.argv[1]](*sys.argv[2:])
