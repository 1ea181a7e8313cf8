"""Neighbors as a communicator's topology names them."""

from __future__ import annotations

from collections import Counter

from mpi4py import MPI

from onesided.collectives.errors import UnsupportedError

Edges = tuple[list[int], list[int], list[int], list[int]]


def neighbors(comm: MPI.Comm) -> Edges:
    """Local. Destinations and their keys, sources and their keys, in the order of the topology.

    A key tells several edges between two ranks apart. In a distributed graph the n-th edge to a
    rank matches that rank's n-th edge from here. In a Cartesian grid the block sent in the
    negative direction arrives as the one from the positive direction (MPI-4.1 section 8.6), which
    matters where both neighbors are one rank. Ends of a grid that is not periodic have no block:
    their entry is ``MPI.PROC_NULL``.
    """
    if isinstance(comm, MPI.Distgraphcomm):
        sources, destinations, _ = comm.Get_dist_neighbors()
        return list(destinations), _ordinals(destinations), list(sources), _ordinals(sources)
    if isinstance(comm, MPI.Cartcomm):
        ranks = [rank for axis in range(comm.Get_dim()) for rank in comm.Shift(axis, 1)]
        send_keys = list(range(len(ranks)))
        return ranks, send_keys, list(ranks), [key ^ 1 for key in send_keys]
    raise UnsupportedError(
        "Neighbor_alltoallv_init needs a communicator with a distributed graph or Cartesian "
        "topology; this one has none"
    )


def _ordinals(ranks: list[int]) -> list[int]:
    seen: Counter[int] = Counter()
    keys = []
    for rank in ranks:
        keys.append(seen[rank])
        seen[rank] += 1
    return keys
