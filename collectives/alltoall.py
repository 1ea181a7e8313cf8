"""The Alltoallv family: collective initialization of persistent exchanges.

All checking that needs agreement happens here, once, so every rank raises the same error and
none hangs; ``Start`` and ``Wait`` agree on nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mpi4py import MPI

from onesided.collectives import buffers, registry
from onesided.collectives.agreement import agree
from onesided.collectives.buffers import Side
from onesided.collectives.context import Context
from onesided.collectives.exchange import match, neighbors
from onesided.collectives.hints import Hints
from onesided.collectives.pattern import Cuts, check_disjoint, read_cuts
from onesided.collectives.request import Request, build

Info = Mapping[str, str] | MPI.Info | None
Chunks = tuple[int, Sequence[int]] | None


def Alltoallv_init(
    comm: MPI.Comm, sendbuf: Any, recvbuf: Any, *, method: str = "auto", info: Info = None
) -> Request:
    """Collective. A persistent ``MPI_Alltoallv``: every rank sends a block to every rank.

    Parameters
    ----------
    sendbuf
        mpi4py's vector specification: ``[data, counts]``, ``[data, counts, displs]``,
        ``[data, counts, displs, type]``, ``[data, (counts, displs), type]`` or an array that is
        split evenly; one count and displacement, in elements, per rank of ``comm``. Counts and
        displacements are copied, the data are bound and kept alive until ``Free``.
    recvbuf
        The same, in the caller's memory; in memory from :func:`empty` (the fast way: peers on the
        node store straight into it); or None: the request owns two slots that take turns, the
        counts are learned from the senders, the blocks are packed in the order of the ranks, and
        ``Wait`` returns the slot just filled.
    method
        A name from :func:`methods`.
    info
        Hints, see :class:`~onesided.collectives.hints.Hints`; unknown keys are ignored.

    Raises
    ------
    PatternError, MethodError, UnsupportedError, ResourceError
        On every rank, with the same words, before anything is started.

    Source: MPI-4.1 section 7.13; the transports as named in :mod:`.registry`.
    """

    def read(context: Context) -> _Sides:
        ranks = list(range(context.comm.size))
        return _vector_sides(sendbuf, recvbuf, ranks, [0] * len(ranks), ranks, [0] * len(ranks))

    return _initialize("Alltoallv_init", comm, read, method, info)


def Alltoallw_init(
    comm: MPI.Comm,
    sendbuf: Any,
    recvbuf: Any,
    *,
    method: str = "auto",
    info: Info = None,
    chunks: Chunks = None,
) -> Request:
    """Collective. A persistent exchange of boxes of n-dimensional arrays.

    As ``MPI_Alltoallw`` with subarray types: ``sendbuf`` and ``recvbuf`` are ``[array, boxes]``
    with, per rank of ``comm``, a tuple of slices of the local array or None. A block and its
    counterpart have the same number of elements and the same dtype; elements are matched in C
    order of the boxes. The receive array may have its axes in any memory order; as
    ``[(shape, dtype), boxes]`` it is owned by the request, in two slots that take turns.

    On the node a box is copied once, straight into the peer's array, where that array is in
    window memory (from :func:`empty`, or the request's own) and the boxes have the same shape;
    otherwise, and off the node, it is packed into window memory and unpacked by its receiver.

    ``chunks=(axis, stops)`` cuts this rank's send boxes along ``axis`` at offsets from the start
    of each box, the last of which is the extent of the boxes along this axis (they must all have
    the same). The chunks of a round that is opened with ``request.Open()`` are written and leave
    one by one. Ranks may cut their boxes in different ways; without it there is one chunk.

    Other parameters and errors as in :func:`Alltoallv_init`.
    """

    def read(context: Context) -> _Sides:
        ranks = context.comm.size
        send = buffers.send_boxes(sendbuf, ranks)
        cuts = read_cuts(chunks, send.blocks, len(send.shape))
        return _Sides(send, buffers.recv_boxes(recvbuf, ranks), cuts=cuts, by_boxes=True)

    return _initialize("Alltoallw_init", comm, read, method, info)


def Neighbor_alltoallv_init(
    comm: MPI.Comm, sendbuf: Any, recvbuf: Any, *, method: str = "auto", info: Info = None
) -> Request:
    """Collective. A persistent ``MPI_Neighbor_alltoallv``: blocks for real neighbors only.

    ``comm`` has a distributed graph topology (``Create_dist_graph_adjacent``) or a Cartesian one.
    There is one count and displacement per outgoing edge in ``sendbuf`` and per incoming edge in
    ``recvbuf``, in the order of the topology; the same neighbor may occur several times.

    Parameters and errors as in :func:`Alltoallv_init`.
    """

    def read(context: Context) -> _Sides:
        edges = neighbors(context.comm)
        return _vector_sides(sendbuf, recvbuf, *edges)

    return _initialize("Neighbor_alltoallv_init", comm, read, method, info, neighborhood=True)


class _Sides:
    """Both sides as read on this rank; ``recv`` is None where the counts are to be learned."""

    def __init__(
        self, send: Side, recv: Side | None, sources: list[int] | None = None,
        keys: list[int] | None = None, cuts: Cuts | None = None, by_boxes: bool = False,
    ) -> None:  # fmt: skip
        self.send, self.recv, self.cuts, self.by_boxes = send, recv, cuts, by_boxes
        self.sources, self.keys = sources or [], keys or []


def _vector_sides(
    sendbuf: Any,
    recvbuf: Any,
    destinations: list[int],
    send_keys: list[int],
    sources: list[int],
    recv_keys: list[int],
) -> _Sides:
    send = buffers.vector(sendbuf, len(destinations), "send").side(destinations, send_keys)
    if recvbuf is None:
        return _Sides(send, None, sources, recv_keys)
    recv = buffers.vector(recvbuf, len(sources), "recv").side(sources, recv_keys)
    check_disjoint(recv.blocks)
    return _Sides(send, recv)


def _initialize(
    call: str,
    comm: MPI.Comm,
    read: Callable[[Context], _Sides],
    method: str,
    info: Info,
    neighborhood: bool = False,
) -> Request:
    """Collective. Three agreements, two exchanges of words, and what the transport needs."""
    began = time.perf_counter()
    context = Context.of(comm)
    hints, error = Hints(), None
    try:
        kind = registry.find(method)
        hints = Hints.of(info, comm)
        sides = read(context)
    except Exception as problem:
        error = problem
    agree(context.comm, error, f"{call} {method} {hints}")
    context.node(hints.ranks_per_node)  # collective where it is the first
    exchange = match(
        context, call, method, kind.any_order, sides.send, sides.recv,
        (sides.sources, sides.keys), hints, sides.cuts, neighborhood, sides.by_boxes,
    )  # fmt: skip
    request: Request
    if kind.chooses:
        request = kind.load()(exchange)
    else:
        request = build(exchange, kind, [exchange.send.array, exchange.recv.array])
    request.setup_time = time.perf_counter() - began
    return request
