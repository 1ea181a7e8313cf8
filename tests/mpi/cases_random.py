"""Random patterns, found by hypothesis; the same on all ranks, judged by all ranks together."""

from __future__ import annotations

import numpy as np
from cases import parameters, ranks, skip_if_known
from exchange_data import MEMORY, Vector, names
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from mpi4py import MPI

from onesided.collectives import Neighbor_alltoallv_init, UnsupportedError

COUNTS = st.one_of(st.just(0), st.integers(0, 4), st.integers(0, 300))


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
        except AssertionError as error:
            problem = str(error)
        problems = comm.allgather(problem)
        assert not any(problems), problems

    run()
    return seen


@parameters(method=[n for n in names() if n != "auto"])
def case_random_tables(comm, method, options):
    size = comm.size
    rows = st.lists(st.lists(COUNTS, min_size=size, max_size=size), min_size=size, max_size=size)
    strategy = st.tuples(rows, st.sampled_from(MEMORY), st.sampled_from([None, "1", "2"]))

    def body(example):
        table, memory, nodes = example
        info = None if nodes is None else {"ranks_per_node": nodes}
        exchange = Vector(comm, np.array(table), method, memory, info)
        try:
            for turn in range(3):
                exchange.round(turn)
        finally:
            exchange.free()
        return int(np.sum(table))

    sizes = examine(comm, strategy, body, int(options.get("examples", "8")))
    assert sum(sizes) > 0, "every example was empty"


@parameters(method=[n for n in names() if n != "auto"])
def case_random_graphs(comm, method, options):
    size = comm.size
    edges = st.lists(
        st.tuples(st.integers(0, size - 1), st.integers(0, size - 1), st.integers(0, 20)),
        max_size=4 * size,
    )

    def body(graph):
        out = [(b, n) for a, b, n in graph if a == comm.rank]
        into = [(a, n) for a, b, n in graph if b == comm.rank]
        topology = comm.Create_dist_graph_adjacent([a for a, _ in into], [b for b, _ in out])
        numbers = [i for i, edge in enumerate(graph) if edge[0] == comm.rank]
        send = np.array([1000 * i + j for i in numbers for j in range(graph[i][2])], np.int64)
        want = [
            1000 * i + j for i, (_, b, n) in enumerate(graph) if b == comm.rank for j in range(n)
        ]
        counts = [n for _, n in out]
        request = Neighbor_alltoallv_init(topology, [send, counts], None, method=method)
        try:
            for _ in range(3):
                request.Start()
                got = request.Wait()
                assert got.tolist() == want, f"{got.tolist()} came, not {want}"
        finally:
            request.Free()
            topology.Free()
        return len(graph)

    sizes = examine(comm, edges, body, int(options.get("examples", "6")))
    assert sum(sizes) > 0, "every example was empty"


@parameters(method=names, periodic=[True, False])
def case_cartesian_neighbors(comm, method, periodic):
    """Both neighbors may be one rank, or this one: extents 2 and 1."""
    dims = [2, comm.size // 2] if comm.size % 2 == 0 else [1, comm.size]
    grid = comm.Create_cart(dims, [periodic] * 2)
    send = np.repeat(10.0 * grid.rank + np.arange(4), 3)
    recv = np.full(12, -1.0)
    try:
        request = Neighbor_alltoallv_init(grid, send, recv, method=method)
    except UnsupportedError as error:  # agreed; only where MPI itself is wrong
        skip_if_known(error, method)
    with request:
        for _ in range(2):
            request.Start()
            request.Wait()
    for axis in range(2):
        below, above = grid.Shift(axis, 1)
        low, high = 2 * axis, 2 * axis + 1
        for slot, neighbor, theirs in ((low, below, high), (high, above, low)):
            want = -1.0 if neighbor == MPI.PROC_NULL else 10.0 * neighbor + theirs
            assert np.all(recv[3 * slot : 3 * slot + 3] == want), (slot, recv)
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
