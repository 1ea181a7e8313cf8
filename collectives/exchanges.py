"""The collectives that only move data: collective initialization of persistent exchanges.

All checking that needs agreement happens here, once, so every rank raises the same error and
none hangs; ``Start`` and ``Wait`` agree on nothing.

What all of them have in common: ``sendbuf`` and ``recvbuf`` are mpi4py's buffer specifications
(:mod:`.buffers`), of predefined types or derived ones. Counts and displacements, in elements of the
type, are copied; the data are bound and kept alive until ``Free``. Types with holes are packed in
``Start`` and unpacked when the round is complete. Memory from :func:`empty` is the fast way to
receive: peers on the node store straight into it. Where ``recvbuf`` may be None the request owns
two slots that take turns, the counts are learned from the senders, the blocks are packed in the
order of the ranks, and ``Wait`` returns the slot just filled. ``MPI.IN_PLACE``, and None as in
mpi4py, says that the data of this rank are in the other buffer; where there is no root and only
some ranks say so, the methods that are MPI's own raise :class:`UnsupportedError`. ``method`` is a
name from :func:`methods`, ``info`` has hints (:class:`~onesided.collectives.hints.Hints`); unknown
keys are ignored. They raise :class:`PatternError`, :class:`MethodError`, :class:`UnsupportedError`,
:class:`ResourceError` or :class:`MismatchError` on every rank, with the same words, before anything
is started.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from mpi4py import MPI

from onesided.collectives import buffers
from onesided.collectives.buffers import Side, Spec, in_place, nothing, simple, vector
from onesided.collectives.context import Context
from onesided.collectives.errors import PatternError, RequestError
from onesided.collectives.exchange import Edges, Sides, match, neighbors
from onesided.collectives.initialization import Call, Info, initialize
from onesided.collectives.pattern import check_root, read_cuts
from onesided.collectives.registry import EXCHANGE
from onesided.collectives.request import Request
from onesided.collectives.transport import Credit

Chunks = tuple[int, Sequence[int]] | None
Reader = Callable[[Any, int, str], Spec]

NO_BUFFER = "the data are to be in place, and there is no receive buffer"


# -- one rank with all ---------------------------------------------------------------------------


def Gather_init(
    comm: MPI.Comm, sendbuf: Any, recvbuf: Any, root: int = 0, *, method: str = "auto",
    info: Info = None,
) -> Request:  # fmt: skip
    """Collective. A persistent ``MPI_Gather``: a block of every rank, of one size, to the root.

    ``sendbuf`` may be ``MPI.IN_PLACE`` at the root: its block is in ``recvbuf``. ``recvbuf`` is
    read at the root only, and may be None; ``Wait`` returns None elsewhere.

    Examples
    --------
    >>> with Gather_init(comm, np.array([comm.rank]), None) as request:
    ...     request.Start()
    ...     received = request.Wait()
    >>> comm.rank > 0 or received.tolist() == list(range(comm.size))
    True
    """
    return _initialize("Gather", comm, sendbuf, recvbuf, method, info, root)


def Gatherv_init(
    comm: MPI.Comm, sendbuf: Any, recvbuf: Any, root: int = 0, *, method: str = "auto",
    info: Info = None,
) -> Request:  # fmt: skip
    """Collective. A persistent ``MPI_Gatherv``: :func:`Gather_init` with a count of each rank's.

    Examples
    --------
    >>> counts = list(range(1, comm.size + 1))
    >>> receive = [np.zeros(sum(counts)), counts] if comm.rank == 0 else None
    >>> with Gatherv_init(comm, np.full(comm.rank + 1, 2.0), receive) as request:
    ...     request.Start()
    ...     received = request.Wait()
    >>> comm.rank > 0 or bool((received == 2).all())
    True
    """
    return _initialize("Gatherv", comm, sendbuf, recvbuf, method, info, root)


def Scatter_init(
    comm: MPI.Comm, sendbuf: Any, recvbuf: Any, root: int = 0, *, method: str = "auto",
    info: Info = None,
) -> Request:  # fmt: skip
    """Collective. A persistent ``MPI_Scatter``: a block, of one size, from the root to every rank.

    ``sendbuf`` is read at the root only. ``recvbuf`` may be ``MPI.IN_PLACE`` there: its own block
    stays where it is, and ``Wait`` returns None; elsewhere it may be None.

    Examples
    --------
    >>> send = np.arange(comm.size) if comm.rank == 0 else None
    >>> with Scatter_init(comm, send, np.zeros(1, int)) as request:
    ...     request.Start()
    ...     int(request.Wait()[0]) == comm.rank
    True
    """
    return _initialize("Scatter", comm, sendbuf, recvbuf, method, info, root)


def Scatterv_init(
    comm: MPI.Comm, sendbuf: Any, recvbuf: Any, root: int = 0, *, method: str = "auto",
    info: Info = None,
) -> Request:  # fmt: skip
    """Collective. A persistent ``MPI_Scatterv``: :func:`Scatter_init` with a count for each.

    Examples
    --------
    >>> counts = list(range(1, comm.size + 1))
    >>> send = [np.ones(sum(counts)), counts] if comm.rank == 0 else None
    >>> with Scatterv_init(comm, send, np.zeros(comm.rank + 1)) as request:
    ...     request.Start()
    ...     float(request.Wait().sum()) == comm.rank + 1
    True
    """
    return _initialize("Scatterv", comm, sendbuf, recvbuf, method, info, root)


def _gather(many: Reader, root: int, context: Context, sendbuf: Any, recvbuf: Any) -> Sides:
    me, ranks, keys = _everyone(context)
    check_root(root, len(ranks))
    if me != root:
        return Sides(simple(sendbuf, 1, "send").side([root], [0]), nothing())
    if not in_place(sendbuf):
        send = simple(sendbuf, 1, "send").side([root], [0])
        return _received(send, many, recvbuf, ranks, keys)
    if recvbuf is None:
        raise PatternError(NO_BUFFER)
    spec = many(recvbuf, len(ranks), "recv")
    if spec.packs:
        return Sides(spec.only(me).side([me], [0]), spec.side(ranks, keys))
    return Sides(replace(nothing(), native=MPI.IN_PLACE), spec.side(ranks, keys, kept=me))


def _scatter(many: Reader, root: int, context: Context, sendbuf: Any, recvbuf: Any) -> Sides:
    me, ranks, keys = _everyone(context)
    check_root(root, len(ranks))
    send = nothing()
    if me == root:
        spec = many(sendbuf, len(ranks), "send")
        if in_place(recvbuf) and not spec.packs:
            send = spec.side(ranks, keys, kept=me)
            return Sides(send, replace(nothing(), native=MPI.IN_PLACE))
        send = spec.side(ranks, keys)
        if in_place(recvbuf):
            return Sides(send, spec.room(me))
    return _received(send, simple, recvbuf, [root], [0])


# -- the same to all -----------------------------------------------------------------------------


def Allgather_init(
    comm: MPI.Comm, sendbuf: Any, recvbuf: Any, *, method: str = "auto", info: Info = None
) -> Request:
    """Collective. A persistent ``MPI_Allgather``: a block of every rank, of one size, to all.

    ``sendbuf`` may be ``MPI.IN_PLACE``: the block is in ``recvbuf``, which may otherwise be None.

    Examples
    --------
    >>> with Allgather_init(comm, np.array([comm.rank]), None) as request:
    ...     request.Start()
    ...     request.Wait().tolist() == list(range(comm.size))
    True
    """
    return _initialize("Allgather", comm, sendbuf, recvbuf, method, info)


def Allgatherv_init(
    comm: MPI.Comm, sendbuf: Any, recvbuf: Any, *, method: str = "auto", info: Info = None
) -> Request:
    """Collective. A persistent ``MPI_Allgatherv``: :func:`Allgather_init` with a count of each
    rank's.

    Examples
    --------
    >>> counts = list(range(1, comm.size + 1))
    >>> receive = [np.zeros(sum(counts)), counts]
    >>> with Allgatherv_init(comm, np.ones(comm.rank + 1), receive) as request:
    ...     request.Start()
    ...     float(request.Wait().sum()) == sum(counts)
    True
    """
    return _initialize("Allgatherv", comm, sendbuf, recvbuf, method, info)


def Neighbor_allgather_init(
    comm: MPI.Comm, sendbuf: Any, recvbuf: Any, *, method: str = "auto", info: Info = None
) -> Request:
    """Collective. A persistent ``MPI_Neighbor_allgather``: one block to all outgoing neighbors.

    ``comm`` has a topology; ``recvbuf`` has a block for every incoming neighbor, in its order.

    Examples
    --------
    >>> ring = comm.Create_cart([comm.size], periods=[True])
    >>> with Neighbor_allgather_init(ring, np.array([5.0]), np.zeros(2)) as request:
    ...     request.Start()
    ...     request.Wait().tolist()
    [5.0, 5.0]
    >>> ring.Free()
    """
    return _initialize("Neighbor_allgather", comm, sendbuf, recvbuf, method, info)


def Neighbor_allgatherv_init(
    comm: MPI.Comm, sendbuf: Any, recvbuf: Any, *, method: str = "auto", info: Info = None
) -> Request:
    """Collective. A persistent ``MPI_Neighbor_allgatherv``: :func:`Neighbor_allgather_init` with a
    count of each neighbor's.

    Examples
    --------
    >>> ring = comm.Create_cart([comm.size], periods=[True])
    >>> with Neighbor_allgatherv_init(ring, np.ones(2), [np.zeros(4), [2, 2]]) as request:
    ...     request.Start()
    ...     float(request.Wait().sum())
    4.0
    >>> ring.Free()
    """
    return _initialize("Neighbor_allgatherv", comm, sendbuf, recvbuf, method, info)


def _allgather(many: Reader, root: None, context: Context, sendbuf: Any, recvbuf: Any) -> Sides:
    me, ranks, keys = _everyone(context)
    if not in_place(sendbuf):
        send = simple(sendbuf, 1, "send").side(ranks, keys)
        return _received(send, many, recvbuf, ranks, keys)
    if recvbuf is None:
        raise PatternError(NO_BUFFER)
    spec = many(recvbuf, len(ranks), "recv")
    if spec.packs:
        return Sides(spec.only(me).side(ranks, keys), spec.side(ranks, keys))
    others = [MPI.PROC_NULL if rank == me else rank for rank in ranks]
    return Sides(spec.only(me).side(others, keys), spec.side(ranks, keys, kept=me))


def _allgather_neighbors(
    many: Reader, root: None, context: Context, sendbuf: Any, recvbuf: Any
) -> Sides:
    targets, sources = neighbors(context.comm)
    send = simple(sendbuf, 1, "send").side(*targets)
    return _received(send, many, recvbuf, *sources)


# -- to each its own -----------------------------------------------------------------------------


def Alltoall_init(
    comm: MPI.Comm, sendbuf: Any, recvbuf: Any, *, method: str = "auto", info: Info = None
) -> Request:
    """Collective. A persistent ``MPI_Alltoall``: a block, of one size, from every rank to every
    rank.

    ``sendbuf`` may be ``MPI.IN_PLACE``: the data of ``recvbuf`` are sent, which Start copies
    aside. ``recvbuf`` may otherwise be None.

    Examples
    --------
    >>> send = np.arange(comm.size) + 10 * comm.rank  # a number for every rank
    >>> with Alltoall_init(comm, send, None) as request:
    ...     request.Start()
    ...     bool((request.Wait() == 10 * np.arange(comm.size) + comm.rank).all())
    True
    """
    return _initialize("Alltoall", comm, sendbuf, recvbuf, method, info)


def Alltoallv_init(
    comm: MPI.Comm, sendbuf: Any, recvbuf: Any, *, method: str = "auto", info: Info = None
) -> Request:
    """Collective. A persistent ``MPI_Alltoallv``: every rank sends a block to every rank.

    Parameters
    ----------
    sendbuf
        ``[data, counts]``, ``[data, counts, displs]``, ``[data, counts, displs, type]``, ``[data,
        (counts, displs), type]`` or an array that is split into blocks as even as possible; one
        count and displacement, in elements, per rank of ``comm``; or ``MPI.IN_PLACE`` as in
        :func:`Alltoall_init`.
    recvbuf
        The same, in the caller's memory; in memory from :func:`empty` (the fast way: peers on the
        node store straight into it); or None.

    References
    ----------
    MPI-4.1 section 7.13; the transports as named in :mod:`.registry`.

    Examples
    --------
    >>> counts = [comm.rank + peer + 1 for peer in range(comm.size)]
    >>> send = np.full(sum(counts), comm.rank)
    >>> with Alltoallv_init(comm, [send, counts], None) as request:
    ...     for step in range(3):
    ...         request.Start()
    ...         received = request.Wait()
    >>> received.size == sum(counts)
    True
    """
    return _initialize("Alltoallv", comm, sendbuf, recvbuf, method, info)


def Alltoallw_init(
    comm: MPI.Comm,
    sendbuf: Any,
    recvbuf: Any,
    *,
    method: str = "auto",
    info: Info = None,
    chunks: Chunks = None,
    rows: Any = None,
) -> Request:
    """Collective. A persistent exchange of boxes of n-dimensional arrays, or of a type for each.

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

    ``rows``, an integer for each row of this rank's send array, tells which of them are the same in
    every round: those of one number. A method that sends to nodes sends such a row to a node once,
    and out of another array than the one that is given: what travels is what is written to
    :attr:`Request.packed`, by every method. The boxes are of whole rows then.

    MPI's own arguments are taken as well: ``[data, counts, displs, types]``, ``[data, (counts,
    displs), types]`` or ``[data, types]``, displacements in bytes; ``data`` may be ``MPI.BOTTOM``,
    and then offsets are addresses. ``sendbuf`` may be ``MPI.IN_PLACE`` as in :func:`Alltoall_init`.

    Examples
    --------
    A global transpose: rows in, columns out.

    >>> size = comm.size
    >>> rows, columns = np.arange(2.0 * size).reshape(1, 2 * size), np.zeros((size, 2))
    >>> out = [(slice(0, 1), slice(2 * p, 2 * p + 2)) for p in range(size)]
    >>> into = [(slice(p, p + 1), slice(0, 2)) for p in range(size)]
    >>> with Alltoallw_init(comm, [rows, out], [columns, into]) as request:
    ...     request.Start()
    ...     request.Wait()[0].tolist() == [2.0 * comm.rank, 2.0 * comm.rank + 1]
    True
    """

    def read(context: Context, sendbuf: Any, recvbuf: Any) -> Sides:
        nonlocal chunks, rows  # which the caller may change before the next reading
        _, ranks, keys = _everyone(context)
        sides = _typed_sides(sendbuf, recvbuf, ((ranks, keys), (ranks, keys)))
        sides.cuts = cuts = read_cuts(chunks, sides.send.blocks, len(sides.send.shape))
        chunks = None if cuts is None else (cuts.axis, cuts.stops)
        if rows is not None:
            sides.rows = rows = buffers.read_rows(rows, sides.send)
        return sides

    return _initialize("Alltoallw", comm, sendbuf, recvbuf, method, info, read=read)


def Neighbor_alltoall_init(
    comm: MPI.Comm, sendbuf: Any, recvbuf: Any, *, method: str = "auto", info: Info = None
) -> Request:
    """Collective. A persistent ``MPI_Neighbor_alltoall``: a block of one size for every neighbor.

    ``comm`` as in :func:`Neighbor_alltoallv_init`; ``recvbuf`` may be None: open ends have room.

    Examples
    --------
    >>> ring = comm.Create_cart([comm.size], periods=[True])  # a neighbor on both sides
    >>> with Neighbor_alltoall_init(ring, np.array([1.0, 2.0]), np.zeros(2)) as request:
    ...     request.Start()
    ...     request.Wait().tolist()  # what the left one sends to its right, and the other way
    [2.0, 1.0]
    >>> ring.Free()
    """
    return _initialize("Neighbor_alltoall", comm, sendbuf, recvbuf, method, info)


def Neighbor_alltoallv_init(
    comm: MPI.Comm, sendbuf: Any, recvbuf: Any, *, method: str = "auto", info: Info = None
) -> Request:
    """Collective. A persistent ``MPI_Neighbor_alltoallv``: blocks for real neighbors only.

    ``comm`` has a distributed graph topology (``Create_dist_graph_adjacent``) or a Cartesian one.
    There is one count and displacement per outgoing edge in ``sendbuf`` and per incoming edge in
    ``recvbuf``, in the order of the topology; the same neighbor may occur several times.

    Examples
    --------
    >>> ring = comm.Create_cart([comm.size], periods=[True])
    >>> send, receive = [np.array([1.0, 2, 2]), [1, 2]], [np.zeros(3), [2, 1]]
    >>> with Neighbor_alltoallv_init(ring, send, receive) as request:
    ...     request.Start()
    ...     request.Wait().tolist()
    [2.0, 2.0, 1.0]
    >>> ring.Free()
    """
    return _initialize("Neighbor_alltoallv", comm, sendbuf, recvbuf, method, info)


def Neighbor_alltoallw_init(
    comm: MPI.Comm, sendbuf: Any, recvbuf: Any, *, method: str = "auto", info: Info = None
) -> Request:
    """Collective. A persistent ``MPI_Neighbor_alltoallw``: :func:`Alltoallw_init` with a box, or a
    type, for every neighbor.

    Examples
    --------
    >>> ring = comm.Create_cart([comm.size], periods=[True])
    >>> u = np.array([0.0, 1, 2, 3, 0])  # a ghost at both ends
    >>> inner, ghosts = [(slice(1, 2),), (slice(3, 4),)], [(slice(0, 1),), (slice(4, 5),)]
    >>> with Neighbor_alltoallw_init(ring, [u, inner], [u, ghosts]) as request:
    ...     request.Start()
    ...     request.Wait().tolist()
    [3.0, 1.0, 2.0, 3.0, 1.0]
    >>> ring.Free()
    """

    def read(context: Context, sendbuf: Any, recvbuf: Any) -> Sides:
        return _typed_sides(sendbuf, recvbuf, neighbors(context.comm), may_be_in_place=False)

    return _initialize("Neighbor_alltoallw", comm, sendbuf, recvbuf, method, info, read=read)


def _alltoall(many: Reader, root: None, context: Context, sendbuf: Any, recvbuf: Any) -> Sides:
    _, ranks, keys = _everyone(context)
    if in_place(sendbuf) and recvbuf is not None:
        spec = many(recvbuf, len(ranks), "recv")
        return Sides(spec.aside(ranks, keys), spec.side(ranks, keys))
    send = many(sendbuf, len(ranks), "send").side(ranks, keys)
    return _received(send, many, recvbuf, ranks, keys)


def _alltoall_neighbors(
    many: Reader, root: None, context: Context, sendbuf: Any, recvbuf: Any
) -> Sides:
    targets, sources = neighbors(context.comm)
    send = many(sendbuf, len(targets[0]), "send").side(*targets)
    return _received(send, many, recvbuf, *sources)


def _received(
    send: Side, many: Reader, recvbuf: Any, sources: Sequence[int], keys: Sequence[int]
) -> Sides:
    """Both sides; without a receive buffer the counts are to be learned from the sources."""
    if recvbuf is None:
        return Sides(send, None, sources, keys)
    return Sides(send, many(recvbuf, len(sources), "recv").side(sources, keys))


def _typed_sides(
    sendbuf: Any, recvbuf: Any, edges: Edges, may_be_in_place: bool = True
) -> Sides:
    """Both sides by boxes, or by a type for every block; each rank as it likes."""
    (destinations, send_keys), (sources, recv_keys) = edges
    if buffers.is_typed(recvbuf):
        spec = buffers.typed(recvbuf, len(sources), "recv")
        recv = spec.side(sources, recv_keys)
    else:
        spec, recv = None, buffers.recv_boxes(recvbuf, sources, recv_keys)
    send: Side
    if may_be_in_place and in_place(sendbuf):
        if spec is not None:
            send = spec.aside(destinations, send_keys)
        elif recv.array is None:
            raise PatternError(NO_BUFFER)
        else:
            send = buffers.copied_aside(recv)
    elif buffers.is_typed(sendbuf):
        send = buffers.typed(sendbuf, len(destinations), "send").side(destinations, send_keys)
    else:
        send = buffers.send_boxes(sendbuf, destinations, send_keys)
    return Sides(send, recv, by_boxes=True)


# -- several into one memory -----------------------------------------------------------------------


def alternate(requests: Sequence[Request]) -> None:
    """Local, in the same order on all ranks. Say that requests receive into the same memory.

    All ranks pass the same requests in the same order. They receive into the same memory, or into
    parts of it, are started in one common order on all ranks, and only one of them is active at a
    time. They share one round number and one credit, so :meth:`~.Request.Release` on any of them
    lets peers write for whichever is started next. They may be of different methods.

    Raises :class:`RequestError` where a request occurs twice, has been started, alternates
    already, owns its receive memory in two slots, or is of another communicator than the first.

    Examples
    --------
    >>> memory, send = empty(comm, comm.size), np.zeros(comm.size)
    >>> pair = [Alltoall_init(comm, send, memory, method="rma-notify") for _ in range(2)]
    >>> alternate(pair)
    >>> for request in (pair[0], pair[1], pair[0]):
    ...     request.Start()
    ...     received = request.Wait()
    >>> for request in pair:
    ...     request.Free()
    >>> free(memory)
    """
    if len({id(request) for request in requests}) != len(requests):
        raise RequestError("a request occurs twice in alternate()")
    for request in requests:
        if request.state != "inactive" or request.rounds or request.granted:
            raise RequestError(f"{request!r} cannot alternate: it has been used or freed")
        if request.transport.credit is not None and request.transport.credit.joint:
            raise RequestError(f"{request!r} alternates with other requests already")
        if request.transport.owns_slots:
            raise RequestError(f"{request!r} cannot alternate: it has two slots of its own")
        if request.operation.context is not requests[0].operation.context:
            raise RequestError(f"{request!r} and {requests[0]!r} are of different communicators")
    if not requests:
        return
    together = Credit(joint=True)
    for request in requests:
        request.alternate_in(together)


# -- initialization ------------------------------------------------------------------------------


def _everyone(context: Context) -> tuple[int, list[int], list[int]]:
    """This rank, all ranks, and the keys of their blocks."""
    size = context.comm.size
    return context.comm.rank, list(range(size)), [0] * size


#: What reads the buffers, by the call without the "v" of those that have counts for each block.
READS: dict[str, Callable[..., Sides]] = {
    "Gather": _gather, "Scatter": _scatter, "Allgather": _allgather, "Alltoall": _alltoall,
    "Neighbor_allgather": _allgather_neighbors, "Neighbor_alltoall": _alltoall_neighbors,
}  # fmt: skip


def _initialize(
    call: str,
    comm: MPI.Comm,
    sendbuf: Any,
    recvbuf: Any,
    method: str,
    info: Info,
    root: int | None = None,
    read: Callable[[Context, Any, Any], Sides] | None = None,
) -> Request:
    """Collective. The request; ``read``: what reads the buffers, where each block has a type."""
    if read is None:
        read = partial(READS[call.removesuffix("v")], vector if call[-1] == "v" else simple, root)
    reads = read

    def described(context: Context, sendbuf: Any, recvbuf: Any) -> Sides:
        sides = reads(context, sendbuf, recvbuf)
        told = sides.words[0]  # what cannot be described fails here, where ranks agree
        sides.sparse = len(told.keys() | {context.comm.rank}) < context.comm.size
        return sides

    name = f"{call}_init" if root is None else f"{call}_init of root {root}"
    made = Call(name, EXCHANGE, described, partial(match, call, root),
                numbers=lambda sides: (sides.sparse,))  # fmt: skip
    return initialize(made, comm, (sendbuf, recvbuf), method, info)
