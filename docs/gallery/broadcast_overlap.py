"""A broadcast that arrives while its receivers compute: nobody but the root calls anything, and
every rank looks at the data only when it needs them."""

import sys
import time

import numpy as np
from mpi4py import MPI

from onesided.collectives import OneSidedBroadcast

comm, rounds = MPI.COMM_WORLD, 8
table = np.zeros(200_000)
window = MPI.Win.Create(table, table.itemsize, comm=comm)
spans = []


def timed(what, call):
    begin = time.perf_counter()
    call()
    spans.append((what, begin, time.perf_counter()))


with OneSidedBroadcast(comm) as broadcast:
    wid = broadcast.register(window)
    comm.Barrier()
    zero = time.perf_counter()
    for number in range(1, rounds + 1):
        if comm.rank == 0:
            data = np.full(len(table), float(number))
            timed("broadcast", lambda data=data: broadcast.bcast(data, wid, 0, 0))
        timed("compute", lambda: np.sin(np.linspace(0, 1, 400_000)).sum())
        if comm.rank:
            timed("wait", lambda number=number: broadcast.wait(wid, number, 0))
    broadcast.flush() if comm.rank == 0 else None
    assert table[-1] == rounds
every = comm.gather([(what, begin - zero, end - zero) for what, begin, end in spans])
if comm.rank == 0 and len(sys.argv) > 1:
    import matplotlib.pyplot as plt

    plt.figure(figsize=(6, 2))
    colours = {"broadcast": "C1", "compute": "C0", "wait": "C3"}
    for rank, mine in enumerate(every):
        for what, begin, end in mine:
            plt.barh(rank, 1000 * (end - begin), left=1000 * begin, color=colours[what])
    plt.legend([plt.Rectangle((0, 0), 1, 1, color=c) for c in colours.values()], colours, ncol=3,
               loc="upper center", bbox_to_anchor=(0.5, 1.3), frameon=False)
    plt.yticks(range(comm.size), [f"rank {rank}" for rank in range(comm.size)])
    plt.xlabel("ms")
    plt.savefig(sys.argv[1], dpi=72, bbox_inches="tight")
window.Free()
