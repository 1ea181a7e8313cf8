"""Rounds of exchanges beside what no round can be faster than: scale_bound.py [TURNS].

The bound is max(bytes / bandwidth, messages x gap) + latency x hops, for the rank that moves the
most; every rank sends a block to every other one, so there is one hop. Off the node all three are
those of messages between the first rank and the first one on another node. On a node they are those
of a copy, and the gap and the latency of a store are taken for zero: less than can be timed here.
Rank 0 prints one line of JSON.
"""

import json
import sys

import numpy as np
from mpi4py import MPI

from onesided.collectives import Alltoall_init, UnsupportedError

SIZES = [64, 1 << 10, 1 << 13, 1 << 16, 1 << 18, 1 << 20]
METHODS = ["mpi", "mpi-persistent", "p2p", "rma-notify", "rma-p2p", "rma-fence"]
LONG, MANY = 1 << 22, 64


def least(call, turns):
    """Seconds of the fastest call."""
    times = []
    for _ in range(turns):
        began = MPI.Wtime()
        call()
        times.append(MPI.Wtime() - began)
    return min(times)


def copying(turns):
    """By size, the most bytes per second of a copy of so many bytes or more: calls take no time."""
    found = {}
    for nbytes in SIZES:
        data, into = np.ones(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
        found[nbytes] = nbytes / least(lambda data=data, into=into: np.copyto(into, data), turns)
    return {nbytes: max(found[more] for more in SIZES if more >= nbytes) for nbytes in SIZES}


def messages(comm, other, turns):
    """Bandwidth, gap and latency between rank 0 and another one; the same on all ranks."""
    found = None
    if comm.rank in (0, other):
        peer = other if comm.rank == 0 else 0
        short, long, back = np.ones(8, np.uint8), np.ones(LONG, np.uint8), np.empty(LONG, np.uint8)

        def there_and_back(data):
            if comm.rank == 0:
                comm.Send(data, peer)
                comm.Recv(back[: data.size], peer)
            else:
                comm.Recv(back[: data.size], peer)
                comm.Send(data, peer)

        def many():
            requests = [comm.Irecv(back[8 * k : 8 * k + 8], peer) for k in range(MANY)]
            requests += [comm.Isend(short, peer) for _ in range(MANY)]
            MPI.Request.Waitall(requests)

        latency = least(lambda: there_and_back(short), turns) / 2
        seconds = least(lambda: comm.Sendrecv(long, peer, 0, back, peer), max(turns // 8, 3))
        gap = least(many, turns) / MANY
        found = {"bandwidth": LONG / seconds, "gap": gap, "latency": latency}
    return comm.bcast(found)


def rounds(comm, nbytes, turns):
    """Seconds of a round by method: the median of the slowest rank."""
    found = {}
    send, recv = np.ones(nbytes * comm.size, np.uint8), None
    for method in METHODS:
        try:
            request = Alltoall_init(comm, send, recv, method=method)
        except UnsupportedError:
            continue
        times = np.empty(turns)
        for turn in range(turns):
            comm.Barrier()
            began = MPI.Wtime()
            request.Start()
            request.Wait()
            times[turn] = MPI.Wtime() - began
        comm.Allreduce(MPI.IN_PLACE, times, MPI.MAX)
        request.Free()
        found[method] = float(np.median(times))
    return found


def main():
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    comm = MPI.COMM_WORLD
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    first = comm.allgather(node.bcast(comm.rank))
    near, far = node.size - 1, comm.size - node.size
    node.Free()
    other = next((rank for rank in range(comm.size) if first[rank] != first[0]), None)
    copy, wire = copying(turns), None if other is None else messages(comm, other, turns)
    found = []
    for nbytes in SIZES:
        bound = (near + 1) * nbytes / copy[nbytes]
        if wire is not None:
            moving = max(far * nbytes / wire["bandwidth"], far * wire["gap"])
            bound = max(bound, moving + wire["latency"])
        bound = comm.allreduce(bound, MPI.MAX)
        found.append({"bytes": nbytes, "bound": bound, "rounds": rounds(comm, nbytes, turns)})
    if comm.rank == 0:
        print("@bound " + json.dumps({"wire": wire, "rows": found}), flush=True)


main()
