"""What two nodes of two ranks are: memory is shared within a node, and nothing else is."""

import os

from cases import ranks
from mpi4py import MPI


@ranks(at_least=4, at_most=4)
def case_groups(comm, options):
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    members = node.allgather(comm.rank)
    node.Free()
    if members != ([0, 1] if comm.rank < 2 else [2, 3]):
        raise ValueError(f"rank {comm.rank} shares memory with {members}")


@ranks(at_least=4, at_most=4)
def case_private(comm, options):
    """On virtual nodes /dev/shm, process numbers and host names are the node's own."""
    name = f"/dev/shm/onesided-test-{comm.rank}"
    with open(name, "w") as file:
        file.write("x")
    comm.Barrier()
    seen = [os.path.exists(f"/dev/shm/onesided-test-{rank}") for rank in range(comm.size)]
    comm.Barrier()
    os.unlink(name)
    mine = comm.rank // 2
    if seen != [rank // 2 == mine for rank in range(comm.size)]:
        raise ValueError(f"rank {comm.rank} sees the files of {seen}")
    hosts = comm.allgather(MPI.Get_processor_name())
    if hosts != ["node0", "node0", "node1", "node1"]:
        raise ValueError(f"the hosts are {hosts}")
