"""A rank and two that it has spawned, which are in another MPI_COMM_WORLD: exchanges, and a
broadcast, into memory that two of the three share."""

import sys

import numpy as np
from mpi4py import MPI

from onesided.collectives import Alltoallv_init, Bcast_init, empty

EACH = 4096  # elements from a rank to another

parent = MPI.Comm.Get_parent()
if parent == MPI.COMM_NULL:
    between = MPI.COMM_SELF.Spawn(sys.executable, ["-m", "mpi4py", __file__], 2)
    everyone = between.Merge(False)
else:
    between, everyone = parent, parent.Merge(True)
size, rank = everyone.size, everyone.rank
some = everyone.Split(rank < 2, rank)
target = empty(some, size * EACH) if rank < 2 else np.zeros(size * EACH)
source = np.repeat(np.arange(size) + 10.0 * rank, EACH)
for method in ("auto", "rma-notify", "rma-fence", "p2p"):
    with Alltoallv_init(everyone, source, target, method=method) as exchange:
        for _ in range(3):
            target[:] = -1
            exchange.Start()
            exchange.Wait()
            assert np.array_equal(target, np.repeat(10.0 * np.arange(size) + rank, EACH)), method
with Bcast_init(everyone, target, 1) as broadcast:
    target[:] = rank
    broadcast.Start()
    assert (broadcast.Wait() == 1).all()
print(f"rank {rank} has everything", flush=True)
some.Free()
everyone.Free()
between.Disconnect()
