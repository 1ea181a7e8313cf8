"""Programs about the end of a job and about communicators: progress.py WHAT [ARGUMENT]...

Each of them is a whole program, because what is looked at comes after its last line, or ends it.
"""

import contextlib
import gc
import os
import signal
import sys
import threading
import time
import warnings

import numpy as np
from mpi4py import MPI

from onesided.collectives import (
    Alltoallv_init,
    Bcast_init,
    OnesidedError,
    Precv_init,
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


def left_active(method):
    """A round that is under way when its rank ends, long before the other ranks start theirs."""
    send, recv = np.full(COMM.size, float(COMM.rank)), np.zeros(COMM.size)
    counts = [1] * COMM.size
    keep.append(Alltoallv_init(COMM, [send, counts], [recv, counts], method=method))
    rounds(keep[-1], send)
    send[:] = COMM.rank
    if COMM.rank:
        time.sleep(7)  # longer than a rank tries to complete its rounds before it looks for others
    keep[-1].Start()
    if COMM.rank and not np.array_equal(keep[-1].Wait(), np.arange(COMM.size)):
        raise AssertionError("wrong data")
    print(f"rank {COMM.rank} is at its end", flush=True)


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


def fork_while_filling(method):
    """The child of a rank that has opened a round: to fill it is the parent's."""
    send = np.zeros(COMM.size)
    request = Alltoallv_init(COMM, send, None, method=method)
    rounds(request, send)
    if not request.Open():
        raise AssertionError("the round was not opened")
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            request.Ready(0)
        except OnesidedError as error:
            os._exit(5 if "forked" in str(error) else 6)
        os._exit(7)
    _, status = os.waitpid(child, 0)
    if os.waitstatus_to_exitcode(status) != 5:
        raise AssertionError(f"the child ended with {os.waitstatus_to_exitcode(status)}")
    for _, _, array in request.outlets[0]:
        array[...] = COMM.rank
    request.Ready(0)
    if not np.array_equal(request.Wait(), np.arange(COMM.size)):
        raise AssertionError("wrong data")
    request.Free()
    print(f"rank {COMM.rank} goes on", flush=True)


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
    with room_left(64 * MB if how in ("twice", "at once") else 16 * MB):
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
        elif how == "plain":
            refused, allowed = [plans()], [[False]]
        elif how == "memfd":
            refused, allowed = [too_much(COMM, 20 * MB), two_requests(), plans()], [3 * [False]]
        else:  # 12 MB, twice; a request may also do without shared memory
            refused = [two_requests() for _ in range(2)]
            allowed = [[False, True], [False, False]]
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


def lost(memory_of):
    """What Wait has returned is where it was, where nobody has the request any more."""
    if memory_of == "named":
        files_with_names()
    send = np.arange(5000 * COMM.size) + COMM.rank
    request = Alltoallv_init(COMM, send, None, method="rma-notify")
    request.Start()
    got = request.Wait()
    want = got.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        del request
        gc.collect()
    MPI.Finalize()
    np.testing.assert_array_equal(got, want)
    got[...] = 0
    print("goes on without MPI", flush=True)


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
    programs = {"left over": left_over, "left active": left_active,
                "interrupted end": interrupted_end,
                "fork while filling": fork_while_filling,
                "attributes": attributes, "small shm": small_shm, "lost": lost,
                "profiled": profiled}
    programs[sys.argv[1]](*sys.argv[2:])
