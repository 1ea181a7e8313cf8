"""Which ranks share a node, as the methods see nodes."""

from __future__ import annotations

from mpi4py import MPI


def node_of_ranks(comm: MPI.Intracomm, ranks_per_node: int | None) -> list[int]:
    """Collective. For every rank the lowest rank of its node, real or emulated."""
    shared = comm.Split_type(MPI.COMM_TYPE_SHARED, key=comm.rank)
    if ranks_per_node is not None:
        whole, shared = shared, shared.Split(comm.rank // ranks_per_node)
        whole.Free()
    first = shared.bcast(comm.rank)
    shared.Free()
    return comm.allgather(first)
