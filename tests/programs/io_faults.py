"""Write steps to a file and be killed in the middle of one: io_faults.py PATH VICTIM EVENT.

VICTIM is a rank, or "all"; EVENT counts what touches files from the third step on. Without a kill
rank 0 prints how many events there were.
"""

import os
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "mpi"))

import io_events
from io_data import Blocks, values
from mpi4py import MPI

from onesided.pencilfft.io.hdf5 import HDF5File


def main():
    path, victim, event = sys.argv[1], sys.argv[2], int(sys.argv[3])
    comm = MPI.COMM_WORLD
    file = HDF5File(path)
    for step in range(4):
        if step == 2:
            mine = victim in ("all", str(comm.rank))
            events = io_events.Events(event if mine else -1)
        block = Blocks.part_of(comm, values((6, 5, 4), "f8", step))
        file.write(step, {"u": [block]})
        file.write(0, {"rolling": [block]})
    events.restore()
    print(f"rank {comm.rank}: {events.count} events", flush=True)
    if victim != "none":
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
