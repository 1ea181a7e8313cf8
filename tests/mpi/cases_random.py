"""Topologies as MPI makes them; and examples found by hypothesis, the same on all ranks."""

from __future__ import annotations

import numpy as np
from cases import parameters, ranks, skip_if_known
from exchange_data import names
from hypothesis import HealthCheck, Phase, given, settings
from mpi4py import MPI

from onesided.collectives import (
    Neighbor_allgather_init,
    Neighbor_alltoall_init,
    Neighbor_alltoallv_init,
    UnsupportedError,
)


def examine(comm, strategy, body, examples):
    """Run ``body`` on examples that are the same on all ranks; a failure anywhere is one here."""
    seen = []

    @settings(
        max_examples=examples, derandomize=True, database=None, deadline=None,
        suppress_health_check=list(HealthCheck), phases=[Phase.generate, Phase.shrink],
    )
    @given(strategy)
    def run(example):
        problem = None
        try:
            seen.append(body(example))
        except Exception as error:  # or the others would wait for this rank, which tries again
            problem = f"{type(error).__name__}: {error}"
        problems = comm.allgather(problem)
        assert not any(problems), problems

    run()
    return seen


@parameters(method=names, periods=["both", "none", "one"], memory=["given", "own"])
def case_cartesian_neighbors(comm, method, periods, memory):
    """Both neighbors may be one rank, or this one: extents 2 and 1; beyond an end is nobody, whose
    blocks stay, and have no room only where each block has a count of its own, to be learned."""
    dims = [2, comm.size // 2] if comm.size % 2 == 0 else [1, comm.size]
    grid = comm.Create_cart(dims, [periods != "none", periods == "both"])
    send = np.repeat(10.0 * grid.rank + np.arange(4), 3)
    own, requests = memory == "own", []
    try:
        for init, sent in ((Neighbor_alltoallv_init, send), (Neighbor_alltoall_init, send),
                           (Neighbor_allgather_init, send[:3])):  # fmt: skip
            recv = None if own else np.full(12, -1.0)
            requests.append(init(grid, sent, recv, method=method))
    except UnsupportedError as error:  # agreed; only where MPI itself is wrong
        skip_if_known(error, method)
    wanted = []
    for axis in range(2):
        below, above = grid.Shift(axis, 1)
        wanted += [(below, 2 * axis + 1), (above, 2 * axis)]
    for turn, request in enumerate(requests * 2):
        request.Start()
        got = request.Wait().reshape(-1, 3)
        theirs = [-1.0 if peer == MPI.PROC_NULL else 10.0 * peer + place * (turn % 3 < 2)
                  for peer, place in wanted]  # fmt: skip
        if own and turn % 3 == 0:
            theirs = [each for each in theirs if each >= 0]
        for place, each in enumerate(theirs):
            assert (own and each < 0) or np.all(got[place] == each), (place, got)
    for request in requests:
        request.Free()
    grid.Free()


@ranks(at_least=2)
@parameters(method=["mpi", "mpi-persistent", "p2p", "rma-notify", "rma-fence"])
def case_the_graph_of_mpi_1(comm, method):
    """A ring as Create_graph makes it: every rank exchanges with both of its neighbors."""
    size, rank = comm.size, comm.rank
    near = [sorted({(r - 1) % size, (r + 1) % size}) for r in range(size)]
    index = np.cumsum([len(ranks_) for ranks_ in near]).tolist()
    graph = comm.Create_graph(index, [peer for ranks_ in near for peer in ranks_])
    peers = near[rank]
    send = np.zeros(3 * len(peers), np.int64)
    with Neighbor_alltoallv_init(graph, [send, [3] * len(peers)], None, method=method) as request:
        for turn in range(3):
            send[:] = 1000 * turn + 100 * rank + np.repeat(peers, 3)
            request.Start()
            expected = 1000 * turn + 100 * np.repeat(peers, 3) + rank
            assert np.array_equal(request.Wait(), expected)
    graph.Free()
