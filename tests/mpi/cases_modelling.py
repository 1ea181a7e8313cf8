"""The traffic of a persistent exchange, gathered from its ranks, and what is predicted from it."""

from __future__ import annotations

import numpy as np
from cases import parameters, ranks
from mpi4py import MPI

from onesided.collectives import Alltoallv_init
from onesided.collectives.modelling.exchanges import fastest, predict
from onesided.collectives.modelling.parameters import MACHINES
from onesided.collectives.modelling.traffic import of_exchange, of_matrix


@ranks(at_least=2)
@parameters(per_node=["", "1", "2"], caller=[False, True])
def case_traffic_is_that_of_the_table(comm, per_node, caller, seed):
    """Random counts, some of them zero, on emulated nodes; the same object on every rank."""
    counts = np.random.default_rng(seed).integers(0, 50, (comm.size, comm.size))
    counts[counts < 15] = 0
    sent = np.zeros(counts[comm.rank].sum())
    into = counts[:, comm.rank].tolist()
    recv = [np.zeros(sum(into)), into] if caller else None
    info = {"ranks_per_node": per_node} if per_node else {}
    out = [sent, counts[comm.rank].tolist()]
    with Alltoallv_init(comm, out, recv, method="p2p", info=info) as request:
        traffic = of_exchange(request.operation)
    own = comm.Split_type(MPI.COMM_TYPE_SHARED, comm.rank)
    nodes = comm.allgather(own.bcast(comm.rank))
    own.Free()
    if per_node:
        nodes = [rank // int(per_node) for rank in range(comm.size)]
    assert traffic == of_matrix(8 * counts, nodes, slots=1 if caller else 2)
    assert len(set(comm.allgather(repr(traffic)))) == 1
    times = predict(traffic, MACHINES["infiniband"])
    assert len(set(comm.allgather((fastest(times), tuple(times.values()))))) == 1
